"""One source: its registration, its facts, its reverse map and its place in the mirror. Pure.

What outlives a generation (what kinds its groups have, its block size, its counters) and what does not (map, slot,
history) are kept apart here, since a restart or clear must be O(1): a new slot, a new map, and nothing else is
touched.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.index.changes import Changes
from indexer.index.counts import ENDED_WAITING, Counts
from indexer.index.ghosts import Ghosts
from indexer.index.group_claims import GroupClaims, claim_of, is_main
from indexer.index.lane import Lane
from indexer.index.records import LANES_MAX, LaneTable
from indexer.index.removals import Why
from indexer.index.reverse_map import ReverseMap
from indexer.index.states import SourceFacts
from indexer.model import FULL_KINDS, WINDOW_KINDS, GroupInfo, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.index.mirror import Mirror
    from indexer.index.served import Served
    from indexer.model import BlocksStored, Descriptor, SourceState


ENDLESS: Final = 1 << 62
"""A window in tokens that no prompt fills."""
ADAPTERS_MAX: Final = 256
"""Adapters known of one source; more are indexed but cannot be asked for by model name."""
ADAPTER_NAME_MAX: Final = 512
"""Characters of a name that is listed; longer ones cannot be asked for either."""
VACATED_IN_A_CROWD: Final = 8_192
"""The same where too many slots wait for the scrub: 5 ms, and whoever clears without end has to store as much first."""
VACATED_AT_ONCE: Final = 32
"""Pairs taken out of the mirror when their generation ends: 30 us, less than storing them took, and little even where
a thousand sources end in one step. The slot goes on at once, so that an engine which clears and fills again without end
takes no slot after the other."""
_OF_THE_STREAM: Final = (
    "suspicions",
    "syncing",
    "connected",
    "cordoned",
    "ready",
    "unready_why",
    "alive_at",
    "message_at",
    "proof_at",
    "may_be_silent",
)
_OF_THE_REGISTRATION: Final = frozenset(
    {
        *("descriptor", "rendezvous_name", "counters", "tier_events"),
        *("life", "life_is_due", "began_by_life"),
        *("warnings", "since", "state_seen", "silent_block_size", "_tier_ttls"),
        *("lives", "served", "_served_in"),
    }
)
SLOTS_WAITING_MIN: Final = 256
"""So many slots, and two more for each source, may wait for the scrub. Beyond, what a generation held is taken out of
the mirror however much it is: masks must not grow with the number of clears (P9). All sources may restart at once."""


class Holdings(NamedTuple):
    """Distinct blocks in each tier, in the order of `Tier`; physical copies over all; blocks that wait to be placed."""

    blocks: tuple[int, ...]
    copies: int
    waiting: int


NEVER_YET: Final = float("-inf")


class TierEvents:
    """What a source's events said of one tier, over all generations: events, their blocks, and when the last came."""

    __slots__ = ("removed", "removed_at", "removed_blocks", "stored", "stored_at", "stored_blocks")

    def __init__(self) -> None:
        self.stored = self.stored_blocks = self.removed = self.removed_blocks = 0
        self.removed_at = self.stored_at = NEVER_YET

    @property
    def last_at(self) -> float | None:
        """When the last of either kind came; None: none did."""
        last_at = max(self.removed_at, self.stored_at)
        return None if last_at == NEVER_YET else last_at


class SourceIndex:
    """All the core knows about one registered source."""

    engine_blocks: int | None = None
    """What the engine itself says that its cache has, where it was asked; counts where nobody gave it."""

    earlier: Counts | None = None
    """What was counted of it by processes before this one."""

    since: float = 0.0
    """When its generation began here."""

    life: str = ""
    """Which engine process whoever runs it says that this is, where somebody does: of which life the generation is, as
    far as the two are known to belong together (`Ingest.learn_life`)."""
    life_is_due = False
    """The stream showed a restart of which nobody has told the new life yet."""
    began_by_life = False
    """This generation began since another life was told, not since the stream showed it."""

    held_again = 0
    """Blocks of the newest store, as far as it is applied, that were known to be held."""

    state_seen: tuple[SourceState, float] = ("new", 0.0)
    """As somebody last looked, once a second at least, and when it was first seen to be that."""

    lives = 0
    """Engine processes that are over, as far as is known."""

    served: Served | None = None
    """What its engine said it serves, this process or one before."""
    _served_in = 0

    def __init__(
        self,
        descriptor: Descriptor,
        mirror: Mirror,
        *,
        generation: int,
        orphans_max: int,
        tier_ttls: Mapping[Tier, float] = MappingProxyType({}),
    ) -> None:
        self.descriptor = descriptor
        self.facts = SourceFacts(generation)
        self.rendezvous_name = b"%b#%d" % (descriptor.pod.encode("utf-8", "surrogatepass"), descriptor.dp_rank)
        """What orders equal scores: the same in every replica, whatever the order of registration."""
        self.lane_table = LaneTable()
        self.groups: dict[int, GroupInfo] = {}
        self.claims = GroupClaims()
        self._told: dict[int, tuple[object, ...]] = {}
        """By group: what its last store said of it, where that was nothing new. Nearly all say the same again."""
        self.home_group: int | None = None
        self.block_size: int | None = None
        self.silent_block_size: int | None = None
        """What prompts are cut into while the engine never spoke, where it need not (`models.approximate`)."""
        self.lookahead = 0
        """Tokens beyond its end that a block's hash covers, as lookups have to ask for it."""
        self.other_lookahead: int | None = None
        self.rules: tuple[tuple[int, GroupInfo], ...] = ()
        """The groups besides the main ones whose hit rule must hold too (sliding windows), by group number."""
        self.adapters: dict[str, None] = {}
        """Of which events told."""
        self.counters: Counter[str] = Counter()
        self.tier_events: tuple[TierEvents, ...] = tuple(TierEvents() for _ in Tier)
        """In the order of `Tier`."""
        self.warnings: dict[str, str] = {}
        self.slot = mirror.open_slot(self.lane_table)
        self.shown = False
        """The mirror has presence of it that the map knows nothing of: another replica has the map."""
        self.told_holdings: Holdings | None = None
        self.ghosts: Ghosts | None = None
        self.most_copies = 0
        """In GPU memory, while nothing was in doubt."""
        self.evicted = False
        """The engine removed blocks of this generation from GPU memory: it is full."""
        self.begins_salted = self.begins_plain = False
        """Beginnings of prompts were announced in this generation with a cache salt, and without."""
        self._orphans_max = orphans_max
        self._tier_ttls = tier_ttls
        self.map = ReverseMap(orphans_max=orphans_max)
        self.changes: Changes | None = None
        """What a writer to a store has to write; None in memory mode."""

    @property
    def shape(self) -> tuple[int, int | None, int, int]:
        """What lookups group sources by: changes seldom."""
        return self.slot, self.asking_size, self.lookahead, len(self.adapters)

    @property
    def model(self) -> str | None:
        """What it serves: as it was registered, else as its engine says."""
        said = self.descriptor.model
        if said is not None:
            return said
        served = self.serves
        return served.names[0] if served is not None and served.names else None

    @property
    def serves(self) -> Served | None:
        """What its engine says it serves, while that is the word of the process that lives."""
        return self.served if self._served_in == self.lives else None

    def learn_served(self, served: Served) -> None:
        """The word of the process that lives now. By `Registry.learn`, which knows the names."""
        self.served, self._served_in = served, self.lives

    def has_adapter(self, name: str) -> bool:
        """Whether events told of it, or its engine lists it."""
        if name in self.adapters:
            return True
        served = self.serves
        return served is not None and name in served.adapters

    def denies_block_size(self, said: int | None) -> bool:
        """Whether its events have blocks of another size than is said. Of several groups what is said is of one."""
        return len(self.groups) <= 1 and None not in {said, self.block_size} and said != self.block_size

    @property
    def asking_size(self) -> int | None:
        """The block size that lookups ask it by: what its events told, or what is assumed while none may ever come."""
        return self.silent_block_size if self.block_size is None and self.facts.is_approximate else self.block_size

    def assume_silent(self, block_size: int) -> None:
        """Its engine may never speak, and holds blocks of that size."""
        self.silent_block_size = block_size
        self.facts.may_be_silent = True

    @property
    def pairs(self) -> int:
        """(engine hash, lane) pairs held."""
        return self.map.pairs

    @property
    def copies(self) -> int:
        """Physical copies over all lanes."""
        return self.holdings.copies

    @property
    def holdings(self) -> Holdings:
        """How much is held. Of a source that another process owns, what that one told last."""
        if self.told_holdings is not None:
            return self.told_holdings
        blocks, copies = [0] * len(Tier), 0
        for lane in self.map.lanes.values():
            blocks[lane.tier] += lane.pairs
            copies += lane.pairs + lane.extra_copies
        return Holdings(tuple(blocks), copies, self.map.waiting)

    def begin_generation(self, mirror: Mirror, generation: int, *, same_engine: bool) -> ReverseMap:
        """Nothing of before counts any more; the old map comes back to be freed in slices. O(1).

        `same_engine`: a clear. Otherwise another process lives there, and what kinds its groups have is told anew.
        """
        self.counters[ENDED_WAITING] += self.map.ended + len(self.map.orphans)
        crowded = mirror.retired_slots() >= SLOTS_WAITING_MIN + 2 * mirror.live_slots.bit_count()
        old, vacated = self.map, self._vacate(mirror, VACATED_IN_A_CROWD if crowded else VACATED_AT_ONCE)
        if not same_engine:
            self._forget_engine()
        if vacated:
            mirror.reopen_slot(self.slot, self.lane_table)
        else:
            mirror.retire(self.slot)
            self.slot = mirror.open_slot(self.lane_table)
            self.shown = False
        self.map = ReverseMap(orphans_max=self._orphans_max)
        if self.changes is not None:
            self.changes = Changes()
        self.facts.forget_history(generation)
        self.ghosts = None
        self.most_copies = 0
        self.evicted = False
        self.begins_salted = self.begins_plain = False
        return old

    def leave(self, mirror: Mirror) -> ReverseMap:
        """The registration ends: nothing of it counts any more; its map comes back to be freed in slices."""
        if self._vacate(mirror, VACATED_AT_ONCE):
            mirror.close_slot(self.slot)
        else:
            mirror.retire(self.slot)
        return self.map

    def stand_as(self, loaded: SourceIndex, mirror: Mirror) -> ReverseMap:
        """Stand as `loaded` does, which was read beside this one and is no more used. O(1).

        Its generation, history, slot and lanes are this one's from now on. Who it is stays, and how its stream is.
        The map of before comes back to be freed in slices.
        """
        old, facts = self.leave(mirror), loaded.facts
        for name in _OF_THE_STREAM:
            setattr(facts, name, getattr(self.facts, name))
        vars(self).update({name: value for name, value in vars(loaded).items() if name not in _OF_THE_REGISTRATION})
        return old

    def _vacate(self, mirror: Mirror, most: int) -> bool:
        """Take out of the mirror what this generation holds, at most so much; False where the slot must retire.

        After a fault of ours, or where another replica has the map, it may not say all that the mirror knows.
        """
        if self.pairs > most or self.shown or "fault" in self.facts.doubts:
            return False
        for lane in self.map.lanes.values():
            if lane.pairs:
                held = [token_hash for piece in lane.maps for token_hash in piece.values()]
                mirror.remove(self.slot, lane.number, held, Why.UNNOTED)
        return True

    def _forget_engine(self) -> None:
        """What only the process before said, its block size too: who hears of the new one alone must know as much."""
        self.lives += 1
        self.block_size = None
        self.lane_table = LaneTable()
        self.groups = {}
        self.claims = GroupClaims()
        self._told.clear()
        self.home_group = None
        self.rules = ()
        self.facts.rule_missing = False
        self.lookahead = 0
        self.other_lookahead = None
        self.adapters = {}
        self.warnings.pop("block_size", None)
        self.warnings.pop("clock", None)

    @property
    def gpu_lane(self) -> Lane | None:
        """The lane of the main group in GPU memory: what an engine's capacity in blocks is about."""
        return self.map.lanes.get((self.home_group or 0, Tier.GPU))

    def keep_gap(self) -> None:
        """Batches are lost and what is known is kept: counts begin again, and some of it may be ghosts."""
        self.map.forget_counts()
        gpu = self.gpu_lane
        if self.ghosts is None and gpu is not None and self.capacity is not None:
            self.ghosts = Ghosts(gpu)
        self.facts.doubts.add("gap")
        self.facts.missed_stores = True

    def note_beginning(self, *, salted: bool) -> None:
        """A prompt's first block was announced."""
        if salted:
            self.begins_salted = True
        else:
            self.begins_plain = True

    def note_copies(self) -> None:
        """Remember the most that was held while nothing was in doubt: an engine that evicts is full."""
        gpu = self.gpu_lane
        if gpu is not None:
            self.most_copies = max(self.most_copies, gpu.pairs + gpu.extra_copies)

    @property
    def capacity(self) -> int | None:
        """Blocks the engine can hold: told, or seen in this generation once it had to evict; None where neither."""
        if self.descriptor.blocks_total is not None:
            return self.descriptor.blocks_total
        if self.engine_blocks is not None:
            return self.engine_blocks
        return self.most_copies if self.most_copies and self.evicted else None

    @property
    def holds_too_much(self) -> bool:
        """Whether it holds more different blocks in GPU memory than its engine can: removals were never announced.

        Or its capacity is set too low. After a kept gap that is expected, and surplus is given up.
        """
        told, gpu = self.descriptor.blocks_total, self.gpu_lane
        return told is not None and gpu is not None and gpu.pairs > told and self.ghosts is None

    def doubt_removals(self) -> None:
        """The engine computed blocks anew that it is known to hold: these were gone, and it never said so.

        Where it takes blocks back, two requests at once may have computed the same; then each is a copy with an end of
        its own. So it is a sign only as long as nothing was ever taken back (decisions/0035).
        """
        if not self.evicted and not self.facts.doubts:
            self.facts.doubts.add("announced_again")

    @property
    def has_unannounced_ends(self) -> bool:
        """Whether it ever stored in a tier whose producers announce no removals: there some may be gone."""
        return any(tier in self._tier_ttls for _, tier in self.lane_table.lanes)

    def may_be_gone(self, by_tier: Sequence[int]) -> bool:
        """Whether some of these blocks, counted by tier, lie in such a tier."""
        return any(by_tier[tier] for tier in self._tier_ttls)

    def lane(self, group: int, tier: Tier) -> Lane | None:
        """The lane, made on first use; None when the source has too many."""
        lane = self.map.lanes.get((group, tier))
        if lane is None:
            number = self.lane_table.number(group, tier)
            if number is None:
                return None
            lane = self.map.lanes[group, tier] = Lane(number, group, tier, self._tier_ttls.get(tier))
        return lane

    def learn_lookahead(self, tokens: int, *, continues: bool) -> bool:
        """A store whose blocks' hashes cover so many tokens beyond their end. True where lookups will find them.

        An engine has one such number. Another one is believed from the second store in a row on (P11), or where
        nothing is held that it could hide. `continues`: a later part of an event, which does not repeat it.
        """
        if continues:
            return tokens == self.lookahead
        if tokens == self.lookahead:
            self.other_lookahead = None
            return True
        if self.other_lookahead == tokens or not self.map.pairs:
            self.lookahead, self.other_lookahead = tokens, None
            return True
        self.other_lookahead = tokens
        return False

    def learn(self, event: BlocksStored, mirror: Mirror) -> bool:
        """Take in what a store tells about its group. Most stores tell nothing new.

        False where it contradicts what the others told: then nothing of the event can be trusted.
        """
        told = event.kind, event.window, event.block_size, event.tier, not event.tokens
        if self._told.get(event.group) == told:
            return True
        self._told.pop(event.group, None)
        known = self.groups.get(event.group)
        if known is None and len(self.groups) >= LANES_MAX:
            return True  # no lane is left for it either
        if known is not None and not self.claims.believes(event, known):
            return False
        kind = event.kind
        if kind is None and known is not None and (claim_of(event).kind is None or is_main(event.group, known.kind)):
            kind = known.kind
        window = event.window if event.window is not None or known is None else known.window
        size_told = known is not None and event.block_size in (0, known.block_size)
        if known is not None and size_told and kind == known.kind and window == known.window:
            if not event.continues:  # a part has not been judged as an event of its own
                self._told[event.group] = told
            return True
        size = event.block_size or (known.block_size if known else 0)
        self.groups[event.group] = GroupInfo(kind, window, size)
        self.weigh_groups(mirror)
        return True

    def weigh_groups(self, mirror: Mirror) -> None:
        """What is known of the groups changed: which of them are the main ones, and which rules hold for the others."""
        full = sorted(group for group, info in self.groups.items() if is_main(group, info.kind))
        if self.home_group not in full:
            self.home_group = full[0] if full else None
        home = self.groups.get(self.home_group) if self.home_group is not None else None
        step = home.block_size if home is not None else 0
        main = tuple(group for group in full if self.groups[group].block_size == step)
        others = sorted(group for group in self.groups if group not in main)
        rules = [(group, _rule_of(self.groups[group], step)) for group in others]
        self.rules = tuple((group, rule) for group, rule in rules if rule is not None)
        self.facts.rule_missing = len(self.rules) < len(others)
        if self.lane_table.set_main_groups(main):
            mirror.book.refresh_slot(self.slot)


def _rule_of(info: GroupInfo, step: int) -> GroupInfo | None:
    """What a group besides the main ones must hold for a hit; None where that is not known.

    Its blocks must lie on the borders of the main group's (`step` tokens): finer ones have no place in a walk. A
    full-attention group of larger blocks must hold everything, like a window without end.
    """
    if not step or not info.block_size or info.block_size % step:
        return None
    if info.kind in FULL_KINDS:
        return info._replace(window=ENDLESS)
    return info if info.kind in WINDOW_KINDS and info.window else None
