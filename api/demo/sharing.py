"""Who owns which partition of the store, and who stands by, as one replica tells it. Values only."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class PartitionFacts(msgspec.Struct):
    """What a replica says of a partition, as far as it is shown."""

    partition: int
    state: str = "?"
    owner: str | None = None
    standby: str | None = None


class Sharing(msgspec.Struct):
    """An answer of `GET /v1/partitions`."""

    partitions: list[PartitionFacts] = []

    def owned(self, replica: str) -> int:
        """Partitions that it owns."""
        return sum(each.owner == replica for each in self.partitions)

    def stood_by(self, replica: str) -> int:
        """Partitions of which it listens along."""
        return sum(each.standby == replica for each in self.partitions)

    def is_without(self, replica: str) -> bool:
        """Whether every partition has an owner, another one than this, and is followed."""
        return bool(self.partitions) and all(
            each.owner not in {None, replica} and each.state == "live" for each in self.partitions
        )

    def is_even(self, replicas: Iterable[str], *, stood_by: bool = True) -> bool:
        """Whether all of them own, none more than one partition more than another.

        `stood_by`: and each partition has one of the others as its standby.
        """
        names = set(replicas)
        counts = [self.owned(name) for name in names]
        return (
            sum(counts) == len(self.partitions) > 0
            and max(counts) - min(counts) <= 1
            and all(each.state == "live" for each in self.partitions)
            and (not stood_by or all(each.standby in names - {each.owner} for each in self.partitions))
        )
