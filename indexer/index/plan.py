"""What events mean: events + reverse map → changes of presence, in the engine's order. Pure.

Rules (DESIGN.md section 2):
  * A dense store of a full-attention group gives its blocks their token hashes, chained from the parent's; the first
    block of a prompt has no parent. Any other store (placeholders, window groups, sparse lists) is placed by equal
    engine hash.
  * A parent that is not known parks its children; they are placed when it comes and never under the root.
  * A removal takes one copy, of its sender, tier and group only, and never cascades.
  * Presence of a token hash is the union over the engine hashes that map to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, assert_never

from indexer.hashing.chain import chained, local_hashes, root_seed
from indexer.hashing.extra_keys import event_extras, is_salted
from indexer.index.lane import SHARDS
from indexer.index.removals import Why
from indexer.index.source import ADAPTER_NAME_MAX, ADAPTERS_MAX
from indexer.model import UNASKABLE, AllCleared, BlocksRemoved, BlocksStored, Skipped, Tier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror
    from indexer.index.reverse_map import Orphan, Waiting
    from indexer.index.source import SourceIndex
    from indexer.model import Event

_MASK = SHARDS - 1
EVENT_KINDS: Final = ("stored", "removed", "cleared")
"""Counters of a source's events applied."""
FAULT_REST_S = 60.0
"""After a fault of ours while entries of a lane were given up for their age."""
ANNOUNCED_AGAIN: Final = 2
"""Blocks in one store that the engine is known to hold: one is recomputed for the last token of a prompt that is held
whole, but more it would have reused."""
RUN_MAX: Final = 128
"""Parked blocks placed in one go."""
HEALED_WITH_A_BATCH: Final = 8_192
"""Parked blocks placed before a batch counts as applied: less than the 20 ms for which the loop may be held.
More wait for the next slice."""
HEALED_IN_A_SLICE: Final = 256
"""And in a slice of housekeeping: under a millisecond."""
_CONTRADICTION = Skipped("group_contradiction", suspect=True)
"""A store that says of its group what no other store of it says."""


class Presence(Protocol):
    """Where changes go: the mirror, or (with a store) the mirror and the journal of absolute values beside it."""

    def add(self, slot: int, lane: int, hashes: Sequence[int], parents: Sequence[int]) -> list[int]:
        """See `Mirror.add`."""
        ...

    def remove(self, slot: int, lane: int, hashes: Sequence[int], why: Why) -> None:
        """See `Mirror.remove`."""
        ...


class Planner:
    """Applies events of any source.

    `on_clear` begins a new generation of a source whose engine says it is empty; `on_fault` is told of faults of ours.
    """

    def __init__(
        self,
        mirror: Mirror,
        presence: Presence,
        on_clear: Callable[[SourceIndex], None],
        on_fault: Callable[[Exception], None],
        *,
        secret: bytes = b"",
        count_copies: bool = True,
    ) -> None:
        self._mirror = mirror
        self._presence = presence
        self._on_clear = on_clear
        self._on_fault = on_fault
        self._secret = secret
        self._count_copies = count_copies
        self.now = 0.0
        """The moment of the batch being applied: only for entries that have a time to live."""
        self._healing_left = 0

    def apply(self, source: SourceIndex, events: Sequence[Event]) -> None:
        """One batch, in order. An event that meets a fault of ours costs only itself, and is told (P11)."""
        self._healing_left = HEALED_WITH_A_BATCH
        for event in events:
            try:
                self._apply_event(source, event)
            except Exception as error:  # noqa: BLE001  counted, logged, and the source is suspect from here on
                self._fault(source, error)
        if source.map.healing:
            self.heal_guarded(source, self._healing_left)

    def heal_guarded(self, source: SourceIndex, most: int) -> None:
        """As `heal`; a fault of ours costs what waits to be placed."""
        try:
            self.heal(source, most)
        except Exception as error:  # noqa: BLE001  the housekeeping of all sources must go on
            source.map.healing.clear()
            self._fault(source, error)

    def expire_guarded(self, source: SourceIndex, lane: Lane, now: float) -> bool:
        """As `expire_slice`; a fault of ours ends this look."""
        try:
            return self.expire_slice(source, lane, now)
        except Exception as error:  # noqa: BLE001  the housekeeping of all sources must go on
            lane.due_at = now + FAULT_REST_S
            self._fault(source, error)
            return True

    def drop_ghosts_guarded(self, source: SourceIndex) -> None:
        """As `drop_ghosts`; after a fault of ours none is told apart any more."""
        try:
            self.drop_ghosts(source)
        except Exception as error:  # noqa: BLE001  the batch is applied all the same
            source.ghosts = None
            self._fault(source, error)

    def _fault(self, source: SourceIndex, error: Exception) -> None:
        source.counters["skipped.fault"] += 1
        source.facts.doubts.add("fault")
        self._on_fault(error)

    def _apply_event(self, source: SourceIndex, event: Event) -> None:
        match event:
            case BlocksStored():
                source.counters["stored"] += not event.continues
                tier = source.tier_events[event.tier]
                tier.stored += not event.continues
                tier.stored_blocks += len(event.hashes)
                tier.stored_at = self.now
                self._stored(source, event)
            case BlocksRemoved():
                source.counters["removed"] += event.events
                tier = source.tier_events[event.tier]
                tier.removed += event.events
                tier.removed_blocks += len(event.hashes)
                tier.removed_at = self.now
                self._removed(source, event.hashes, event.group, event.tier)
            case AllCleared():
                source.counters["cleared"] += 1
                self._on_clear(source)
            case Skipped():
                self._skip(source, event)
            case _:
                assert_never(event)

    # -- stores --------------------------------------------------------------------------------------------------------

    def _stored(self, source: SourceIndex, event: BlocksStored) -> None:
        if not source.learn(event, self._mirror):
            if not event.continues:
                self._skip(source, _CONTRADICTION)
            return
        hashes = event.hashes
        if not hashes:
            source.counters["skipped.empty"] += 1
            return
        lane = source.lane(event.group, event.tier)
        if lane is None:
            self._shortfall(source, "lanes")
        elif event.parent in hashes or len(set(hashes)) != len(hashes):
            self._shortfall(source, "self_reference")
        elif not self._tokens_usable(source, event):
            self._place_by_hash(source, hashes, lane)
        elif event.tier is Tier.GPU:
            self._store_dense(source, event, lane)
        else:
            self._store_elsewhere(source, event, lane)

    def _tokens_usable(self, source: SourceIndex, event: BlocksStored) -> bool:
        """Whether the tokens say which blocks these are: a dense list, in the source's block size, of a main group."""
        size = event.block_size
        if not event.tokens or not event.tokens_ok or not event.is_dense:
            return False
        if event.group not in source.lane_table.main_groups:
            return False
        if source.block_size is None or (source.block_size != size and not source.map.pairs):
            source.block_size = size
        if source.block_size == size:
            return True
        if event.group == source.home_group:
            self._shortfall(source, "block_size_changed")
            source.warnings["block_size"] = f"events name block size {size}, before {source.block_size}"
        return False

    def _store_elsewhere(self, source: SourceIndex, event: BlocksStored, lane: Lane) -> None:
        """Outside the GPU tier an engine hash that is known is the better witness than the tokens.

        Offload events leave out extra keys even of salted blocks. So what is known is placed by hash, and only what
        follows the last known block is chained, from that block on.
        """
        known = [position for position, h in enumerate(event.hashes) if source.map.resolve(h) is not None]
        if not known:
            self._store_dense(source, event, lane)
            return
        first = known[-1] + 1
        self._place_by_hash(source, event.hashes[:first], lane)
        if first < len(event.hashes):
            rest = event.part(first, len(event.hashes))
            self._store_dense(source, rest, lane)

    def _store_dense(self, source: SourceIndex, event: BlocksStored, lane: Lane) -> None:
        lora_name = event.lora_name or source.descriptor.lora_name
        extras = None
        if event.extra_keys is not None or event.lookahead is not None:
            extras = event_extras(
                event.extra_keys,
                event.lookahead,
                blocks=len(event.hashes),
                lora_name=event.lora_name,
                at_root=event.parent is None,
            )
        ahead = len(event.lookahead[0]) if event.lookahead else 0
        if event.tier is Tier.GPU and not source.learn_lookahead(ahead, continues=event.continues):
            self._shortfall(source, "lookahead_changed", counted=not event.continues)
        if lora_name and lora_name not in source.adapters:
            self._learn_adapter(source, lora_name)
        locals_ = local_hashes(event.tokens, event.block_size, lora_name, extras)
        if event.parent is None:
            before, seed = 0, root_seed(event.block_size, self._secret)
            source.note_beginning(salted=is_salted(event.extra_keys, event.lora_name))
        else:
            known = source.map.resolve(event.parent, lane)
            if known is None:
                self._park(source, event, lane, locals_)
                return
            before = seed = known
            self._witness(source, lane, event.parent, known)
        token_hashes = chained(locals_, seed)
        if source.ghosts is not None:
            source.ghosts.note_stored(token_hashes, source.capacity or 0)
        held = self._hold(source, lane, event.hashes, token_hashes, [before, *token_hashes[:-1]])
        self._weigh_again(source, event, lane, held)
        children, unplaced = source.map.children, source.map.unplaced
        if children or unplaced:
            placed = zip(event.hashes, token_hashes, strict=True)
            source.map.healing += [pair for pair in placed if pair[0] in children or pair[0] in unplaced]
            self._healing_left -= self.heal(source, self._healing_left)

    def _weigh_again(self, source: SourceIndex, event: BlocksStored, lane: Lane, held: int) -> None:
        """A store, or a part of one, of blocks of which so many were known to be held."""
        source.held_again = held + (source.held_again if event.continues else 0)
        if source.held_again >= ANNOUNCED_AGAIN and self._count_copies and lane is source.gpu_lane:
            source.doubt_removals()

    def _witness(self, source: SourceIndex, lane: Lane, parent: int, token_hash: int) -> None:
        """A store names its parent: after a kept gap that is news of the parent and of all before it."""
        if source.facts.missed_stores and lane.get(parent) is None:
            self._revive(source, lane, token_hash)
        if source.ghosts is not None:
            source.ghosts.confirm(source.slot, token_hash, self._mirror)

    def _learn_adapter(self, source: SourceIndex, lora_name: str) -> None:
        if lora_name.startswith(UNASKABLE):
            return
        if len(source.adapters) < ADAPTERS_MAX and len(lora_name) <= ADAPTER_NAME_MAX:
            source.adapters[lora_name] = None
        else:
            source.counters["adapters_unlisted"] += 1

    def _revive(self, source: SourceIndex, lane: Lane, token_hash: int) -> None:
        """A store names a parent that this source is not known to hold: its announcement was missed.

        A block is computed on top of all before it, so the parent and its ancestors are there (real streams, fact 6).
        Those that were held before are held again; ancestors are found while any source holds them.
        """
        if self._mirror.holds(source.slot, token_hash):
            return
        gone = source.map.gone_by_token()
        while token_hash and not self._mirror.holds(source.slot, token_hash):
            engine_hash = gone.get(token_hash)
            if engine_hash is None or lane.get(engine_hash) is not None:
                return
            parent = self._mirror.table.parent(token_hash)
            self._hold(source, lane, (engine_hash,), (token_hash,), (parent,))
            source.counters["revived"] += 1
            token_hash = parent

    def _hold(  # noqa: C901  the loop over a store's blocks, and three rare cases after it
        self,
        source: SourceIndex,
        lane: Lane,
        hashes: Sequence[int],
        token_hashes: Sequence[int],
        parents: Sequence[int],
    ) -> int:
        """One more copy of each engine hash on this lane. Returns how many of them it held already."""
        changes, maps = source.changes, lane.maps
        if changes is not None:
            changes.placed.update(hashes)
        known: list[int] = []
        position = 0
        for engine_hash, token_hash in zip(hashes, token_hashes, strict=True):
            shard = maps[engine_hash & _MASK]
            if engine_hash in shard:
                known.append(position)
            else:
                shard[engine_hash] = token_hash
            position += 1
        lane.pairs += position - len(known)
        if known:
            new = self._again(source, lane, known, hashes, token_hashes)
            token_hashes = [token_hashes[position] for position in new]
            parents = [parents[position] for position in new]
        if lane.fresh is not None:
            for engine_hash in hashes:
                lane.fresh[engine_hash & _MASK].add(engine_hash)
        if lane.ttl_s is not None:
            lane.renew(hashes, self.now)
        if token_hashes:
            if changes is not None:
                changes.tokens.update(token_hashes)
            for token_hash in self._presence.add(source.slot, lane.number, token_hashes, parents):
                lane.one_alias_more(token_hash)
        return len(known)

    def _again(
        self,
        source: SourceIndex,
        lane: Lane,
        known: Sequence[int],
        hashes: Sequence[int],
        token_hashes: Sequence[int],
    ) -> list[int]:
        """Copies of what the lane holds already. Returns the positions that are new presence all the same."""
        new = set(range(len(hashes))).difference(known)
        for position in known:
            engine_hash, token_hash = hashes[position], token_hashes[position]
            if lane.get(engine_hash) == token_hash:
                lane.again(engine_hash, count_copies=self._count_copies)
            else:
                self._contradiction(source, lane, engine_hash)
                lane.maps[engine_hash & _MASK][engine_hash] = token_hash
                lane.pairs += 1
                new.add(position)
        return sorted(new)

    def _place_by_hash(self, source: SourceIndex, hashes: Sequence[int], lane: Lane) -> None:
        """Stores that do not say (or must not be trusted to say) which block they are: by equal engine hash."""
        known: list[int] = []
        token_hashes: list[int] = []
        for engine_hash in hashes:
            token_hash = source.map.resolve(engine_hash, lane)
            if token_hash is not None:
                known.append(engine_hash)
                token_hashes.append(token_hash)
                continue
            if source.changes is not None:
                source.changes.waiting.add(engine_hash)
            if not source.map.wait_for_tokens(engine_hash, lane, count_copies=self._count_copies):
                self._shortfall(source, "orphans")
            else:
                source.counters["unplaced"] += 1
        if known:
            self._hold(source, lane, known, token_hashes, [0] * len(known))

    def _park(self, source: SourceIndex, event: BlocksStored, lane: Lane, locals_: Iterable[bytes]) -> None:
        """The parent is unknown: keep local hashes and links until it comes."""
        parent = event.parent or 0
        source.counters["orphaned"] += len(event.hashes)
        if source.changes is not None:
            source.changes.waiting.update(event.hashes)
        for engine_hash, local in zip(event.hashes, locals_, strict=True):
            if not source.map.park(engine_hash, parent, local, lane, count_copies=self._count_copies):
                self._shortfall(source, "orphans")
                return
            parent = engine_hash

    def heal(self, source: SourceIndex, most: int) -> int:
        """Place what waited for blocks that came, and what waited for that: about so many blocks. Returns how many.

        Chains can be as long as `limits.orphans`; what is left goes on waiting, in `ReverseMap.healing`.
        """
        reverse, changes, budget = source.map, source.changes, most
        while reverse.healing and budget > 0:
            engine_hash, token_hash = reverse.healing[-1]
            if changes is not None and engine_hash in reverse.unplaced:
                changes.waiting.add(engine_hash)
            for key, count in reverse.take_unplaced(engine_hash).items():
                self._hold_waiting(source, reverse.lanes[key], [(engine_hash, count, token_hash, 0)])
                budget -= 1
            child = reverse.take_child(engine_hash)
            if child is None:
                reverse.healing.pop()
            else:
                budget -= self._heal_run(source, token_hash, reverse.take_run(child, RUN_MAX))
        if not reverse.healing:
            if changes is not None:
                changes.waiting |= reverse.leaving
            reverse.let_go()
        return most - budget

    def _heal_run(self, source: SourceIndex, parent: int, run: Sequence[tuple[int, Orphan]]) -> int:
        """Place a line of blocks on one lane, the first of which follows `parent`. Returns how many."""
        reverse, lane = source.map, run[0][1].lane
        if source.changes is not None:
            source.changes.waiting.update([engine_hash for engine_hash, _ in run])
        token_hashes = chained([orphan.local for _, orphan in run], parent)
        blocks = zip(token_hashes, [parent, *token_hashes[:-1]], strict=True)
        line = [(engine_hash, orphan.waited, *block) for (engine_hash, orphan), block in zip(run, blocks, strict=True)]
        self._hold_waiting(source, lane, line)
        for engine_hash, _, token_hash, _ in line:
            if engine_hash in reverse.leaving:
                reverse.leaving.discard(engine_hash)
                self._removed(source, (engine_hash,), lane.group, lane.tier)
            if engine_hash in reverse.unplaced or engine_hash in reverse.children:
                reverse.healing.append((engine_hash, token_hash))
        source.counters["healed"] += len(run)
        return len(run)

    def _hold_waiting(self, source: SourceIndex, lane: Lane, line: Sequence[tuple[int, Waiting, int, int]]) -> None:
        """Place what waited on a lane: engine hash, how it waited, its token hash and its parent's.

        What was announced before a kept gap is one doubtful copy, or none beside one that is placed already (P6).
        """
        copies = [source.map.copies_waited(waited) for _, waited, _, _ in line]
        news = [each for each, count in zip(line, copies, strict=True) if count or lane.get(each[0]) is None]
        self._hold(source, lane, [each[0] for each in news], [each[2] for each in news], [each[3] for each in news])
        for (engine_hash, _, token_hash, parent), count in zip(line, copies, strict=True):
            for _ in range(count - 1):
                self._hold(source, lane, (engine_hash,), (token_hash,), (parent,))
        doubtful = {each[0] for each, count in zip(line, copies, strict=True) if not count}
        for engine_hash, _, _, _ in news:
            if engine_hash in doubtful:
                lane.doubt(engine_hash)

    # -- removals ------------------------------------------------------------------------------------------------------

    def _removed(
        self, source: SourceIndex, hashes: Sequence[int], group: int, tier: Tier, why: Why = Why.REMOVED
    ) -> None:
        lane = source.map.lanes.get((group, tier))
        if lane is None:
            source.counters["removed_unknown"] += len(hashes)
            return
        reverse = source.map
        freed, missing = self._drop(source, lane, hashes, why)
        if tier is Tier.GPU and len(missing) < len(hashes):
            source.evicted = source.evicted or bool(freed)
            source.facts.doubts.discard("announced_again")
        if missing and reverse.waiting and source.changes is not None:
            source.changes.waiting.update(missing)
        for engine_hash in missing:
            if not (reverse.waiting and reverse.drop_waiting(engine_hash, lane)):
                source.counters["removed_unknown"] += 1

    def _drop(self, source: SourceIndex, lane: Lane, hashes: Sequence[int], why: Why) -> tuple[list[int], list[int]]:
        """One copy of each went: see `ReverseMap.drop`; what nothing maps to any more is no longer present."""
        changes = source.changes
        if changes is not None:
            changes.placed.update(hashes)
        freed, missing = source.map.drop(lane, hashes)
        if freed:
            if changes is not None:
                changes.tokens.update(freed)
            self._presence.remove(source.slot, lane.number, freed, why)
        return freed, missing

    def drop_ghosts(self, source: SourceIndex) -> None:
        """After a kept gap: give up what the source is believed to hold beyond its capacity."""
        capacity, lane = source.capacity, source.gpu_lane
        if source.ghosts is None or capacity is None or lane is None:
            return
        dropped = source.ghosts.surplus(source.slot, self._mirror, capacity)
        if dropped:
            self._drop(source, lane, dropped, Why.GIVEN_UP)
            source.counters["ghosts_dropped"] += len(dropped)

    def expire_slice(self, source: SourceIndex, lane: Lane, now: float) -> bool:
        """Give up entries of a tier without removals whose time is over; False when it was not time to look."""
        overdue = lane.overdue_slice(now)
        if overdue:
            self._removed(source, overdue, lane.group, lane.tier, Why.EXPIRED)
            source.counters["expired"] += len(overdue)
            source.facts.shortfalls.add("expired")
        return overdue is not None

    # -- doubts --------------------------------------------------------------------------------------------------------

    def _contradiction(self, source: SourceIndex, lane: Lane, engine_hash: int) -> None:
        """One engine hash for two contents means that something was missed.

        The newer announcement wins, the source is suspect.
        """
        source.facts.doubts.add("hash_contradiction")
        source.counters["hash_contradictions"] += 1
        lane.one_copy(engine_hash)
        self._drop(source, lane, (engine_hash,), Why.GIVEN_UP)

    def _skip(self, source: SourceIndex, event: Skipped) -> None:
        source.counters[f"skipped.{event.reason}"] += 1
        if event.suspect:
            source.facts.doubts.add(event.reason)
        else:
            source.facts.shortfalls.add(event.reason)

    def _shortfall(self, source: SourceIndex, reason: str, *, counted: bool = True) -> None:
        """Something announced could not be indexed: answers may say too little from here on."""
        source.counters[f"skipped.{reason}"] += counted
        source.facts.shortfalls.add(reason)
