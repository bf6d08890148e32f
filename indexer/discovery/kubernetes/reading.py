"""[pure] What a pod says → what is kept of it: where its engine publishes, which process it is, whether it is ready.

Order of belief for ports and ranks: annotations or labels of ours, the container's arguments, what the engine itself
answers, the settings. Which process: the pod's uid with the start and the id of the *engine's* container, so that
another container's restart changes nothing; while that container is down its last process counts, as it may be back
only as another one. An init container is never the engine, be it a sidecar: what serves requests stands among the
containers of a pod.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

import msgspec

from indexer.discovery.kubernetes.arguments import (
    BLOCK_SIZE_MAX,
    NOTHING,
    Arguments,
    Engine,
    read_arguments,
    referenced,
)
from indexer.model import DEFAULT_TENANT, Role
from indexer.settings.ranks import counted_ranks_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from indexer.discovery.kubernetes.pod import Container, ContainerState, ContainerStatus, Pod
    from indexer.settings.discovery import Kubernetes

OURS: Final = "kvindexer.io/"
READ: Final = (
    "block-size",
    "container",
    "events-port",
    "ignore",
    "metrics-port",
    "model",
    "port",
    "ranks",
    "replay-port",
    "role",
    "tenant",
)
"""Annotations or labels of ours that count."""
LEADER_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LLM_D_ROLE: Final = "llm-d.ai/role"
TEXT_MAX: Final = 512
REMARK_CHARACTERS_MAX: Final = 200

_REASON: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_FIELD_OF_MAP: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_ROLES: Final[Mapping[str, Role]] = {**{role: role for role in get_args(Role)}, "prefill-decode": "both"}
_OVER: Final = frozenset({"Succeeded", "Failed"})

Port = int
Ports = tuple[Port, Port | None]
"""Of events and of replay."""


class Life(NamedTuple):
    """Which process the engine's container runs, or ran last."""

    id: str
    started_at: str
    is_running: bool
    why_not: str = ""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's container as the pod tells of it, without any value of its arguments that is not named here."""

    pod: str
    """The name that answers give."""
    address: str
    """Where it tells how busy it is, and takes requests, unless it was said that these differ."""
    asked_at: str
    """Where the engine itself listens."""
    aliases: tuple[str, ...]
    host: str
    """As in a URL."""
    engine: Engine
    model: str | None
    tenant: str
    role: Role
    labels: dict[str, str]
    life: str
    started_at: str
    ready: bool
    why: str
    ranks: tuple[int, ...] | None
    """None: only the engine can tell, or else the settings."""
    tells_ranks: bool
    """Whether they are said, and not what an engine does where nothing is."""
    base: Ports | None
    """Of rank 0. None: only the engine can tell, or else the settings."""
    block_size: int | None = None
    silent: str = ""
    """Why there is nothing to listen to. Empty: there is."""
    may_be_silent: bool = False
    """Its model is one whose engines may announce nothing."""

    @property
    def must_ask(self) -> bool:
        """Whether its engine is to be asked where it publishes."""
        return not self.silent and (self.base is None or self.ranks is None or self.base[0] == 0)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept of a pod."""

    namespace: str
    name: str
    uid: str
    ip: str | None
    shares_ip: bool
    """It has its node's address, as others there may."""
    is_over: bool
    """Its containers ended for good: completed, or evicted."""
    offer: Offer | None
    remarks: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """One object of this name stands at a time."""
        return self.namespace, self.name


class Rules(NamedTuple):
    """What settings say of all pods."""

    settings: Kubernetes
    one_namespace: bool
    """Names of pods are unique."""
    model_aliases: Mapping[str, str]
    learns_models: bool
    silent_models: Collection[str]
    """Whose engines may announce nothing."""


def read(pod: Pod, rules: Rules) -> Reading:
    """Never raises for what stands in a pod."""
    reader = _Reader(pod, rules)
    is_over = pod.status.phase in _OVER
    return Reading(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        ip=pod.status.pod_ip or None,
        shares_ip=bool(pod.spec.host_network),
        is_over=is_over,
        offer=None if is_over or not pod.status.pod_ip else reader.offer(pod.status.pod_ip),
        remarks=tuple(remark[:REMARK_CHARACTERS_MAX] for remark in reader.remarks),
    )


class _Reader:
    """One pod."""

    def __init__(self, pod: Pod, rules: Rules) -> None:
        self._pod = pod
        self._rules = rules
        self._settings = rules.settings
        self._labels = pod.metadata.labels or {}
        self._annotations = pod.metadata.annotations or {}
        self.remarks: list[str] = []

    def offer(self, ip: str) -> Offer | None:
        """None where it is no engine, or not yet."""
        if self._is_left_out():
            return None
        container, arguments = self._engine_container()
        if container is None:
            return None
        life = self._life(container.name)
        if life is None:  # it never ran, so there is no process to tell of
            return None
        self._remark_on_unread()
        return self._offer(ip, container.name, arguments, life)

    def _offer(self, ip: str, container: str, arguments: Arguments, life: Life) -> Offer:
        host = f"[{ip}]" if ":" in ip else ip
        own_port = arguments.port
        port = self._port("port") or own_port or self._settings.port
        if "--port" in arguments.unread and self._own("port") is None:
            self.remarks.append(f"its --port cannot be known from here: {port} is taken (kvindexer.io/port says it)")
        why = self._why_not_ready(container, life)
        model = self._model(arguments)
        return Offer(
            pod=f"{host}:{port}" if self._settings.name == "address" else self._pod_name(),
            address=f"{host}:{self._port('metrics-port') or port}",
            asked_at=f"{host}:{own_port or port}",
            aliases=self._aliases(host, port, own_port),
            host=host,
            engine=arguments.engine or "vllm",
            model=model,
            tenant=self._tenant(),
            role=self._role(),
            labels={name: self._labels[name][:TEXT_MAX] for name in self._settings.labels if name in self._labels},
            life=life.id,
            started_at=life.started_at,
            ready=not why,
            why=why,
            ranks=self._ranks(arguments),
            tells_ranks=arguments.tells_ranks or self._own("ranks") is not None,
            base=self._base(arguments),
            block_size=self._block_size(arguments),
            silent=self._silence(arguments, model),
            may_be_silent=model in self._rules.silent_models,
        )

    # -- which container ----------------------------------------------------------------------------------------------

    def _is_left_out(self) -> bool:
        ignore = self._own("ignore")
        if ignore is not None and ignore not in {"true", "false"}:
            self.remarks.append("kvindexer.io/ignore is true or false")
        if ignore == "true":
            return True
        # A worker of a group serves no requests; what it computes is announced for its leader.
        return ignore != "false" and self._labels.get(LEADER_WORKER_INDEX, "0") != "0"

    def _engine_container(self) -> tuple[Container | None, Arguments]:
        """By annotation, else the one that publishes, else by the settings, else the only one."""
        containers = {container.name: container for container in self._pod.spec.containers}
        named = self._own("container")
        if named is not None:
            if named not in containers:
                self.remarks.append("kvindexer.io/container names none of its containers: no source")
                return None, NOTHING
            return containers[named], self._arguments(containers[named])
        told = {name: self._arguments(container) for name, container in containers.items()}
        publishing = [name for name, arguments in told.items() if arguments.events is not None]
        preferred = self._settings.container
        if len(publishing) == 1:
            chosen = publishing[0]
        elif preferred is not None and preferred in (publishing or containers):
            chosen = preferred
        elif len(containers) == 1:
            chosen = next(iter(containers))
        else:
            several = "several of its containers publish events" if publishing else "none of its containers publishes"
            self.remarks.append(f"{several}: no source; kvindexer.io/container says which one is the engine")
            return None, NOTHING
        return containers[chosen], told[chosen]

    def _arguments(self, container: Container) -> Arguments:
        command, args = container.command or [], container.args or []
        wanted = referenced((*command, *args))
        variables = {}
        for variable in container.env or ():
            if variable.name in wanted:
                value = variable.value
                if value is None and variable.value_from is not None and variable.value_from.field_ref is not None:
                    value = self._field(variable.value_from.field_ref.field_path)
                elif value is None and variable.value_from is None:
                    value = ""
                if value is not None:
                    variables[variable.name] = value
        return read_arguments(command, args, variables)

    def _field(self, path: str) -> str | None:
        """What the downward API makes of the pod's own fields."""
        metadata, status = self._pod.metadata, self._pod.status
        in_map = _FIELD_OF_MAP.fullmatch(path)
        if in_map is not None:
            return (self._labels if in_map[1] == "labels" else self._annotations).get(in_map[2], "")
        return {
            "metadata.name": metadata.name,
            "metadata.namespace": metadata.namespace,
            "metadata.uid": metadata.uid,
            "spec.nodeName": self._pod.spec.node_name,
            "status.hostIP": status.host_ip,
            "status.podIP": status.pod_ip,
        }.get(path)

    # -- which process, and is it ready -------------------------------------------------------------------------------

    def _life(self, container: str) -> Life | None:
        statuses = self._pod.status.container_statuses or ()
        status = next((each for each in statuses if each.name == container), None)
        return None if status is None else _life_of(self._pod.metadata.uid, status)

    def _why_not_ready(self, container: str, life: Life) -> str:
        """Empty where it is."""
        status = self._pod.status
        if self._pod.metadata.deletion_timestamp is not None:
            return "pod is terminating"
        if status.phase != "Running":
            return f"pod is {_plain(status.phase) or 'in no known phase'}"
        if not life.is_running:
            return f"container {container} is not running{life.why_not}"
        ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
        if ready is None or ready.status != "True":
            reason = _plain(status.reason) or (_plain(ready.reason) if ready is not None else "")
            return f"pod is not ready{f' ({reason})' if reason else ''}"
        return ""

    # -- what it is called, and what it serves ------------------------------------------------------------------------

    def _own(self, name: str) -> str | None:
        """An annotation of ours, else a label."""
        value = self._annotations.get(OURS + name, self._labels.get(OURS + name))
        return None if value is None else value.strip()

    def _remark_on_unread(self) -> None:
        """A name that is misspelt would count for nothing, and nobody would know."""
        for key in sorted({*self._annotations, *self._labels}):
            name = key.removeprefix(OURS)
            if key.startswith(OURS) and name not in READ:
                near = difflib.get_close_matches(name[:TEXT_MAX], READ, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                self.remarks.append(f"{key} is nothing that is read{hint}")

    def _pod_name(self) -> str:
        name, namespace = self._pod.metadata.name, self._pod.metadata.namespace
        return name if self._rules.one_namespace else f"{namespace}/{name}"

    def _aliases(self, host: str, port: int, own_port: int | None) -> tuple[str, ...]:
        """Unique whatever other pods there are: one that comes or goes must not rename this one."""
        name, namespace, spec = self._pod.metadata.name, self._pod.metadata.namespace, self._pod.spec
        found = [f"{namespace}/{name}"]
        if self._rules.one_namespace:
            found.append(name)
        if not spec.host_network and spec.subdomain:  # a node's own name is that of all its pods
            host_name = f"{spec.hostname or name}.{spec.subdomain}"
            if self._rules.one_namespace:
                found.append(f"{host_name}:{port}")
            found += [f"{host_name}.{namespace}:{port}", f"{host_name}.{namespace}.svc:{port}"]
        if self._settings.name == "pod":
            found.append(f"{host}:{port}")
        if own_port is not None and own_port != port:
            found.append(f"{host}:{own_port}")
        own = self._pod_name() if self._settings.name == "pod" else ""
        return tuple(each for each in dict.fromkeys(found) if each != own)

    def _model(self, arguments: Arguments) -> str | None:
        told = self._own("model")
        if told is not None and not _is_name(told):
            self.remarks.append("kvindexer.io/model is no name of a model")
            told = None
        names = [name for name in arguments.served or (arguments.model,) if name is not None and _is_name(name)]
        if told is not None and names and told not in names:
            self.remarks.append("its kvindexer.io/model is none of the names that its arguments serve its model under")
        model = told or (names[0] if names else self._settings.model)
        others = [name for name in names if name != model and self._rules.model_aliases.get(name) != model]
        if others and told in {None, *names} and not self._rules.learns_models:
            self.remarks.append("it serves its model under more names: models.discover, or models.aliases has them")
        return model

    def _role(self) -> Role:
        for value, what in ((self._own("role"), f"{OURS}role"), (self._labels.get(LLM_D_ROLE), LLM_D_ROLE)):
            if value is None:
                continue
            role = _ROLES.get(value)
            if role is not None:
                return role
            self.remarks.append(f"{what} is none of {', '.join(_ROLES)}: {self._settings.role} is taken")
            break
        return self._settings.role

    def _tenant(self) -> str:
        told = self._own("tenant")
        if told is None or told == self._settings.tenant:
            return self._settings.tenant
        if not self._settings.tenant_annotation:
            self.remarks.append("kvindexer.io/tenant counts only with discovery.kubernetes.tenant_annotation")
            return self._settings.tenant
        if not _is_name(told):
            self.remarks.append("kvindexer.io/tenant is no name of a tenant")
            return DEFAULT_TENANT
        return told

    def _block_size(self, arguments: Arguments) -> int | None:
        told = self._own("block-size")
        if told is None:
            return arguments.block_size
        if not (told.isascii() and told.isdigit() and len(told) <= 5 and 1 <= int(told) <= BLOCK_SIZE_MAX):  # noqa: PLR2004  digits
            self.remarks.append("kvindexer.io/block-size is no number of tokens")
            return arguments.block_size
        if arguments.block_size not in {None, int(told)}:
            self.remarks.append(f"kvindexer.io/block-size is {told}, and its arguments say {arguments.block_size}")
        return int(told)

    # -- where it publishes -------------------------------------------------------------------------------------------

    def _port(self, name: Literal["port", "metrics-port", "events-port", "replay-port"]) -> int | None:
        told = self._own(name)
        if told is None:
            return None
        if told.isascii() and told.isdigit() and len(told) <= 5 and 1 <= int(told) <= 65_535:  # noqa: PLR2004  a port
            return int(told)
        self.remarks.append(f"kvindexer.io/{name} is no port")
        return None

    def _base(self, arguments: Arguments) -> Ports | None:
        events, told = self._port("events-port"), arguments.events
        of_arguments = None if told is None or told.port is None else (told.port, told.replay_port)
        replay = None if self._own("replay-port") == "none" else self._port("replay-port")
        if events is not None:
            if of_arguments is not None and of_arguments[0] not in {0, events}:
                self.remarks.append(f"kvindexer.io/events-port is {events}, and its arguments say {of_arguments[0]}")
            return events, replay or (of_arguments[1] if of_arguments and self._own("replay-port") is None else None)
        if of_arguments is None:
            return None
        return of_arguments if self._own("replay-port") is None else (of_arguments[0], replay)

    def _ranks(self, arguments: Arguments) -> tuple[int, ...] | None:
        told = self._own("ranks")
        if told is None:
            return arguments.ranks
        ranks = counted_ranks_of(told)
        if ranks is None:
            self.remarks.append("kvindexer.io/ranks is neither a number of ranks nor FIRST-LAST")
            return arguments.ranks
        if arguments.ranks is not None and arguments.events is not None and arguments.ranks != ranks:
            self.remarks.append("its kvindexer.io/ranks are others than its arguments say")
        return ranks

    def _silence(self, arguments: Arguments, model: str | None) -> str:
        told = arguments.events
        if told is None or told.port is not None or self._own("events-port") is not None:
            return ""
        if model is None or model not in self._rules.silent_models:
            self.remarks.append(f"{told.why}: no source")
        return told.why


def _life_of(uid: str, status: ContainerStatus) -> Life | None:
    """None: it never ran."""
    state, last = status.state, status.last_state
    if state is not None and state.running is not None and state.running.started_at:
        return _process(uid, state.running.started_at, status.container_id, is_running=True)
    for ended in _ended(state, last):
        return _process(uid, ended[0], ended[1] or status.container_id, is_running=False, why_not=_why(state))
    return None


def _ended(*states: ContainerState | None) -> Iterator[tuple[str, str | None]]:
    for state in states:
        if state is not None and state.terminated is not None and state.terminated.started_at:
            yield state.terminated.started_at, state.terminated.container_id


def _process(uid: str, started_at: str, container_id: str | None, *, is_running: bool, why_not: str = "") -> Life:
    short = (container_id or "").rpartition("/")[2][:12]
    return Life(f"{uid}/{started_at}/{short}"[:TEXT_MAX], started_at, is_running, why_not)


def _why(state: ContainerState | None) -> str:
    """Reasons are words of the kubelet; what else is told with them may show what a container was given."""
    told = None if state is None else state.waiting or state.terminated
    reason = "" if told is None else _plain(told.reason)
    return f" ({reason})" if reason else ""


def _is_name(text: str) -> bool:
    return 0 < len(text) <= TEXT_MAX and text.isprintable()


def _plain(reason: str | None) -> str:
    return reason if reason is not None and _REASON.fullmatch(reason) else ""
