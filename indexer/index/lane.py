"""One (group, tier) of one source: engine hash → token hash, copies, aliases, and marks of time. Pure.

Copies: engines do not merge equal blocks; each physical copy is announced and removed on
its own, so a hash is gone with its last copy. Only counts above one are stored. After a gap that is kept (P6) an
entry announced before counts as one copy: its removal ends it, its next announcement sets its count to 1; `fresh`
holds those announced since.

Memory: one dict entry and two ints a pair, about 135 bytes (decisions/0005). Everything is cut into 64 pieces, so that
none ever grows for longer than a millisecond at once and a lane that is no longer used can be freed piece by piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from indexer.model import Tier

SHARDS: Final = 64
_MASK: Final = SHARDS - 1
NOT_HELD: Final = -1
CHURN_MIN: Final = 4_096
NEVER: Final = float("inf")

Counts = list[dict[int, int]]
"""Numbers above one, or above none, by hash: cut like the maps."""
NONE: Final[Counts] = [{}] * SHARDS
"""No counts yet: read like any, and replaced before the first is written, since most lanes never have one."""


def _writable(counts: Counts) -> Counts:
    return [{} for _ in range(SHARDS)] if counts is NONE else counts


class Lane:
    """One (group, tier) of one source in one generation. `number` is its lane number in the presence records."""

    __slots__ = (
        "_earliest",
        "_scanned",
        "aliases",
        "churn",
        "compacted",
        "copies",
        "deadlines",
        "due_at",
        "extra_copies",
        "fresh",
        "group",
        "maps",
        "number",
        "pairs",
        "tier",
        "ttl_s",
    )

    def __init__(self, number: int, group: int, tier: Tier, ttl_s: float | None = None) -> None:
        self.number = number
        self.group = group
        self.tier = tier
        self.maps: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        self.copies = NONE
        """Of engine hashes that have more than one."""
        self.extra_copies = 0
        self.aliases = NONE
        """Of token hashes: how many other engine hashes map to them."""
        self.fresh: list[set[int]] | None = None
        self.pairs = 0
        self.churn = 0
        """Entries removed since the pieces were last made compact."""
        self.compacted = 0
        self.ttl_s = ttl_s
        self.deadlines: list[dict[int, float]] | None = None if ttl_s is None else [{} for _ in range(SHARDS)]
        """Only where producers announce no removals: when each entry is given up."""
        self.due_at = NEVER
        self._earliest = NEVER
        self._scanned = 0

    def get(self, engine_hash: int) -> int | None:
        """Token hash, or None when this lane does not hold the engine hash."""
        return self.maps[engine_hash & _MASK].get(engine_hash)

    def count(self, engine_hash: int) -> int:
        """Copies of one engine hash; 0 when not held."""
        if engine_hash not in self.maps[engine_hash & _MASK]:
            return 0
        return self.copies[engine_hash & _MASK].get(engine_hash, 1)

    def items(self) -> Iterator[tuple[int, int]]:
        """All (engine hash, token hash) pairs."""
        for shard in self.maps:
            yield from shard.items()

    def pieces(self) -> Iterator[dict[int, int] | dict[int, float] | set[int]]:
        """All that it keeps, in pieces that hold something."""
        for kind in (self.maps, self.fresh, self.deadlines, self.copies, self.aliases):
            yield from filter(None, kind or ())

    def again(self, engine_hash: int, *, count_copies: bool) -> None:
        """A held engine hash was announced once more.

        One more copy, unless that is its first announcement since a gap.
        """
        if self.fresh is not None:
            fresh = self.fresh[engine_hash & _MASK]
            if engine_hash not in fresh:
                fresh.add(engine_hash)
                return
        if count_copies:
            self.copies = _writable(self.copies)
            copies = self.copies[engine_hash & _MASK]
            copies[engine_hash] = copies.get(engine_hash, 1) + 1
            self.extra_copies += 1

    def one_copy(self, engine_hash: int) -> None:
        """All its copies but one are gone."""
        self.extra_copies -= self.copies[engine_hash & _MASK].pop(engine_hash, 1) - 1

    def set_copies(self, engine_hash: int, count: int) -> None:
        """A held engine hash has so many copies, one at least."""
        self.one_copy(engine_hash)
        if count > 1:
            self.copies = _writable(self.copies)
            self.copies[engine_hash & _MASK][engine_hash] = count
            self.extra_copies += count - 1

    def doubt(self, engine_hash: int) -> None:
        """It was announced before the last kept gap, though it is placed only now."""
        if self.fresh is not None:
            self.fresh[engine_hash & _MASK].discard(engine_hash)

    def alias_count(self, token_hash: int) -> int:
        """How many other engine hashes of this lane map to the token hash."""
        return self.aliases[token_hash & _MASK].get(token_hash, 0)

    def one_alias_more(self, token_hash: int) -> None:
        """Another engine hash of this lane maps to a token hash that it holds already."""
        self.aliases = _writable(self.aliases)
        aliases = self.aliases[token_hash & _MASK]
        aliases[token_hash] = aliases.get(token_hash, 0) + 1

    @property
    def alias_entries(self) -> int:
        """Token hashes to which several engine hashes map."""
        return 0 if self.aliases is NONE else sum(map(len, self.aliases))

    def announced(self, engine_hash: int) -> bool:
        """Whether it was announced since the last kept gap."""
        return self.fresh is None or engine_hash in self.fresh[engine_hash & _MASK]

    def renew(self, engine_hashes: Sequence[int], now: float) -> None:
        """These were announced just now: their time to live begins again."""
        if self.deadlines is None or self.ttl_s is None:
            return
        deadline = now + self.ttl_s
        for engine_hash in engine_hashes:
            self.deadlines[engine_hash & _MASK][engine_hash] = deadline
        self.due_at = min(self.due_at, deadline)

    def resume(self, engine_hashes: Sequence[int], announced: Sequence[float]) -> None:
        """Each of these was last announced at that moment: its time to live goes on."""
        if self.deadlines is None or self.ttl_s is None:
            return
        for engine_hash, moment in zip(engine_hashes, announced, strict=True):
            self.deadlines[engine_hash & _MASK][engine_hash] = moment + self.ttl_s
        self.due_at = min(self.due_at, min(announced, default=NEVER) + self.ttl_s)

    def overdue_slice(self, now: float) -> list[int] | None:
        """Entries of one piece whose time to live is over, with all their copies taken off but the last.

        None when it is not time to look. A look goes over all pieces, then rests a 64th of the time to live.
        """
        if self.deadlines is None or self.ttl_s is None or now < self.due_at:
            return None
        piece = self.deadlines[self._scanned]
        out = [engine_hash for engine_hash, deadline in piece.items() if deadline <= now]
        self._earliest = min(self._earliest, min((d for d in piece.values() if d > now), default=NEVER))
        self._scanned += 1
        if self._scanned == SHARDS:
            self.due_at = max(self._earliest, now + self.ttl_s / SHARDS) if self._earliest < NEVER else NEVER
            self._scanned, self._earliest = 0, NEVER
        for engine_hash in out:
            self.one_copy(engine_hash)
        return out

    def wants_compacting(self) -> bool:
        """A dict never shrinks, and one that lost entries grows as if it still had them."""
        return self.churn > CHURN_MIN and self.churn * 4 > self.pairs

    def compact_slice(self) -> bool:
        """Make one piece compact; True while there is more."""
        if self.compacted < len(self.maps):
            self.maps[self.compacted] = dict(self.maps[self.compacted])
            self.compacted += 1
            return True
        self.churn = self.compacted = 0
        return False

    def forget_counts(self) -> None:
        """A gap is kept: everything announced so far counts as one copy from here on."""
        self.copies = NONE
        self.extra_copies = 0
        self.fresh = [set() for _ in range(SHARDS)]

    def drop_copies(self, engine_hashes: Sequence[int], gone: dict[int, int]) -> tuple[list[int], list[int]]:
        """One copy of each went.

        Returns the token hashes that nothing on this lane maps to any more, and the engine hashes that were not held.
        Mappings whose last copy went are noted in `gone`.
        """
        maps, copies, aliases = self.maps, self.copies, self.aliases
        copied, aliased = self.extra_copies > 0, aliases is not NONE
        freed: list[int] = []
        missing: list[int] = []
        ended = 0
        for engine_hash in engine_hashes:
            if copied and engine_hash in copies[engine_hash & _MASK]:
                self._one_less(engine_hash)
                continue
            token_hash = maps[engine_hash & _MASK].pop(engine_hash, NOT_HELD)
            if token_hash < 0:
                missing.append(engine_hash)
                continue
            ended += 1
            gone[engine_hash] = token_hash
            if aliased and token_hash in aliases[token_hash & _MASK]:
                self._one_alias_less(token_hash)
            else:
                freed.append(token_hash)
        self.pairs -= ended
        self.churn += ended
        if ended and (self.fresh is not None or self.deadlines is not None):
            self._forget_marks(engine_hashes)
        return freed, missing

    def _one_less(self, engine_hash: int) -> None:
        copies = self.copies[engine_hash & _MASK]
        count = copies[engine_hash] - 1
        self.extra_copies -= 1
        if count > 1:
            copies[engine_hash] = count
        else:
            del copies[engine_hash]  # one copy is not stored

    def _one_alias_less(self, token_hash: int) -> None:
        """Another engine hash maps to it still: presence is the union over them (P3)."""
        aliases = self.aliases[token_hash & _MASK]
        others = aliases[token_hash] - 1
        if others:
            aliases[token_hash] = others
        else:
            del aliases[token_hash]

    def _forget_marks(self, engine_hashes: Sequence[int]) -> None:
        for engine_hash in engine_hashes:
            if engine_hash not in self.maps[engine_hash & _MASK]:
                if self.deadlines is not None:
                    self.deadlines[engine_hash & _MASK].pop(engine_hash, None)
                if self.fresh is not None:
                    self.fresh[engine_hash & _MASK].discard(engine_hash)
