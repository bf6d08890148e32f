"""Every setting: its name, default, bounds and meaning. The names are promised: a deployment sets them.

Units are in the names: `_s` seconds, `_ms` milliseconds, `_bytes` bytes. A bound that a value alone must keep stands in
its type; what must hold between several stands in relations.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from indexer.model import Descriptor, GapPolicy
from indexer.settings.discovery import Discovery
from indexer.settings.forms import (
    GIB,
    MIB,
    YEAR_S,
    Bytes,
    Count,
    Role,
    Seconds,
    Secret,
    SecretUrl,
    Section,
    StoreName,
    TermWeight,
    Text,
    Weight,
)
from schemas.recommend import Strategy


class Server(Section, frozen=True):
    """Where the service listens, and how it starts and stops."""

    host: Text = "127.0.0.1"
    """Loopback unless told otherwise: there is no access control on an open port by itself."""
    port: Annotated[int, Meta(ge=0, le=65535)] | None = 8080
    """0 takes a free one; the log names it. null: none, REST is served at `server.uds` alone."""
    grpc_port: Annotated[int, Meta(ge=0, le=65535)] | None = 50051
    """On the same host. 0 takes a free one; null: no gRPC."""
    epp_port: Annotated[int, Meta(ge=0, le=65535)] = 9002
    """Of the endpoint picker for Envoy, role `epp`, on the same host. 0 takes a free one."""
    uds: Text | None = None
    """Path of a Unix socket, served beside the port, or alone. The file is for its owner and group (0660), replaces one
    that a dead process left, and goes at the stop."""
    ready_wait_s: Seconds = 30.0
    """`/readyz` says ready when every known source has a verdict, at the latest after this time."""
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """At the stop, so long running requests may take to end."""
    lame_duck_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """At the stop, from `/readyz` 503 to closed listeners: for load balancers that look now and then."""
    keep_alive_s: Annotated[int, Meta(ge=1, le=86_400)] = 75
    """Idle connections are kept so long; longer than the pools of the routers keep them."""
    roles: Annotated[tuple[Role, ...], Meta(min_length=1)] = ("collect", "lookup")
    """`collect`: subscribe to engines; `lookup`: answer, in this version always. Without `collect` all comes from the
    store. `epp`: pick endpoints for Envoy by ext_proc; not beside an `auth.tokens_file`, unless `compat.anonymous`."""


class TierWeights(Section, frozen=True):
    """What a matched token counts in `score`, by the best tier that holds its block."""

    gpu: Weight = 1.0
    cpu: Weight = 0.8
    storage: Weight = 0.5
    remote: Weight = 0.5
    unknown: Weight = 0.0


class TokenizerEntry(Section, frozen=True):
    """What makes tokens of one model's prompts: `file`, or `engine`."""

    file: Text | None = None
    """Path of a `tokenizer.json`, or of the folder that a model is published as."""
    template: Text | None = None
    """Path of a chat template that counts instead of the one beside `file`."""
    engine: bool | Text = False
    """true: ask `/tokenize` of an engine of the model, at its source's `address`, or name. Or the URL of one."""


class ApproximateEntry(Section, frozen=True):
    """Engines of one model that announce nothing."""

    ttl_s: Seconds = 300.0
    """What was routed to one is expected of it for so long (`speculative_tokens`)."""
    block_size: Annotated[int, Meta(ge=1, le=65_536)] = 16
    """Tokens a block of its cache: nobody else tells."""


class Models(Section, frozen=True):
    """How a request's `model` finds its sources, how its prompts become tokens, and what tiers are worth."""

    aliases: dict[Text, Text] = {}
    """Other names of a model: alias → model as the sources carry it."""
    follow: Annotated[tuple[Text, ...], Meta(max_length=1_024)] = ()
    """For a replica without the role `collect`: follow sources of these models alone (an alias stands for its model).
    Others, and sources without a model, are neither loaded nor kept, and asking for them is `no_signal`, `other_model`.
    Empty: all."""
    tokenizer: Text | None = None
    """For models without an entry below: path of a `tokenizer.json` or its folder, or `engine` for the engines' own."""
    tokenizers: dict[Text, TokenizerEntry] = {}
    """By base model, as the sources carry it. Aliases and adapters of it are read by the same."""
    approximate: dict[Text, ApproximateEntry] = {}
    """By model as the sources carry it, `{}` for the defaults: engines that may never announce what they hold. Of one
    that never did, `/v1/routed` is all that is known: `live`, bound `estimate`, and its score stays 0: scores count
    what was announced. Such entries, `rank` of the client and picks are ordered by `speculative_tokens`. Its source
    may have no endpoint, in the file of sources or by `POST /v1/sources`. The same at all replicas."""
    weights: TierWeights = TierWeights()
    discover: bool = False
    """Learn from the engines' `GET /v1/models`, at each source's `address` (or its name, as for `loads`), without a
    token: what a source without a model serves, further names of it, and adapters that are loaded. The same at all
    replicas."""
    discover_s: Annotated[float, Meta(ge=1, le=YEAR_S)] = 60.0
    """They are asked so often, and once an engine has restarted. Of an answer 1 MiB at most is read."""


class Events(Section, frozen=True):
    """Receiving: sockets, bounds, gaps and replay."""

    source_bind: tuple[Text, ...] = ()
    """Endpoints to bind a SUB socket on (`tcp://*:5557`), for engines that connect; sources appear by topic."""
    rcvhwm: Annotated[int, Meta(ge=1, le=1_000_000)] = 128
    """Messages that one SUB socket may hold. More wait in the engine, which queues 100,000 by default."""
    lane_bytes: Bytes = 8 * MIB
    """What may wait for one source, received and not applied. Beyond: stop draining, count, resynchronise."""
    lanes_total_bytes: Bytes = 256 * MIB
    """The same over all sources."""
    max_message_bytes: Bytes = 16 * MIB
    """A larger message ends its connection."""
    gap_policy: GapPolicy = "keep"
    """What an unhealed gap on an unbroken connection does to what is known of the source."""
    copies: Literal["count", "set"] = "count"
    """`set` for engines whose clients use full reports (`kv_cache_report_mode`): a repeated announcement is no copy."""
    probe_interval_s: Seconds = 5.0
    """An idle source with a replay endpoint is asked so often whether anything was missed."""
    replay_timeout_s: Seconds = 10.0
    """Longest wait for the next frame of a replay."""
    min_engine_restart_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """No engine is back faster. A jump after a shorter break is a gap, after a longer one a restart."""
    suspect_weight: Weight = 1.0
    """What the score of a source in state `suspect` is multiplied with."""
    reconnect_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10
    """First pause before a broken connection is tried again; it doubles up to `reconnect_max_ms`."""
    reconnect_max_ms: Annotated[int, Meta(ge=1, le=600_000)] = 1_000
    """Longest pause between two tries."""
    heartbeat_ms: Annotated[int, Meta(ge=100, le=600_000)] = 1_000
    """Interval of ZMQ heartbeats, by which a dead peer on an idle connection is noticed."""
    engine_metrics_s: Annotated[float, Meta(ge=1, le=YEAR_S)] | None = None
    """Read an engine's `/metrics`, at its source's `address`, so often: fills in `blocks_total` where it was not given,
    and remarks on prefix caching that is off, another block size or capacity. Of an answer 8 MiB at most are read;
    beyond, `engine_metrics.bytes` is counted. null: never."""


class TierTtls(Section, frozen=True):
    """Where producers announce no removals: how long an entry is believed, never `exact`. null: until it is removed."""

    gpu: Seconds | None = None
    cpu: Seconds | None = None
    storage: Seconds | None = 3_600.0
    remote: Seconds | None = None
    unknown: Seconds | None = None


class Staleness(Section, frozen=True):
    """How long a source is believed without a sign of life. A source is leased, not a block."""

    stale_after_s: Seconds = 5.0
    """Without proof of life for so long: `stale`, still scored."""
    score_ttl_s: Seconds = 60.0
    """Without proof of life for so long: `down`, not scored."""
    retain_s: Seconds = 3_600.0
    """What is known of a source that is down is kept so long for its return."""
    entry_ttl_s: TierTtls = TierTtls()


class Feedback(Section, frozen=True):
    """What is remembered of answers, so that reports of what became of the requests find them."""

    answers_s: Seconds = 600.0
    """An answer is remembered so long: a report that comes later is not joined to it."""
    answers_bytes: Annotated[int, Meta(ge=MIB, le=1024 * GIB)] = 64 * MIB
    """Of what is remembered; beyond, the oldest answers go. About 1 KB each."""
    prompt_s: Annotated[float, Meta(ge=0, le=60)] = 10.0
    """The prompt itself is kept so long, for `/v1/routed` with `of` and for reports that name it instead of a request.
    """
    prompt_bytes: Annotated[int, Meta(ge=0, le=1024 * GIB)] = 16 * MIB
    """Of all prompts that are kept; beyond, the oldest go. 0: none is ever kept."""
    drift_min_samples: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """So many of the newest answers about a source, given while it was live and exact, say whether it drifts. Reports
    without `request_id` do not count: they may have been sent before."""
    drift_limit: Weight = 0.1
    """It does where more than this share of them were wrong for no reason of the caller's or the moment's, or more than
    this share of their tokens were false hits."""
    drift_policy: Literal["report", "clear"] = "report"
    """`report`: a source that drifts is `suspect`. `clear`: and what is known of it is forgotten, within
    `limits.max_clears_per_minute`."""


class RecommendWeights(Section, frozen=True):
    """What a term counts in a recommendation's total. A request may say otherwise."""

    prefix: TermWeight = 1.0
    """Of the score."""
    load: TermWeight = 0.3
    """Of the headroom: 1 for the least busy candidate, 0 for the most busy."""
    speculative: TermWeight = 0.5
    """Of the share of the prompt that is not held yet, but expected (`/v1/routed`)."""


class Recommend(Section, frozen=True):
    """How `/v1/recommend`, `/v1/pick` and the endpoint picker rank pods."""

    strategy: Strategy = "blend"
    """`blend`: prefix and load; `prefix` or `load`: that alone. A request may say otherwise."""
    weights: RecommendWeights = RecommendWeights()
    load_floor: Annotated[float, Meta(ge=0.1, le=1_000_000)] = 4.0
    """Requests. Where the loads of all candidates differ by less, headroom differs by the less. Where no loads are
    known: how many requests of one prefix a pod may get in 30 s before its share of them is looked at."""
    non_cached_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 512
    """With engines for prefill alone: a decode engine computes as much of a prompt itself as it does not hold; beyond,
    another takes the prompt, and the answer has a `decode` list."""


class Epp(Section, frozen=True):
    """The endpoint picker for Envoy (role `epp`). No client is refused at a bound, unless `shed_above` says so."""

    pick_ms: Annotated[int, Meta(ge=1, le=10_000)] = 50
    """From a whole request to where it goes, the tokens of its text included. Beyond: by load alone."""
    endpoints: Annotated[int, Meta(ge=1, le=16)] = 3
    """Told of one request, best first: those behind the first are for the gateway's retries."""
    reads_usage: bool = False
    """Look for `usage` at the end of each response that the gateway sends here, and take what it says of
    `cached_tokens` as `/v1/feedback` would."""
    streams: Count = 8_192
    """Requests at once, until their response is over where the gateway tells of it. Beyond: they go on without us."""
    shed_above: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    """Where even the least busy endpoint has more requests than that, running, waiting and on their way, a client is
    refused with 429. null: never, which leaves waiting to the engines."""


class Loads(Section, frozen=True):
    """How busy engines are, for recommendations."""

    interval_s: Annotated[float, Meta(ge=0.1, le=3_600)] | None = 1.0
    """Read each engine's `/metrics` so often, without a token, at its source's `address`, or at its name where that is
    an `IP:PORT` at the host of its events; once for all of its ranks, by the replica that applies its events. Of an
    answer 8 MiB at most are read; beyond, `engine_metrics.bytes` is counted. null: never; then only what was routed
    tells of loads."""


class Redis(Section, frozen=True):
    """The durable store, Redis or Valkey from 7.0 on. No url: memory mode.

    It holds hashes of blocks, who holds them, and the registered sources; never tokens, prompts or salts.
    """

    url: SecretUrl | None = None
    """redis://, rediss:// (TLS), unix://, redis+cluster:// or redis+sentinel://, with user and password if wanted."""
    namespace: StoreName = "kvi"
    """First part of every key: deployments that share a store differ in it."""
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 16
    """Virtual shards; fixed for the life of a deployment."""
    replica: StoreName | None = None
    """What this replica is called in the store; no two that run may have one name. null: host name and port.

    Who starts under the name of the one before takes its place at once, and need not wait for the end of its lease.
    """
    lease_s: Seconds = 10.0
    """What a replica owns is its own for so long without a sign of it."""
    standby: Annotated[int, Meta(ge=0, le=1)] = 1
    """1: a second replica listens to a partition's engines, too, and takes over without a loss. 0: nobody does."""
    standby_bytes: Annotated[int, Meta(ge=MIB, le=1024 * GIB)] = 256 * MIB
    """What this replica keeps, undecoded, of the engines that it only listens to; beyond, the oldest goes."""
    heartbeat_s: Seconds = 1.0
    """So often a replica tells the others that it is there. Who is silent for `lease_s` is gone."""
    min_hold_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    """A partition stays with its owner for so long at least, unless the owner dies, drains or stops."""
    timeout_ms: Annotated[int, Meta(ge=1, le=60_000)] = 500
    """Of one try of one call. Lookups never wait for the store."""
    pending_bytes: Annotated[int, Meta(ge=MIB, le=1024 * GIB)] = 64 * MIB
    """What may wait to be written. Beyond, and when the store answers again, maps are written anew as a whole."""
    journal_bytes: Annotated[int, Meta(ge=MIB, le=1024 * GIB)] = 16 * MIB
    """Of the newest changes in the store, for each partition. Who follows and falls further behind loads anew."""


class Limits(Section, frozen=True):
    """What one caller or one source may ask of this process. Each has a counter when it is reached."""

    body_bytes: Bytes = 16 * MIB
    """Of a request, before and after decompression. Beyond: 413."""
    tokens: Count = 2_097_152
    """Of one prompt."""
    batch: Annotated[int, Meta(ge=1, le=16_384)] = 256
    """Lookups in one `/v1/lookup/batch`; beyond: 422. Their prompts together may hold `limits.tokens`."""
    sources: Count = 4_096
    """Known at once, however they came; beyond: 429."""
    orphans: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 65_536
    """Blocks a source, parked because their parent is not known."""
    speculative_blocks: Annotated[int, Meta(ge=1_024, le=1_000_000_000)] = 1_000_000
    """Blocks that are expected of sources since prompts were routed to them (`/v1/routed`), about 150 bytes each where
    prompts are long, up to 600 where each adds a single one; beyond, what would end next goes."""
    removals_kept: Annotated[int, Meta(ge=0, le=4_194_304)] = 262_144
    """The latest blocks that went, over all sources, by which `/v1/explain` tells when and why, 16 bytes each; beyond,
    the oldest are forgotten, and counted. 0: none."""
    max_clears_per_minute: Count = 120
    """Pods that callers clear, or remove while blocks of them are known: a discovery that has gone wrong must not empty
    the index. `PUT /v1/sources?max_removals=N` says instead how many sources may go."""
    connections: Count = 4_096
    """HTTP connections open at once; beyond: 429 to the first request, and the connection ends."""
    connections_per_caller: Count = 1_024
    """The same from one address (IPv6: one /64): raise it where all callers come through one gateway."""
    handshakes: Count = 512
    """TLS handshakes under way; beyond, the connection ends. Shared, as said below."""
    head_bytes: Bytes = 64 * 1024
    """Request line and headers of a request; beyond: 431."""
    lookups_waiting: Count = 1_024
    """Lookups at once, by REST and picks together, whose bodies arrive in pieces or are being read; beyond: 429. Those
    that wait, for a text's tokens or for events, count to the limits of that alone, by whichever door. Like the three
    below it is shared: one caller alone gets four fifths of it, and something is left for whoever has nothing."""
    sequence_waits: Count = 1_024
    """Lookups at once that wait for a `min_sequence`; beyond: 429."""
    sequence_wait_bytes: Bytes = 64 * MIB
    """Of the prompts of those."""
    pending_bytes: Bytes = 256 * MIB
    """Of bodies that are not complete, over all requests; beyond: 429. A gRPC message that does not come at once counts
    as `body_bytes`, since nobody tells how much of it has come."""
    head_wait_s: Seconds = 10.0
    """A request's head arrives within this time, or the connection ends."""
    body_wait_s: Seconds = 30.0
    """And its body within this; beyond: 408."""
    unread_wait_s: Seconds = 30.0
    """A caller takes some of an answer within this time, or the connection ends. Of REST: a gRPC answer that nobody
    takes counts to its caller's share of calls instead."""
    text_bytes: Bytes = 4 * MIB
    """Of one prompt told as text, and of what a chat template makes of messages. Beyond: 422."""
    text_timeout_ms: Annotated[int, Meta(ge=1, le=60_000)] = 1_000
    """For the tokens of a text whose request names no deadline. Beyond: an answer without them, `no_signal`."""
    text_threads: Annotated[int, Meta(ge=1, le=64)] = 2
    """Texts that are tokenized here at once; each keeps a core busy."""
    texts_waiting: Count = 256
    """Different texts that are being tokenized or wait for it; beyond: 429."""
    text_cache_bytes: Annotated[int, Meta(ge=0, le=1024 * GIB)] = 64 * MIB
    """Of the tokens of texts tokenized before; the least lately used go. Their texts are not kept."""


class Tls(Section, frozen=True):
    """Paths of PEM files. `client_ca` asks callers for a certificate."""

    certificate: Text | None = None
    """The service's own, with those that lead to its authority. Served on REST and gRPC, read again when it changes."""
    key: Text | None = None
    """Of that certificate, without a password."""
    client_ca: Text | None = None
    """Authorities of callers: who shows no certificate of theirs is not let in."""


class Auth(Section, frozen=True):
    """Who may call. No tokens file: whoever reaches the port."""

    tokens_file: Text | None = None
    """A list in YAML or JSON: name, sha256 of the token, scopes (lookup, report, admin), tenant. Re-read on change."""
    uds: Literal["token", "anonymous"] = "token"
    """Beside a tokens file, who calls at `server.uds`: `token` as elsewhere; `anonymous`: whoever may open the file may
    ask and report, of any tenant, without a token or with an unknown one; `admin` takes a known one."""
    tls: Tls = Tls()
    endpoints: tuple[Text, ...] | None = None
    """Where sources may be that callers register: addresses, networks, host names, `*.SUFFIX`, `ipc://PATH`.

    null: anywhere, and only callers on this machine register sources.
    """
    hash_secret: Secret | None = None
    """Keys the token hashes of this deployment."""


class Compat(Section, frozen=True):
    """APIs of other services, for routers that speak those."""

    anonymous: bool = False
    """With a tokens file: serve them all the same. Their clients show no token, so whoever reaches the port may ask."""


class Telemetry(Section, frozen=True):
    """Logs, traces, and metrics for a collector."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""
    log_format: Literal["console", "json"] = "console"
    """json: each line is an object of `ts`, `level`, `event`, what applies of `source`, `model`, `replica`,
    `partition`, `request_id` and `trace_id`, and the sentence as `message`."""
    otlp_endpoint: Text | None = None
    """Where traces go: a collector that takes OTLP over HTTP, `http://HOST:4318`. null: nothing is traced."""
    otlp_headers: dict[Text, Secret] = {}
    """Shown to the collector with each request, as one that wants a key asks for: header to value."""
    otlp_metrics_s: Annotated[float, Meta(ge=1, le=3600)] | None = None
    """What `/metrics` shows is sent to the collector, too, in seconds from one export to the next. null: it is not."""
    trace_ratio: Weight = 0.01
    """Share of lookups, batches, writes to the store and replays that are traced. A lookup whose caller sends a W3C
    `traceparent` is traced where that says so, whatever the ratio."""


class Metrics(Section, frozen=True):
    """What `/metrics` shows, and the collector is sent."""

    per_source: bool = True
    """False for large fleets: no series a source."""


class Settings(Section, frozen=True):
    """All of it. `sources` come from the file (origin `config`) and from flags (origin `flag`)."""

    server: Server = Server()
    sources: tuple[Descriptor, ...] = ()
    """A list of engines: maps with the keys below, or entries as `--source` takes them."""
    models: Models = Models()
    events: Events = Events()
    staleness: Staleness = Staleness()
    feedback: Feedback = Feedback()
    recommend: Recommend = Recommend()
    epp: Epp = Epp()
    loads: Loads = Loads()
    discovery: Discovery = Discovery()
    redis: Redis = Redis()
    limits: Limits = Limits()
    auth: Auth = Auth()
    compat: Compat = Compat()
    telemetry: Telemetry = Telemetry()
    metrics: Metrics = Metrics()
