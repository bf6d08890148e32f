"""Settings of discovery: who tells which engines there are. Everything is off unless it is asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from indexer.model import DEFAULT_TENANT
from indexer.model import Role as SourceRole
from indexer.settings.forms import YEAR_S, Section, Text

PortNumber = Annotated[int, Meta(ge=1, le=65_535)]


class Kubernetes(Section, frozen=True):
    """Pods of a Kubernetes cluster, by a watch; it needs get, list and watch of pods (`k8s/base`).

    What pods say of themselves wins: annotations `kvindexer.io/port`, `events-port`, `replay-port`, `metrics-port`,
    `ranks`, `model`, `role`, `tenant`, `block-size`, `container` and `ignore`, or labels of these names; then the
    arguments of the engine's container; then what it answers to `GET /kv_event_sources`; then what stands here.
    """

    selector: Text | None = None
    """Labels of the engines' pods, as `app=vllm` or `llm-d.ai/role in (prefill, decode)`. null: nobody is looked for.
    """
    namespaces: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    """Where they are; `*` alone: everywhere, which needs a ClusterRole. Empty: in the namespace of this service's pod.
    """
    url: Text | None = None
    """Of the API server; `http://` only to this machine. null: that of the cluster this service's pod is in."""
    token_file: Text | None = None
    """Shown to it; read again each time, as such tokens are replaced. null: that of the pod's service account, unless
    `url` is set."""
    ca_file: Text | None = None
    """Who vouches for it. null: the service account's; or with `url` whoever the system trusts."""
    name: Literal["address", "pod"] = "address"
    """What answers call an engine: `IP:PORT` of its requests, or its pod's name (`NAMESPACE/NAME` where `namespaces`
    has several). The other one is an alias."""
    container: Text | None = None
    """The engine's container where a pod has several, and not exactly one of them has `--kv-events-config`."""
    port: PortNumber = 8000
    """Where an engine takes requests."""
    events_port: PortNumber | None = 5557
    """Where it publishes, at that plus its rank. null: of whom nothing is known is no source."""
    replay_port: PortNumber | None = None
    """Where it can be asked for messages again, likewise; beside `events_port`."""
    ranks: Annotated[int, Meta(ge=1, le=256)] = 1
    """Data-parallel ranks of each engine."""
    model: Text | None = None
    """What it serves."""
    role: SourceRole = "both"
    """What it does of a request. The label `llm-d.ai/role` counts, too."""
    tenant: Text = DEFAULT_TENANT
    """Whose it is."""
    tenant_annotation: bool = False
    """Whether `kvindexer.io/tenant` counts: whoever may start pods would choose."""
    labels: Annotated[tuple[Text, ...], Meta(max_length=16)] = ()
    """Labels of pods that become `labels` of the source."""


class DnsName(Section, frozen=True):
    """What the engines under one name have in common."""

    kind: Literal["a", "srv"] = "a"
    """`a`: each address of the name (A and AAAA), as a headless service has them, is an engine. `srv`: each SRV record
    is one: its port is that of the events, and its target a further name of the pod."""
    family: Literal["any", "ipv4", "ipv6"] = "any"
    """Which addresses are asked for. Engines with an address of both kinds would be two sources each with `any`."""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8_000
    """Where an engine takes requests: the pod is called `IP:PORT`."""
    events_port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """Where it publishes, rank r at so much more: 5557 unless something else is said. 0: the engine is asked
    (`GET /kv_event_sources`, vLLM from 0.31 on), for its ranks and its replay ports, too."""
    replay_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    """Where it replays, rank r at so much more. null: it does not."""
    ranks: Annotated[int, Meta(ge=1, le=256)] = 1
    """Data-parallel ranks of each engine."""
    model: Text | None = None
    """What they serve."""
    role: Literal["prefill", "decode", "both"] = "both"
    """What they do of a request."""
    tenant: Text = DEFAULT_TENANT
    """Whose they are."""
    labels: dict[Text, Text] = {}
    """Words of the operator's own."""

    @property
    def asks_engines(self) -> bool:
        """Whether each engine tells where it publishes."""
        return self.kind == "a" and self.events_port == 0


class Dns(Section, frozen=True):
    """Names whose addresses, or SRV records, are the engines.

    Asked again when an answer's time to live is over. An address that an answer lacks is not ready from then on; a
    server that fails says nothing, and what was known stays.
    """

    names: dict[Text, DnsName] = {}
    """By name, `{}` for the defaults: looked for as the system does (`search` and `ndots` of `/etc/resolv.conf`, not
    `/etc/hosts`), so that `vllm.ns.svc` is one. With a dot at its end it is taken as it is."""
    servers: Annotated[tuple[Text, ...], Meta(max_length=3)] = ()
    """`IP` or `IP:PORT` of name servers, instead of the system's."""
    refresh_min_s: Annotated[float, Meta(ge=0.1, le=3_600)] = 5.0
    """Asked no sooner than that, whatever the time to live."""
    refresh_max_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 30.0
    """And no later."""
    forget_s: Annotated[float, Meta(ge=0, le=YEAR_S)] = 60.0
    """An address that is missing for so long is removed."""


class Discovery(Section, frozen=True):
    """Engines that nobody lists.

    Those that an orchestrator or a name server tells of are registered, origin `discovery`, and go when they are told
    of no more. What a pod of Kubernetes says of itself (annotations `kvindexer.io/…`, its engine's arguments) counts
    before what stands here: see `k8s/README.md`.
    """

    kubernetes: Kubernetes = Kubernetes()
    dns: Dns = Dns()

    @property
    def asked(self) -> tuple[str, ...]:
        """Who is asked for engines, by the names of discoverers."""
        asked = {"kubernetes": self.kubernetes.selector is not None, "dns": bool(self.dns.names)}
        return tuple(name for name, is_asked in asked.items() if is_asked)
