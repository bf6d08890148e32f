"""What operators see of partitions, out of plain facts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas.rest import PartitionView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.partitions.options import PartitionProgress
    from indexer.partitions.owner import Owner, Role
    from schemas.rest import PartitionState, Progress


class OwnerFacts(NamedTuple):
    """How far owning one partition is, at one moment.

    `holder`: the replica that owned it when last asked. `epoch` 0: none yet; then `position` says nothing. `age_s`: of
    the newest entry written. `is_held`: its lease runs. `is_lost`: maps of it are written anew.
    """

    partition: int
    role: Role
    holder: str
    epoch: int
    position: str
    age_s: float
    pending_bytes: int
    sources: int
    has_loaded: bool
    is_held: bool
    is_lost: bool


def facts_of(owner: Owner, now: float) -> OwnerFacts:
    """What an owner says of itself; `now` on our clock."""
    return OwnerFacts(
        partition=owner.number,
        role=owner.role,
        holder=owner.holder,
        epoch=owner.position.epoch,
        position=str(owner.position),
        age_s=owner.age_s,
        pending_bytes=owner.pending_bytes,
        sources=len(owner.owned),
        has_loaded=owner.has_loaded,
        is_held=now < owner.lease_until,
        is_lost=any(each.wish == "lost" for each in owner.owned.values()),
    )


def partition_views(
    partitions: int,
    owners: Mapping[int, OwnerFacts],
    followed: Mapping[int, PartitionProgress],
    holders: Mapping[int, str],
) -> list[PartitionView]:
    """Each partition that is owned, tried for or followed here, in their order.

    `holders`: of followed ones, who owns them, as the store said last; empty where nobody.
    """
    return [
        _followed_view(followed[number], holders.get(number)) if number in followed else _owner_view(owners[number])
        for number in range(partitions)
        if number in followed or number in owners
    ]


def partitions_progress(
    partitions: int, owners: Iterable[OwnerFacts], followed: Iterable[PartitionProgress], waiting: int
) -> dict[str, Progress]:
    """For `/readyz`; `waiting`: partitions of which it is not known yet what the store has."""
    roles = [owner.role for owner in owners]
    followed = list(followed)
    return {
        "total": partitions,
        "owned": roles.count("owner"),
        "loading": roles.count("loading") + sum(each.state == "loading" for each in followed),
        "followed": sum(each.state == "following" for each in followed),
        "waiting": waiting,
        "sources_loaded": sum(each.loaded for each in followed),
        "sources_followed": sum(each.sources for each in followed),
    }


def _owner_view(owner: OwnerFacts) -> PartitionView:
    owns = owner.role == "owner"
    return PartitionView(
        partition=owner.partition,
        role="owner" if owns else "none",
        state=_state_of(owner),
        owner=owner.holder or None,
        epoch=owner.epoch or None,
        position=owner.position if owner.epoch else None,
        age_ms=round(owner.age_s * 1000) if owns else None,
        pending_bytes=owner.pending_bytes if owns else None,
        sources=owner.sources,
    )


def _followed_view(followed: PartitionProgress, holder: str | None) -> PartitionView:
    states: dict[str, PartitionState] = {"loading": "loading", "following": "live", "lost": "stale"}
    epoch = followed.position.partition("-")[0]
    return PartitionView(
        partition=followed.partition,
        role="follower",
        state=states[followed.state],
        owner=holder or None,
        epoch=int(epoch) or None,
        position=followed.position if int(epoch) else None,
        age_ms=None if followed.age_s is None else round(followed.age_s * 1000),
        sources=followed.sources,
    )


def _state_of(owner: OwnerFacts) -> PartitionState:
    if owner.role == "loading":
        return "loading"
    if owner.role != "owner":
        return "stale" if owner.has_loaded else "waiting"
    if not owner.is_held:
        return "stale"
    return "asserting" if owner.is_lost else "live"
