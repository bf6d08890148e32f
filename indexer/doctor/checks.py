"""The closed list of checks: what each outcome means and what to do about it. Text and the shape of a finding; pure.

Levels: `ok`; `warning`, it works and something is weaker than it could be; `problem`, answers are wrong or missing, or
will be; `unknown`, it cannot be known from here, or by anybody.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

Level = Literal["ok", "warning", "problem", "unknown"]
Group = Literal[
    "service",
    "settings",
    "kubernetes",
    "sources",
    "endpoints",
    "replay",
    "engines",
    "store",
    "replicas",
    "unknowable",
]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One outcome of one check. `subject`: of which source, replica or place; empty where there is one only."""

    check: str
    level: Level
    subject: str = ""
    seen: str = ""
    means: str = ""
    do: str = ""


class Says(NamedTuple):
    """What an outcome means, and what to do."""

    means: str
    do: str = ""


class Check(NamedTuple):
    """What it looks at, and what its outcomes other than ok say. `ok`: whether it can be that."""

    group: Group
    title: str
    says: dict[Level, Says]
    ok: bool = True

    @property
    def levels(self) -> frozenset[Level]:
        """All outcomes there are."""
        return frozenset(self.says) | (frozenset({"ok"}) if self.ok else frozenset())


def found(check: str, level: Level, seen: str = "", subject: str = "") -> Finding:
    """With the words of the table. Raises KeyError where the table knows no such outcome."""
    entry = CHECKS[check]
    says = Says("") if level == "ok" and entry.ok else entry.says[level]
    return Finding(check=check, level=level, subject=subject, seen=seen, means=says.means, do=says.do)


def found_if(wrong: object, check: str, level: Level, seen: str = "", subject: str = "") -> Finding:
    """That outcome if there is anything `wrong`, else ok."""
    return found(check, level if wrong else "ok", seen, subject)


_SERVICE: Final[dict[str, Check]] = {
    "service.reachable": Check(
        "service",
        "the service answers",
        {
            "problem": Says(
                "no question of a router is answered at this address",
                "is it started, and does it listen there (--url, server.host, server.port)? With --source, --config or "
                "--redis-url the engines and the store are looked at without it",
            )
        },
    ),
    "service.access": Check(
        "service",
        "the token may read what doctor reads",
        {
            "problem": Says(
                "doctor was not let in, so it cannot say that anything there is well",
                "give a token of scopes lookup and admin: --token or KVINDEXER_TOKEN",
            ),
            "unknown": Says(
                "what stands at these paths was not looked at",
                "give a token of scopes lookup and admin: --token or KVINDEXER_TOKEN",
            ),
        },
    ),
    "service.ready": Check(
        "service",
        "the service is ready",
        {
            "warning": Says(
                "/readyz is 503: some source has no verdict yet, and load balancers send nothing here",
                "wait server.ready_wait_s, then look at the sources below",
            )
        },
    ),
    "service.version": Check(
        "service",
        "service and command are of one version",
        {
            "warning": Says(
                "what this command looks for may be named otherwise there",
                "use the command of the service's own version",
            )
        },
    ),
    "service.clock": Check(
        "service",
        "the service's clock agrees with the one here",
        {
            "warning": Says(
                "ages across machines are told wrong, and retained entries end early or late",
                "run NTP on both machines",
            ),
            "unknown": Says("the answer carried no date", "compare `date` on both machines"),
        },
    ),
    "service.discovery": Check(
        "service",
        "who tells of engines is heard, and what is gone is removed",
        {
            "warning": Says(
                "engines that come are not seen, or sources that are gone are still listed, with score 0",
                "look at the service's log (discovery_remark), at the rights and settings under discovery, and at "
                "limits.max_clears_per_minute",
            )
        },
    ),
    "service.limits": Check(
        "service",
        "no limit was reached",
        {
            "warning": Says(
                "something was refused or dropped since the start; README and SETTINGS.md say what each limit does",
                "raise the setting of that name, or find who sends so much",
            ),
            "unknown": Says("/metrics was not read", "is it closed to this machine?"),
        },
    ),
}

_SETTINGS: Final[dict[str, Check]] = {
    "settings.known": Check(
        "settings",
        "the settings in force are known",
        {
            "unknown": Says(
                "doors, limits and times were not looked at; the defaults are assumed for lease and namespace",
                "a token of scope admin reads them (GET /v1/config); or give them: --config FILE",
            )
        },
    ),
    "settings.valid": Check(
        "settings",
        "serve would start with these settings",
        {
            "problem": Says(
                "serve ends at once with this line", "change what it names; `kvindexer config --check` looks again"
            )
        },
    ),
    "settings.remarks": Check(
        "settings",
        "nothing in the settings is likely a mistake, and no door is open",
        {
            "warning": Says(
                "allowed, and seldom meant", "SETTINGS.md has every setting; README, 'Who may ask', the doors"
            )
        },
    ),
    "settings.sources_limit": Check(
        "settings",
        "there is room for more sources",
        {"warning": Says("registrations will be refused with 429", "raise limits.sources")},
    ),
    "settings.open_files": Check(
        "settings",
        "the system allows as many open files as the sources need",
        {
            "problem": Says(
                "some sources get no connection, if the service runs under the limits of this shell",
                "raise the hard limit: ulimit -Hn, LimitNOFILE= of systemd, the container's own",
            )
        },
    ),
}

_KUBERNETES: Final[dict[str, Check]] = {
    "kubernetes.reachable": Check(
        "kubernetes",
        "the API server of the cluster answers from here",
        {
            "problem": Says(
                "engines that come, go or restart are not noticed; what is known stays as it was",
                "is the service let out to it (port 443, and 6443 behind it)? discovery.kubernetes.url, ca_file",
            ),
            "unknown": Says(
                "pods were not looked at",
                "run doctor where the service runs: kubectl exec deploy/kvindexer -- kvindexer doctor",
            ),
        },
    ),
    "kubernetes.permitted": Check(
        "kubernetes",
        "pods may be listed and watched",
        {
            "problem": Says(
                "no engine is found any more; what is known stays as it was",
                "grant get, list and watch of pods to the service's account in each namespace (k8s/base/access.yaml), "
                "and mount its token",
            )
        },
    ),
    "kubernetes.pods": Check(
        "kubernetes",
        "the selector finds pods",
        {
            "warning": Says(
                "no pod has these labels, so there is no engine",
                "compare with kubectl get pods --show-labels: discovery.kubernetes.selector, namespaces",
            )
        },
    ),
    "kubernetes.sources": Check(
        "kubernetes",
        "each pod became a source, as it asked for",
        {
            "warning": Says(
                "it is no source, or another one than its pod says", "change what it names, or annotate the pod"
            )
        },
    ),
}

_SOURCES: Final[dict[str, Check]] = {
    "sources.any": Check(
        "sources",
        "there are sources",
        {
            "warning": Says(
                "every answer is no_signal",
                "name engines: --source, sources in the file, POST /v1/sources, or --source-bind for those that "
                "connect; or have them found (discovery), and see in the log (discovery_remark) what was not",
            )
        },
    ),
    "sources.followed": Check(
        "sources",
        "each model that is followed has sources",
        {
            "warning": Says(
                "this replica follows chosen models, and asking for these is no_signal",
                "is it named as the sources carry it (models.follow, --follow)? A source without a model is followed "
                "by no such replica: give it one",
            )
        },
    ),
    "sources.model": Check(
        "sources",
        "each source says its model",
        {
            "problem": Says(
                "other sources have a model, so a source without one answers for none: it is never named",
                "give it its model: model=M in --source, `model` in the file or the registration",
            ),
            "warning": Says(
                "right for a fleet of one model, which answers whatever model is asked for; with the first source that "
                "has a model, these answer for none",
                "give each source its model before there is a second one",
            ),
        },
    ),
    "sources.replay": Check(
        "sources",
        "each source has a replay endpoint",
        {
            "warning": Says(
                "a lost message stays lost: the source is suspect from then on. What was published before the service "
                "started is not known, and a loss on an idle engine is noticed at its next message only",
                "start the engine with a replay_endpoint in --kv-events-config (off by default), and name it: replay=, "
                "replay_endpoint",
            )
        },
    ),
    "sources.capacity": Check(
        "sources",
        "each source's capacity is known",
        {
            "warning": Says(
                "after messages are lost for good, blocks that are gone cannot be told from blocks that are held",
                "give blocks=N or blocks_total (vLLM logs it as num_gpu_blocks), or set events.engine_metrics_s: then "
                "the service reads it from the engine",
            )
        },
    ),
    "sources.endpoint_form": Check(
        "sources",
        "endpoints are addresses that can be connected to",
        {
            "problem": Says(
                "this address means every interface of a machine: it is for binding",
                "name the engine's own address. The engine itself wants tcp://*:PORT: given tcp://0.0.0.0 vLLM "
                "connects instead of binding, and nobody hears it",
            ),
            "warning": Says(
                "a loopback address leads to the machine of the service, where others' engines are elsewhere",
                "name the engine's address as the service's machine reaches it",
            ),
        },
    ),
    "sources.endpoint_shared": Check(
        "sources",
        "no two sources have one endpoint",
        {
            "problem": Says(
                "one engine under several names, each credited with all it holds; or a rank that is never heard: no "
                "engine binds one port twice",
                "one source an engine and rank: rank r listens at base port + r; keep the base ports of events and "
                "replay further apart than there are ranks",
            )
        },
    ),
    "sources.names": Check(
        "sources",
        "sources go by names that look like a router's",
        {
            "unknown": Says(
                "routers mostly name engines IP:PORT; these have no address and no alias, so only this very name finds "
                "them",
                "if the router calls them otherwise, add address=IP:PORT or alias=NAME",
            )
        },
    ),
    "sources.state": Check(
        "sources",
        "each source is live, and its history known",
        {
            "warning": Says(
                "answers with it are `degraded`: what is known of it is scored, of `new` and `syncing` nothing yet, of "
                "one that is cordoned or not ready nothing",
                "kvindexer sources history POD says what happened",
            ),
            "problem": Says(
                "it is not scored, or soon will not be: as if it held nothing",
                "look at the endpoint's checks below; kvindexer sources history POD says what happened",
            ),
        },
    ),
    "sources.losses": Check(
        "sources",
        "no message was lost for good",
        {
            "warning": Says(
                "messages were lost and could not be fetched again: the source is suspect until it restarts or clears",
                "a replay endpoint heals what is lost; a busy network or machine loses it (kvindexer report staleness)",
            )
        },
    ),
    "sources.remarks": Check(
        "sources",
        "the service remarks on no source",
        {
            "warning": Says(
                "the service saw this itself, and tells it until its cause is gone",
                "what the remark says; kvindexer report staleness has the numbers behind it",
            )
        },
    ),
}

_ENDPOINTS: Final[dict[str, Check]] = {
    "endpoint.reachable": Check(
        "endpoints",
        "event endpoints take connections",
        {
            "problem": Says(
                "nothing of this engine is heard",
                "does the engine run, are its events enabled (enable_kv_cache_events), does a firewall or network "
                "policy stand between? vLLM binds only for tcp://*:PORT, an IPv6 address or ipc://; told "
                "tcp://0.0.0.0:PORT it connects",
            ),
            "unknown": Says(
                "it was not looked at from here", "run doctor on the service's own machine, or in its network"
            ),
        },
    ),
    "endpoint.handshake": Check(
        "endpoints",
        "event endpoints speak as publishers of events do",
        {
            "problem": Says(
                "something else listens on that port",
                "is it the port of `endpoint` in the engine's --kv-events-config?",
            )
        },
    ),
    "endpoint.events": Check(
        "endpoints",
        "events arrive",
        {
            "unknown": Says(
                "idle, or not publishing: an engine without work says nothing, so the two look the same",
                "send the engine a request of several blocks of tokens while doctor listens (--listen-s 10). Still "
                "nothing: enable_kv_cache_events and --enable-prefix-caching; prompts shorter than a block publish "
                "none",
            )
        },
    ),
    "endpoint.messages": Check(
        "endpoints",
        "what arrives are event batches",
        {
            "problem": Says(
                "messages that cannot be read are skipped, and the source is suspect", "is this an engine's event port?"
            )
        },
    ),
    "endpoint.topic": Check(
        "endpoints",
        "topics fit the source",
        {
            "warning": Says(
                "several publishers behind one endpoint, or a topic kv@POD@MODEL of another engine: is it the right "
                "endpoint for this pod?",
                "one endpoint an engine; topics are for engines that connect (--source-bind)",
            )
        },
    ),
    "endpoint.rank": Check(
        "endpoints",
        "batches are of the source's rank",
        {
            "warning": Says(
                "what is held by one rank is credited to another",
                "rank r listens at base port + r: use ranks=A-B, or rank=N with that rank's own port",
            )
        },
    ),
    "endpoint.losses": Check(
        "endpoints",
        "no message was lost while doctor listened",
        {
            "warning": Says(
                "numbers were missing: the way from the engine loses messages, or a full queue does",
                "look for a slow network or machine; with a replay endpoint the service fetches them again",
            )
        },
    ),
    "endpoint.clock": Check(
        "endpoints",
        "the engine's clock agrees with the one here",
        {
            "warning": Says(
                "harmless for answers, which trust the service's own clock; ages of events are told wrong",
                "run NTP on the engine's machine",
            )
        },
    ),
}

_REPLAY: Final[dict[str, Check]] = {
    "replay.reachable": Check(
        "replay",
        "replay endpoints take connections",
        {
            "problem": Says(
                "what is lost cannot be fetched again",
                "does the engine's --kv-events-config name a replay_endpoint, and is its port open to this machine?",
            )
        },
    ),
    "replay.answers": Check(
        "replay",
        "replay endpoints answer",
        {
            "problem": Says(
                "something else listens there, or the engine's publisher stands still: nothing is healed",
                "is it the port of replay_endpoint, and not that of endpoint?",
            )
        },
    ),
    "replay.same_engine": Check(
        "replay",
        "replay endpoints are of the engine that is heard",
        {
            "problem": Says(
                "it has another batch under the number of one that was heard: the replay endpoint of another engine or "
                "rank",
                "name the two ports of one engine and rank",
            ),
            "unknown": Says("nothing was heard to compare with", "run doctor while the engine works (--listen-s 10)"),
        },
    ),
    "replay.reach": Check(
        "replay",
        "replay reaches far enough back",
        {
            "problem": Says(
                "while a replica is replaced, or the service restarts, the engine publishes more than it keeps: there "
                "will be a gap",
                "raise buffer_steps in the engine's --kv-events-config (10,000 by default), or lower redis.lease_s; "
                "keep redis.standby at 1",
            ),
            "warning": Says(
                "it is enough with little to spare: a busier hour, or a longer break, leaves a gap",
                "raise buffer_steps in the engine's --kv-events-config",
            ),
            "unknown": Says(
                "it keeps nothing yet, or did not say how far it reaches", "run doctor after the engine has worked"
            ),
        },
    ),
}

_ENGINES: Final[dict[str, Check]] = {
    "engine.reachable": Check(
        "engines",
        "engines tell of themselves over HTTP",
        {
            "warning": Says(
                "block size, capacity and prefix caching were not compared",
                "is `address` where the engine takes requests, as seen from here?",
            ),
            "unknown": Says(
                "no address is known, so the engine was not asked for its block size, capacity and prefix caching",
                "give address=IP:PORT where it takes requests; --at-names where engines take them at their names",
            ),
        },
    ),
    "engine.version": Check(
        "engines",
        "the engine's version is one that loses no replayed batches",
        {
            "warning": Says(
                "before vLLM 0.33 a replay that is read slowly loses batches without a word; they are asked for again",
                "a newer engine heals faster; nothing else is to be done",
            ),
            "unknown": Says("the engine does not tell its version", ""),
        },
    ),
    "engine.prefix_caching": Check(
        "engines",
        "prefix caching is on",
        {
            "problem": Says(
                "the engine keeps no prefix and publishes no events", "start it with --enable-prefix-caching"
            ),
            "unknown": Says("the engine's metrics do not say", "look at its command line and log"),
        },
    ),
    "engine.load": Check(
        "engines",
        "the engine's metrics can be read, and tell how busy it is",
        {
            "warning": Says(
                "recommendations know only what was routed to it of late, as far as callers report that",
                "is /metrics open to this machine? SGLang tells with --enable-metrics, TensorRT-LLM with "
                "return_perf_metrics; behind Triton `address` has to be that of its metrics",
            ),
        },
    ),
    "engine.block_size": Check(
        "engines",
        "the engine's block size is that of its events",
        {
            "warning": Says(
                "the service goes by the events, so nothing is to be set. For models with several kinds of attention "
                "the metric shows the smallest group's, or the size before it was adapted; for others it is a sign of "
                "another engine at that address",
                "if the model has one kind of attention, look whether address and endpoint are of one engine",
            ),
            "unknown": Says("no event with tokens was seen, or the metric does not say", "run doctor while it works"),
        },
    ),
    "engine.capacity": Check(
        "engines",
        "the capacity given is the engine's",
        {
            "warning": Says(
                "after a gap that is not healed, too few or too many blocks are believed",
                "set blocks_total to that number",
            ),
            "unknown": Says("the engine's metrics do not say", "vLLM logs it as num_gpu_blocks at its start"),
        },
    ),
    "engine.model": Check(
        "engines",
        "the engine serves the source's model",
        {
            "warning": Says(
                "questions for the model that it serves do not find it",
                "set model as the router's requests name it, or an alias in models.aliases",
            ),
            "unknown": Says("the engine does not list its models to whoever asks", ""),
        },
    ),
    "engine.events": Check(
        "engines",
        "the engine says that it publishes, and with replay where one is named",
        {
            "problem": Says(
                "it publishes no events", "start it with --kv-events-config '{\"enable_kv_cache_events\": true, …}'"
            ),
            "warning": Says(
                "the engine's replay endpoint and the source's do not go together",
                "name it in the source if the engine has one; else give the engine a replay_endpoint",
            ),
            "unknown": Says("it does not say (vLLM from 0.31 on does, at /kv_event_sources)", ""),
        },
    ),
}

_STORE: Final[dict[str, Check]] = {
    "store.reachable": Check(
        "store",
        "the store answers from here",
        {
            "problem": Says(
                "what is known ends with the process, and replicas do not hear of each other",
                "is its address right, does it run, are user and password right?",
            ),
            "unknown": Says(
                "the service does not tell its password, or its address leads elsewhere from here",
                "give it: --redis-url, or KVINDEXER_REDIS__URL in the environment",
            ),
        },
    ),
    "store.fit": Check(
        "store",
        "the store is of a version and policy that serve",
        {
            "problem": Says(
                "the service does not use it: any policy but noeviction drops owners and maps without a word",
                "Redis or Valkey 7.0 or newer, maxmemory-policy noeviction",
            )
        },
    ),
    "store.memory": Check(
        "store",
        "the store has memory left",
        {
            "warning": Says(
                "most of what it may use is used; a full store refuses writes, and the service goes on from memory",
                "give it more memory (kvindexer plan says how much), or lower redis.journal_bytes",
            ),
            "problem": Says("it is about to refuse writes", "give it more memory now (kvindexer plan says how much)"),
        },
    ),
    "store.evicted": Check(
        "store",
        "the store has evicted nothing",
        {
            "problem": Says(
                "keys went under another policy: owners, registrations or maps may be among them",
                "set noeviction; replicas write what they know anew by themselves",
            )
        },
    ),
    "store.persistence": Check(
        "store",
        "the store would survive its own restart",
        {
            "warning": Says(
                "it has written nothing to disk: if store and all replicas go at once, all is learnt anew from the "
                "engines. While a replica lives, it writes all it knows again",
                "appendonly yes, if that matters to you",
            ),
            "problem": Says("its last write to disk failed", "look at the store's log and disk"),
        },
    ),
    "store.clock": Check(
        "store",
        "the store's clock agrees with the one here",
        {"warning": Says("entries that have a time to live end early or late", "run NTP on both machines")},
    ),
    "store.latency": Check(
        "store",
        "the store answers well within redis.timeout_ms",
        {
            "warning": Says(
                "calls will time out under load, and writes wait (lookups do not)",
                "put the store nearer, or raise redis.timeout_ms and redis.lease_s",
            )
        },
    ),
    "store.layout": Check(
        "store",
        "the namespace is laid out as this configuration has it",
        {
            "problem": Says(
                "a replica with these settings does not start on it",
                "use the same redis.partitions everywhere; to begin anew: kvindexer redis reset",
            ),
            "unknown": Says("no replica has used this namespace yet", "is redis.namespace the one of the deployment?"),
        },
    ),
}

_REPLICAS: Final[dict[str, Check]] = {
    "partitions.store": Check(
        "replicas",
        "the service and its store understand each other",
        {
            "problem": Says(
                "answers come from memory, and nothing is kept", "the store's checks say what is wrong with it"
            )
        },
    ),
    "partitions.owned": Check(
        "replicas",
        "each partition has an owner",
        {
            "problem": Says(
                "nobody applies what the engines of these partitions say",
                "start a replica of role collect; a new one takes over after redis.lease_s",
            )
        },
    ),
    "partitions.state": Check(
        "replicas",
        "the replica that was asked has each partition",
        {
            "warning": Says(
                "its answers about sources of these are old or missing",
                "wait while it loads; then kvindexer partitions",
            )
        },
    ),
    "partitions.standby": Check(
        "replicas",
        "each partition has a standby",
        {
            "warning": Says(
                "if its owner dies, nobody has listened along: what the engines say meanwhile is asked of their "
                "replay, or lost",
                "run a second replica of role collect, with redis.standby at 1",
            )
        },
    ),
    "replicas.live": Check(
        "replicas",
        "all replicas were heard of lately",
        {
            "warning": Says(
                "silent, draining or leaving; what a silent one owned goes to others after redis.lease_s",
                "is it meant? kvindexer partitions shows who owns what",
            )
        },
    ),
}

_UNKNOWABLE: Final[dict[str, Check]] = {
    "unknowable.idle_reset": Check(
        "unknowable",
        "whether an idle engine was reset",
        {
            "unknown": Says(
                "an engine whose prefix cache is reset (reset_prefix_cache, sleep, new weights) says so with its next "
                "step, and while it is idle it says nothing: until then it is credited with what it held",
                "whoever resets an engine also calls POST /v1/sources/{pod}/clear (kvindexer sources clear POD)",
            )
        },
        ok=False,
    ),
    "unknowable.last_message": Check(
        "unknowable",
        "whether the last message before a silence was lost",
        {
            "unknown": Says(
                "without a replay endpoint nobody can ask: it is noticed at the engine's next message",
                "give these engines a replay endpoint: then it is noticed within events.probe_interval_s",
            )
        },
        ok=False,
    ),
    "unknowable.full_reports": Check(
        "unknowable",
        "whether clients ask for full reports",
        {
            "unknown": Says(
                "with kv_cache_report_mode an engine announces again what it holds, which looks like a further copy: a "
                "removal then seems not to be the last",
                "if any client uses it, set events.copies to set",
            )
        },
        ok=False,
    ),
}

CHECKS: Final[dict[str, Check]] = {
    **_SERVICE,
    **_SETTINGS,
    **_KUBERNETES,
    **_SOURCES,
    **_ENDPOINTS,
    **_REPLAY,
    **_ENGINES,
    **_STORE,
    **_REPLICAS,
    **_UNKNOWABLE,
}
GROUPS: Final = tuple(dict.fromkeys(check.group for check in CHECKS.values()))
