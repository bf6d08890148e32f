"""What a store shows from outside while replicas write: who may, and that nothing is written twice or in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indexer.store.entries import Position
from indexer.store.layout import PartitionKeys, tags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from indexer.model import SourceId


class StoreWitness:
    """`client` is a blocking one. Whoever takes something out of the store says so with `forget`."""

    def __init__(self, client: Any, partitions: int, sources: Iterable[tuple[int, SourceId]]) -> None:  # noqa: ANN401  any client
        self._client = client
        self.keys = [PartitionKeys("kvi", tag) for tag in tags(partitions)]
        self._sources = list(sources)
        self.forget()

    def forget(self) -> None:
        """What was there counts no more."""
        self._tokens: dict[tuple[int, int], bytes] = {}
        self._ends: dict[int, Position] = {}
        self._cursors: dict[SourceId, tuple[int, int]] = {}

    def look(self) -> None:
        """Everything written since the last look. Fails where something of it may not be."""
        for number, keys in enumerate(self.keys):
            self._look_at_tokens(number, keys)
            self._look_at_journal(number, keys)
        for number, source in self._sources:
            self._look_at_cursor(self.keys[number], source)

    def owner(self, number: int) -> str:
        """The replica whose lease runs; empty where there is none."""
        token: bytes = self._client.get(self.keys[number].owner) or b""
        epoch, _, rest = token.partition(b":")
        return rest.partition(b":")[0].decode() if epoch.isdigit() else ""

    def owners(self) -> list[str]:
        """Of all partitions."""
        return [self.owner(number) for number in range(len(self.keys))]

    def generations(self) -> dict[SourceId, int]:
        """Of all sources that the store has now."""
        self.look()
        return {source: generation for source, (generation, _) in self._cursors.items()}

    def _look_at_tokens(self, number: int, keys: PartitionKeys) -> None:
        """An epoch is given to one."""
        for token in self._client.mget(keys.epoch, keys.owner):
            epoch = (token or b"").partition(b":")[0]
            if epoch.isdigit():  # else it is reserved, or nobody's
                assert self._tokens.setdefault((number, int(epoch)), token) == token, f"partition {number}"

    def _look_at_journal(self, number: int, keys: PartitionKeys) -> None:
        """Entries of an epoch are numbered without a gap, and the first says which one it goes on from."""
        last = self._ends.get(number)
        for entry_id, fields in self._client.xrange(keys.log, b"-" if last is None else f"({last}".encode()):
            position = Position.parse(entry_id)
            if position.number == 1:
                after = Position.parse(fields[b"a"])
                assert after < position, f"partition {number}: {position} after {after}"
                assert last in {None, after}, f"partition {number}: {position} after {after}, but the last was {last}"
            else:
                assert last is None or position == last.next, f"partition {number}: {position} after {last}"
            last = position
        if last is not None:
            self._ends[number] = last

    def _look_at_cursor(self, keys: PartitionKeys, source: SourceId) -> None:
        """Generations grow, and within one no batch is taken back."""
        generation, cursor = self._client.hmget(keys.source(source), "generation", "cursor")
        if generation is None:
            return
        now = int(generation), -1 if cursor is None else int(cursor)
        before = self._cursors.get(source, (0, -1))
        assert now >= before, f"{source}: {now} after {before}"
        self._cursors[source] = now
