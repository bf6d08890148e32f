"""What operators see of partitions and replicas, out of plain facts. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from schemas.rest import PartitionView, ReplicaView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from indexer.partitions.options import PartitionProgress
    from indexer.partitions.owner import Owner, Role
    from indexer.sharding.members import Member, Members
    from indexer.sharding.rendezvous import Share
    from schemas.rest import PartitionState, Progress, ReplicaState


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


class Kept(NamedTuple):
    """What is kept here of a partition's engines, that are listened to and applied elsewhere."""

    bytes: int
    batches: int
    dropped: int


class Around(NamedTuple):
    """What is known of other replicas. Empty as long as the store told nothing.

    `holders`: who owns a partition, as the store said last; empty where nobody. `shares`: the plan, by partition.
    `members`: what each replica tells of itself.
    """

    holders: Mapping[int, str] = {}
    shares: Sequence[Share] = ()
    members: Mapping[str, Member] = {}


def partition_views(
    partitions: int,
    owners: Mapping[int, OwnerFacts],
    followed: Mapping[int, PartitionProgress],
    kept: Mapping[int, Kept],
    around: Around,
) -> list[PartitionView]:
    """Each partition that is owned, tried for or followed here, in their order. `kept` has those listened along to."""
    views: list[PartitionView] = []
    for number in range(partitions):
        if number in followed:
            view = _followed_view(followed[number], around)
        elif number in owners:
            view = _owner_view(owners[number])
        else:
            continue
        _complete(view, kept.get(number), around)
        views.append(view)
    return views


def replica_views(me: str, members: Members, now: float, partitions: Iterable[PartitionView]) -> list[ReplicaView]:
    """All replicas that are remembered, in the order of their names; `now` on our clock."""
    live = members.live(now)
    everyone = {name: told for name, told in members.everyone(now).items() if not members.is_gone(name, now)}
    silent = {name for name, (_, member) in everyone.items() if name not in live and not member.leaving}
    # What the silent and the leaving said last is old; and of this replica more is known than what it said last.
    partitions = list(partitions)
    owners, standbys = Counter(view.owner for view in partitions), Counter(view.standby for view in partitions)
    return [
        ReplicaView(
            name=name,
            address=member.address,
            state=_replica_state(member, is_silent=name in silent, is_draining=members.is_draining(name)),
            owned=len(member.owned) if name in live and name != me else owners[name],
            standby=standbys[name],
            age_ms=round(age_s * 1000),
            me=name == me,
        )
        for name, (age_s, member) in sorted(everyone.items())
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


def _followed_view(followed: PartitionProgress, around: Around) -> PartitionView:
    states: dict[str, PartitionState] = {"loading": "loading", "following": "live", "lost": "stale"}
    epoch = followed.position.partition("-")[0]
    owner = around.holders.get(followed.partition) or None
    member = None if owner is None else around.members.get(owner)
    return PartitionView(
        partition=followed.partition,
        role="follower",
        state=states[followed.state],
        owner=owner,
        epoch=int(epoch) or None,
        position=followed.position if int(epoch) else None,
        age_ms=None if followed.age_s is None else round(followed.age_s * 1000),
        pending_bytes=None if member is None else member.owned.get(followed.partition),
        sources=followed.sources,
    )


def _complete(view: PartitionView, kept: Kept | None, around: Around) -> None:
    """What does not depend on whether it is followed."""
    if view.partition < len(around.shares):
        view.standby = _standby(view.owner, around.shares[view.partition], around.members)
    if kept is not None and view.role != "owner":
        view.role = "standby"
        view.standby_bytes, view.standby_batches, view.standby_dropped = kept


def _standby(owner: str | None, share: Share, members: Mapping[str, Member]) -> str | None:
    """Who listens along: as planned, or, until a planned move is made, whom it will move to."""
    if owner is not None and share.owner is not None and owner != share.owner:
        return share.owner
    member = None if share.standby is None else members.get(share.standby)
    return share.standby if member is not None and member.stands_by else None


def _replica_state(member: Member, *, is_silent: bool, is_draining: bool) -> ReplicaState:
    if member.leaving:
        return "leaving"
    if is_silent:
        return "silent"
    return "draining" if is_draining else "live"


def _state_of(owner: OwnerFacts) -> PartitionState:
    if owner.role == "loading":
        return "loading"
    if owner.role != "owner":
        return "stale" if owner.has_loaded else "waiting"
    if not owner.is_held:
        return "stale"
    return "asserting" if owner.is_lost else "live"
