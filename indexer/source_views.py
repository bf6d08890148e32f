"""Sources and blocks as an operator sees them: facts put into the shapes of schemas/rest.py. No I/O; time is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.index.counts import counts_of
from indexer.index.reverse_map import Orphan
from indexer.model import TIER_NAMES
from indexer.moments import utc_text
from indexer.source_words import listed_warnings, reason_in_words
from indexer.telemetry import blocks_by_tier
from schemas.rest import BlockView, GroupView, SourceLoad, SourceView
from schemas.watch import SourceStatus

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.loads.board import LoadBoard
    from indexer.lookup_view import Prepared
    from indexer.model import SourceId
    from indexer.ports import Clock


def source_view(
    source: SourceIndex,
    view: Prepared,
    clock: Clock,
    registry: Registry,
    *,
    owner: str | None = None,
    followed: bool = False,
    remarks: Sequence[str] = (),
) -> SourceView:
    """All that is known of one source. `owner`: the replica that applies its events; `followed`: it is another one.

    `remarks`: warnings beside those that it has of its own. What is counted of a followed one its owner tells.
    """
    described = source.descriptor
    untold = followed and source.told_holdings is None
    return SourceView(
        pod=described.pod,
        dp_rank=described.dp_rank,
        state=view.state,
        since=since_of(source, view, clock),
        why=reason_in_words(source.facts, view, followed=followed),
        bound=view.bound,
        generation=view.generation,
        sequence=view.sequence,
        lag_ms=view.lag_ms,
        event_age_ms=view.event_age_ms,
        counters={} if followed else dict(sorted(counts_of(source).counters.items())),
        blocks={} if untold else blocks_by_tier(source),
        copies=None if untold else source.holdings.copies,
        blocks_total=source.engine_blocks if described.blocks_total is None else described.blocks_total,
        owner=owner,
        origin=described.origin,
        endpoint=described.endpoint,
        replay_endpoint=described.replay_endpoint,
        model=source.model,
        lora_name=described.lora_name,
        engine=described.engine,
        block_size=source.block_size,
        groups=[GroupView(group=g, kind=info.kind, window=info.window) for g, info in sorted(source.groups.items())],
        role=described.role,
        tenant=described.tenant,
        address=described.address,
        aliases=list(described.aliases),
        labels=dict(described.labels),
        cordoned=source.facts.cordoned,
        ready=source.facts.ready,
        warnings=[*listed_warnings(source, registry).values(), *remarks],
    )


def source_load(source: SourceId, board: LoadBoard, now: float) -> SourceLoad | None:
    """How busy its engine is; None where nothing tells."""
    known = board.known(source, now)
    if known is not None:
        return SourceLoad(
            source="metrics",
            running=known.running,
            waiting=known.waiting,
            kv_usage=known.kv_usage,
            unseen=known.unseen,
            age_ms=round(known.age_s * 1e3),
        )
    routed = board.receipts.open(source)
    if not routed:
        return None
    return SourceLoad(source="receipts", running=None, waiting=None, kv_usage=None, unseen=routed, age_ms=None)


def source_status(source: SourceIndex, view: Prepared) -> SourceStatus:
    """What a router must know of a source at once."""
    described = source.descriptor
    return SourceStatus(
        described.pod,
        described.dp_rank,
        view.state,
        view.bound,
        view.generation,
        source.facts.cordoned,
        source.model,
        described.address,
        described.role,
        described.tenant,
        source.facts.ready,
    )


def block_views(source: SourceIndex, mirror: Mirror, wanted: int) -> Generator[None, None, list[BlockView]]:
    """Entries under that hash, read as an engine hash and as a token hash. Scans the source's map: for operators.

    A generator that returns them; between its steps others may run. Batches may be applied meanwhile: what is shown of
    an entry is as of the moment when it is found.
    """
    found: dict[tuple[int, int], list[tuple[Lane, int]]] = {}
    for lane in list(source.map.lanes.values()):
        token_hash = lane.get(wanted)
        if token_hash is not None:
            found.setdefault((lane.group, wanted), []).append((lane, token_hash))
        for engine_hash in (yield from _engine_hashes_of(lane, wanted)):
            if engine_hash != wanted:
                found.setdefault((lane.group, engine_hash), []).append((lane, wanted))
    views = []
    for (_, engine_hash), lanes in found.items():
        lane, token_hash = lanes[0]
        parent = mirror.table.parent(token_hash)
        parents = (yield from _engine_hashes_of(lane, parent)) if parent else []
        views.append(_block_view(source, engine_hash, lanes, parents[0] if parents else None))
    orphan = source.map.orphans.get(wanted)
    if orphan is not None:
        views.append(_orphan_view(source, wanted, orphan))
    return views


def _engine_hashes_of(lane: Lane, token_hash: int) -> Generator[None, None, list[int]]:
    """The map is kept the other way round: all pieces are looked through, one a step."""
    found: list[int] = []
    for piece in lane.maps:
        if token_hash in piece.values():
            found += [engine_hash for engine_hash, held in piece.items() if held == token_hash]
        yield
    return found


def _block_view(source: SourceIndex, engine_hash: int, lanes: list[tuple[Lane, int]], parent: int | None) -> BlockView:
    lane, token_hash = lanes[0]
    return BlockView(
        pod=source.descriptor.pod,
        dp_rank=source.descriptor.dp_rank,
        engine_hash=f"{engine_hash:016x}",
        token_hash=f"{token_hash:016x}",
        group=lane.group,
        tiers=[TIER_NAMES[each.tier] for each, _ in lanes],
        copies={TIER_NAMES[each.tier]: each.count(engine_hash) for each, _ in lanes},
        parent=None if parent is None else f"{parent:016x}",
    )


def _orphan_view(source: SourceIndex, engine_hash: int, orphan: Orphan) -> BlockView:
    tier = TIER_NAMES[orphan.lane.tier]
    return BlockView(
        pod=source.descriptor.pod,
        dp_rank=source.descriptor.dp_rank,
        engine_hash=f"{engine_hash:016x}",
        token_hash=None,
        group=orphan.lane.group,
        tiers=[tier],
        copies={tier: max(1, orphan.waited.copies)},
        parent=f"{orphan.parent:016x}",
    )


def since_of(source: SourceIndex, view: Prepared, clock: Clock) -> str:
    """When its present state began, or its generation where that was later, UTC, RFC 3339.

    Of one that fell silent: when it was last seen up.
    """
    alive_at = source.facts.alive_at
    began = max(source.since, source.state_seen[1])
    if view.state in {"stale", "down"} and alive_at is not None:
        began = alive_at
    return utc_text(clock.wall_us() / 1e6 - (clock.now() - began))
