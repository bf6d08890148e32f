"""How this replica does, and what it knows of the others: read out of memory for whoever asks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, get_args

from indexer.partitions.views import (
    Around,
    facts_of,
    partition_views,
    partitions_progress,
    replica_views,
)
from indexer.telemetry import StoreHealth
from schemas.rest import PartitionList, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from indexer.partitions.followers import Followers
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts
    from indexer.partitions.sharing import Sharing
    from indexer.partitions.views import OwnerFacts
    from indexer.partitions.watch import Watch
    from schemas.rest import PartitionView, Progress, ReplicaView


class Overview:
    """`holders` tells who owns which partition, as far as is known."""

    def __init__(
        self,
        parts: Parts,
        watch: Watch,
        sharing: Sharing,
        followers: Followers,
        *,
        owners: Mapping[int, Owner],
        holders: Callable[[], Mapping[int, str]],
    ) -> None:
        self._parts = parts
        self._watch = watch
        self._sharing = sharing
        self._followers = followers
        self._owners = owners
        self._holders = holders

    @property
    def waiting_partitions(self) -> int:
        """Of which it is not known yet what the store has."""
        followed = {each.partition for each in self._followers.progress() if each.state == "following"}
        loaded = {number for number, owner in self._owners.items() if owner.has_loaded}
        return self._parts.partitions - len(followed | loaded)

    def progress(self) -> dict[str, Progress | dict[str, Progress]]:
        """For `/readyz`."""
        partitions = partitions_progress(
            self._parts.partitions,
            self._owner_facts().values(),
            self._followers.progress(),
            self.waiting_partitions,
        )
        return {"redis": {"up": self._watch.is_up, "trouble": self._watch.trouble or None}, "partitions": partitions}

    def followed(self) -> dict[str, Progress | dict[str, Progress]]:
        """For `/readyz`, of a replica that follows chosen models: sources of each, and those that are passed over."""
        if self._followers.models is None:
            return {}
        return {"models_followed": {**self._of_models()}, "sources_passed_over": self._others()}

    def _of_models(self) -> dict[str, int]:
        """Sources of each model that is chosen, those that have none, too."""
        found = Counter(source.model for source in self._parts.registry.sources.values())
        return {model: found[model] for model in sorted(self._followers.models or ())}

    def _others(self) -> int:
        """Registered sources that are not followed."""
        return sum(each.passed_over for each in self._followers.progress())

    def listed(self) -> PartitionList:
        """For `GET /v1/partitions`: what is done here with each, by whom elsewhere, and who is there."""
        partitions = self._partitions()
        trouble = self._watch.trouble or None
        return PartitionList(mode="redis", trouble=trouble, partitions=partitions, replicas=self._replicas(partitions))

    def _partitions(self) -> list[PartitionView]:
        membership = self._sharing.membership
        return partition_views(
            self._parts.partitions,
            self._owner_facts(),
            {each.partition: each for each in self._followers.progress()},
            self._sharing.kept(),
            Around(self._holders(), membership.shares, membership.live()),
        )

    def _replicas(self, partitions: Iterable[PartitionView]) -> list[ReplicaView]:
        members, now = self._sharing.membership.members, self._parts.clock.now()
        return replica_views(self._parts.options.name, members, now, partitions)

    def health(self, *, standby_bytes: int, standby_dropped: int) -> StoreHealth:
        """For `/metrics`; what is kept of engines that are listened to, the collector knows."""
        owned = [owner for owner in self._owners.values() if owner.role == "owner"]
        return StoreHealth(
            up=self._watch.is_up,
            owned=len(owned),
            lags_s={owner.number: owner.age_s for owner in owned}
            | {each.partition: each.age_s for each in self._followers.progress() if each.age_s is not None},
            pending_bytes={owner.number: owner.pending_bytes for owner in owned},
            failures=dict(self._parts.client.failures),
            standby=len(self._sharing.listened),
            standby_bytes=standby_bytes,
            standby_dropped=standby_dropped,
            takeovers=dict(self._sharing.takeovers),
            handovers=self._sharing.handovers,
            followed=self._of_models(),
            passed_over=self._others(),
            replicas={**dict.fromkeys(get_args(ReplicaState), 0), **Counter(view.state for view in self._replicas(()))},
        )

    def _owner_facts(self) -> dict[int, OwnerFacts]:
        now = self._parts.clock.now()
        return {number: facts_of(owner, now) for number, owner in self._owners.items()}
