"""What name servers said of the engines, over time, and the picture that it comes to. Pure; time is given.

Answers are levels: the order of records and how often one stands in an answer mean nothing. Each question is believed
for itself, by name and family of addresses: one that was not answered changes nothing of what it told before.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.discovery.dns_messages import Kind, Target, normal
from indexer.discovery.event_endpoints import Endpoints, by_rank
from indexer.discovery.found import REMARKS_MAX, Found, Pending, Picture
from indexer.model import Descriptor, SourceId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from indexer.settings.discovery import DnsName

ADDRESSES_MAX: Final = 1_024
"""Of one answer. Beyond: those that were known before, then the least."""
PORT_MAX: Final = 65_535
TARGETS_MAX: Final = 1_024
KNOWN_MAX: Final = 4_096
"""Addresses of one name, those included that are missing. Beyond: who is missing for longest goes, then the last."""
EVENTS_PORT: Final = 5_557
"""vLLM's own default."""
MISSING: Final = "its name server does not name it any more"
_FAMILIES: Final = {"any": (Kind.A, Kind.AAAA), "ipv4": (Kind.A,), "ipv6": (Kind.AAAA,)}


class Seen(NamedTuple):
    """An address that a name has, or had. `missing_since` None: the newest answer has it."""

    address: str
    host: str
    """Whose address it is: the target of an SRV record, else the name itself."""
    events_port: int
    missing_since: float | None


class NameMemory:
    """What is known of one name."""

    def __init__(self, name: str, entry: DnsName, *, forget_s: float) -> None:
        self.name = name
        self.entry = entry
        self.failed = ""
        """Why the newest round of questions came to nothing, for people."""
        self.overfull = False
        """Whether an answer had more than is taken."""
        self._forget_s = forget_s
        self._targets: frozenset[Target] | None = None
        if entry.kind == "a":
            self._targets = frozenset({Target(name, EVENTS_PORT if entry.events_port is None else entry.events_port)})
        self._known: dict[tuple[Target, Kind], dict[str, float | None]] = {}

    @property
    def families(self) -> tuple[Kind, ...]:
        """Kinds of records that addresses are asked for by."""
        return _FAMILIES[self.entry.family]

    @property
    def hosts(self) -> list[str]:
        """Names whose addresses are to be asked for."""
        return sorted({target.name for target in self._targets or ()})

    @property
    def is_whole(self) -> bool:
        """Whether each of its questions was answered once."""
        targets = self._targets
        return targets is not None and all((at, kind) in self._known for at in targets for kind in self.families)

    def take_targets(self, targets: frozenset[Target], now: float) -> None:
        """An SRV answer. Addresses of targets that it lacks are missing from now on."""
        self.overfull = len(targets) > TARGETS_MAX
        kept = sorted(targets, key=lambda target: (target not in (self._targets or ()), target))[:TARGETS_MAX]
        self._targets = frozenset(kept)
        for (target, _), known in list(self._known.items()):
            if target not in self._targets:
                self._miss(known, now)
        self._known = {key: known for key, known in self._known.items() if known or key[0] in self._targets}

    def take_addresses(self, host: str, kind: Kind, addresses: frozenset[str], now: float) -> None:
        """An answer of whole, `host` being one of `hosts`."""
        usable = {address for address in addresses if _is_usable(address)}
        for target in self._targets or ():
            if target.name != host:
                continue
            known = self._known.setdefault((target, kind), {})
            self.overfull = self.overfull or len(usable) > ADDRESSES_MAX
            here = sorted(usable, key=lambda address: (address not in known, address))[:ADDRESSES_MAX]
            self._miss(known, now, but=here)
            known.update(dict.fromkeys(here))
        self._bound()

    def _bound(self) -> None:
        """A name that is answered otherwise each time would be remembered without end."""
        surplus = sum(map(len, self._known.values())) - KNOWN_MAX
        if surplus <= 0:
            return
        every = [
            (since is None, since or 0.0, key, address)
            for key, known in self._known.items()
            for address, since in known.items()
        ]
        missing = sorted(each for each in every if not each[0])
        present = sorted((each for each in every if each[0]), reverse=True)
        self.overfull = self.overfull or surplus > len(missing)
        for _, _, key, address in (missing + present)[:surplus]:
            del self._known[key][address]

    def _miss(self, known: dict[str, float | None], now: float, but: Iterable[str] = ()) -> None:
        """All but these are missing; those that have been for long enough are forgotten."""
        for address in known.keys() - set(but):
            since = known[address]
            if since is None:
                known[address] = now
            elif now - since >= self._forget_s:
                del known[address]

    def seen(self) -> Iterator[Seen]:
        """Every address, in a stable order."""
        for (target, _), known in sorted(self._known.items()):
            for address, since in sorted(known.items()):
                yield Seen(address, target.name, target.port, since)


def picture(memories: Sequence[NameMemory], told: Mapping[str, Mapping[int, Endpoints] | str]) -> Picture:
    """All sources there are. `told`: of engines that are asked, by `IP:PORT`, their ranks, or why they tell none.

    One that was not asked yet is no source, and nothing is to be said of it.
    """
    found: dict[SourceId, Found] = {}
    remarks = {memory.name: remark for memory in memories if (remark := _remark(memory))}
    under: dict[str, str] = {}
    pending: dict[str, Pending] = {}
    for memory, seen, aliases in _standing(memories):
        pod, is_there = pod_of(seen.address, memory.entry.port), seen.missing_since is None
        if pod in under:
            if under[pod] != memory.name and is_there:
                remarks[pod] = f"it is under {under[pod]} and under {memory.name}: the first counts"
            continue
        under[pod] = memory.name
        ranks = told.get(pod) if memory.entry.asks_engines else _by_settings(memory.entry, seen)
        if not isinstance(ranks, dict) and memory.entry.asks_engines:
            pending[pod] = Pending(is_there, "")
        if ranks is None:  # it is asked now
            continue
        if isinstance(ranks, str):
            remarks[pod] = f"where it publishes is not known: {ranks}"
            continue
        for rank, endpoints in ranks.items():
            descriptor = _descriptor(memory.entry, pod, rank, endpoints, aliases)
            found[descriptor.id] = Found(descriptor=descriptor, ready=is_there, why="" if is_there else MISSING)
    return Picture(found, dict(sorted(remarks.items())[:REMARKS_MAX]), pending)


def _remark(memory: NameMemory) -> str:
    if memory.failed:
        return f"asking for it failed ({memory.failed}): what was known stays"
    if memory.overfull:
        return f"it has more than {ADDRESSES_MAX} addresses or targets: the others are no sources"
    if not any(True for _ in memory.seen()):
        return "no address is known under this name"
    return ""


def pod_of(address: str, port: int) -> str:
    """What an engine is called."""
    return f"{_host(address)}:{port}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _is_usable(address: str) -> bool:
    """Whether anybody can be connected to there, whoever asks."""
    where = ipaddress.ip_address(address)
    return not (where.is_unspecified or where.is_multicast or where.is_link_local)


def _standing(memories: Sequence[NameMemory]) -> Iterator[tuple[NameMemory, Seen, tuple[str, ...]]]:
    """What is there, then what is missing; each with its further names, which no other has."""
    present: list[tuple[NameMemory, Seen, tuple[str, ...]]] = []
    missing: list[tuple[NameMemory, Seen, tuple[str, ...]]] = []
    taken: set[str] = set()
    for memory in memories:
        by_host: dict[tuple[str, int], list[Seen]] = {}
        for seen in memory.seen():
            by_host.setdefault((seen.host, seen.events_port), []).append(seen)
        for (host, _), all_seen in by_host.items():
            is_srv = memory.entry.kind == "srv"
            here = [seen for seen in all_seen if seen.missing_since is None]
            gone = [seen for seen in all_seen if seen.missing_since is not None]
            if is_srv and here:  # the name is somebody else's now, and may not stand twice
                here, gone = _of_one_family(here), []
            alone = is_srv and len(here or gone) == 1
            aliases = _aliases(host, memory.entry.port, taken) if alone else ()
            present += [(memory, seen, aliases) for seen in here]
            missing += [(memory, seen, aliases) for seen in gone]
    return iter(present + missing)


def _of_one_family(seen: list[Seen]) -> list[Seen]:
    """A target with addresses of both kinds is one engine."""
    plain = [each for each in seen if ":" not in each.address]
    return plain or seen


def _aliases(host: str, port: int, taken: set[str]) -> tuple[str, ...]:
    new = tuple(name for name in (normal(host), f"{normal(host)}:{port}") if name not in taken)
    taken.update(new)
    return new


def _by_settings(entry: DnsName, seen: Seen) -> dict[int, Endpoints] | str:
    """By rank; or why there are none."""
    if seen.events_port + entry.ranks - 1 > PORT_MAX:
        return f"{entry.ranks} ranks from port {seen.events_port} on go beyond {PORT_MAX}"
    return by_rank(_host(seen.address), seen.events_port, entry.replay_port, range(entry.ranks))


def _descriptor(entry: DnsName, pod: str, rank: int, endpoints: Endpoints, aliases: tuple[str, ...]) -> Descriptor:
    return Descriptor(
        pod=pod,
        dp_rank=rank,
        endpoint=endpoints.endpoint,
        replay_endpoint=endpoints.replay_endpoint,
        model=entry.model,
        tenant=entry.tenant,
        role=entry.role,
        address=pod,
        aliases=aliases,
        labels=dict(entry.labels),
        origin="discovery",
    )
