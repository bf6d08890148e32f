"""What outlives a process of a source's facts, as bytes: what answers depend on besides its map and the clock. Pure.

    facts   wall time at which the engine was seen connected, us (8; 0: never)
            ‖ stamp of its newest batch, a double (8; NaN: not known) ‖ MessagePack

Ages, the connection and `syncing` are facts of a moment: ticks tell them. Counters and remarks belong to a process and
begin anew. Little-endian.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from indexer.index.ghosts import Ghosts
from indexer.index.group_claims import Claim
from indexer.index.source import Holdings
from indexer.model import GroupInfo, Tier
from indexer.store.failures import DamagedValue

if TYPE_CHECKING:
    from indexer.index.mirror import Mirror
    from indexer.index.source import SourceIndex
    from indexer.ports import Clock

_TIMES: Final = struct.Struct("<Qd")
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Told(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Facts that stand until an event changes them; the defaults are those of a source of which nothing is known.

    `lanes` in the order of their numbers; `open_lanes` are the numbers of those used in this generation, in the order
    of their first use. `era` counts kept gaps. `groups`: number, kind, window, block size. `agreed` and `rivals` as in
    `GroupClaims`.
    """

    complete: bool = False
    missed_stores: bool = False
    evicted: bool = False
    has_ghosts: bool = False
    era: _Count = 0
    most_copies: _Count = 0
    block_size: int | None = None
    lookahead: _Count = 0
    other_lookahead: int | None = None
    home_group: int | None = None
    lanes: list[tuple[int, Tier]] = []
    open_lanes: list[_Count] = []
    groups: list[tuple[int, str | None, int | None, int]] = []
    agreed: list[int] = []
    rivals: list[tuple[int, str | None, int | None]] = []
    adapters: list[str] = []
    shortfalls: list[str] = []
    doubts: list[str] = []
    suspicions: list[str] = []


class Lasting(_Told, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The same, and of which life of the engine this is, where somebody tells.

    Of a source that nobody tells of these fields are left out: as 0.6, which does not know them, writes and reads it.
    """

    life: str = ""
    """As `SourceIndex.life`. Empty: nobody told, or an owner that does not know of lives."""
    life_is_due: bool = False
    began_by_life: bool = False


class StoredFacts(NamedTuple):
    """Facts as they stand in the store. `stamp`: as in `SourceFacts`.

    `seen_us`: until when the owner saw the engine connected, in microseconds of wall time; 0: never. Up to 0.6 this was
    when they were written, which may be later.
    """

    seen_us: int = 0
    stamp: float | None = None
    lasting: Lasting = Lasting()


class TickFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Facts of a moment, ages in milliseconds; None: never."""

    syncing: bool
    proof_age_ms: int | None
    message_age_ms: int | None
    suspicions: list[str]
    holdings: Holdings | None = None
    """For operators: as they are with the owner."""

    @classmethod
    def of(cls, source: SourceIndex, now: float) -> TickFacts:
        """As of `now`."""
        facts = source.facts
        proof_age_ms, message_age_ms = _age_ms(facts.proof_at, now), _age_ms(facts.message_at, now)
        return cls(facts.syncing, proof_age_ms, message_age_ms, sorted(facts.suspicions), source.holdings)

    def pack(self) -> bytes:
        """For `SourceTick.facts`."""
        return _ENCODE(self)

    @classmethod
    def unpack(cls, data: bytes) -> TickFacts:
        """From `SourceTick.facts`. Raises DamagedValue."""
        try:
            return _DECODE_TICK(data)
        except msgspec.MsgspecError as error:
            raise DamagedValue("facts") from error


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Lasting).decode
_DECODE_TICK: Final = msgspec.msgpack.Decoder(TickFacts).decode


def _age_ms(at: float | None, now: float) -> int | None:
    return None if at is None else max(0, math.ceil((now - at) * 1e3))


def seen_us(source: SourceIndex, clock: Clock) -> int:
    """Until when its engine was seen connected, in microseconds of wall time; 0: never."""
    alive_at = source.facts.alive_at
    return 0 if alive_at is None else max(0, clock.wall_us() - round((clock.now() - alive_at) * 1e6))


def pack_facts(source: SourceIndex, seen_us: int) -> bytes:
    """All of a source's facts that last. `seen_us`: as in `StoredFacts`."""
    facts, claims = source.facts, source.claims
    told = _Told(
        complete=facts.complete,
        missed_stores=facts.missed_stores,
        evicted=source.evicted,
        has_ghosts=source.ghosts is not None,
        era=source.map.era,
        most_copies=source.most_copies,
        block_size=source.block_size,
        lookahead=source.lookahead,
        other_lookahead=source.other_lookahead,
        home_group=source.home_group,
        lanes=source.lane_table.lanes,
        open_lanes=[lane.number for lane in source.map.lanes.values()],
        groups=[(group, *info) for group, info in source.groups.items()],
        agreed=sorted(claims.agreed),
        rivals=[(group, *claim) for group, claim in sorted(claims.rivals.items())],
        adapters=list(source.adapters),
        shortfalls=sorted(facts.shortfalls),
        doubts=sorted(facts.doubts),
        suspicions=sorted(facts.suspicions),
    )
    stamp = math.nan if facts.stamp is None else facts.stamp
    if source.life:
        told = Lasting(
            **msgspec.structs.asdict(told),
            life=source.life,
            life_is_due=source.life_is_due,
            began_by_life=source.began_by_life,
        )
    return _TIMES.pack(seen_us, stamp) + _ENCODE(told)


def unpack_facts(data: bytes) -> StoredFacts:
    """The facts in these bytes; of b"", those of a source of which nothing is known. Raises DamagedValue."""
    if not data:
        return StoredFacts()
    try:
        seen_us, stamp = _TIMES.unpack_from(data)
        lasting = _DECODE(memoryview(data)[_TIMES.size :])
    except (struct.error, msgspec.MsgspecError) as error:
        raise DamagedValue("facts") from error
    return StoredFacts(seen_us, None if math.isnan(stamp) else stamp, lasting)


def same_facts(a: bytes, b: bytes) -> bool:
    """Whether they differ in nothing but their two times."""
    return a[_TIMES.size :] == b[_TIMES.size :]


def restore_facts(source: SourceIndex, stored: StoredFacts, mirror: Mirror) -> None:
    """Let a source know what is stored: a new one before its map is restored, or one that follows, again and again.

    Within a generation lanes are only ever added, so older facts name the first of them: a follower may read a state
    before the journal entries that led to it. Raises DamagedValue where they name others.
    """
    lasting, facts = stored.lasting, source.facts
    _restore_lanes(source, lasting)
    facts.complete = lasting.complete
    facts.missed_stores = lasting.missed_stores
    facts.shortfalls = set(lasting.shortfalls)
    facts.doubts = set(lasting.doubts)
    facts.suspicions = set(lasting.suspicions)
    facts.stamp = stored.stamp
    source.block_size = lasting.block_size
    source.lookahead = lasting.lookahead
    source.other_lookahead = lasting.other_lookahead
    source.adapters = dict.fromkeys(lasting.adapters)
    source.evicted = lasting.evicted
    source.most_copies = lasting.most_copies
    source.map.era = lasting.era
    source.groups = {group: GroupInfo(kind, window, size) for group, kind, window, size in lasting.groups}
    source.home_group = lasting.home_group
    source.claims.agreed = set(lasting.agreed)
    source.claims.rivals = {group: Claim(kind, window) for group, kind, window in lasting.rivals}
    if lasting.life:
        source.life, source.life_is_due = lasting.life, lasting.life_is_due
        source.began_by_life = lasting.began_by_life
    source.weigh_groups(mirror)
    gpu = source.gpu_lane
    if lasting.has_ghosts and source.ghosts is None and gpu is not None:
        source.ghosts = Ghosts(
            gpu
        )  # what was seen of late is not stored: nothing is given up before that is known again


def _restore_lanes(source: SourceIndex, lasting: Lasting) -> None:
    table, count = source.lane_table, len(lasting.lanes)
    for lane in lasting.lanes[len(table.lanes) :]:
        table.number(*lane)
    if table.lanes[:count] != lasting.lanes or not all(number < count for number in lasting.open_lanes):
        raise DamagedValue("facts")
    for number in lasting.open_lanes:
        source.lane(*table.lanes[number])
