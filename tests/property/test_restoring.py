"""A source that comes back from what was written of it behaves as the one that was never away.

The same stream goes to a reference and to one that is restarted again and again from its fields and facts. What is not
written is taken from the reference at each restart, too (`forget_what_is_not_written`), so that everything else must be
equal: maps, copies, marks, waiting, presence, facts and answers. A follower that loads and follows the journal must
show the same presence at all times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import ingest
from indexer.index import plan
from indexer.index.changes import Changes
from indexer.index.mirror import Mirror
from indexer.index.source import SourceIndex
from indexer.model import Tier
from indexer.store.entries import SourceChange, pack_presence, unpack_presence
from indexer.store.facts import pack_facts, restore_facts, same_facts, unpack_facts
from indexer.store.maps import Restoring, Showing, encode_all, encode_changes, encode_presence, show_change
from tests.support.core import Core, Speaker, check_mirror, table_holders
from tests.support.core_events import BLOCK, CLEARED, placeholder, prompt, removed, stored
from tests.support.core_streams import (
    LAYOUTS,
    MIXED,
    REMOVED,
    STORED,
    TRUNKS,
    Chain,
    Contents,
    Removal,
    Store,
    removal_event,
    store_event,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.index.reverse_map import ReverseMap
    from tests.support.core_options import CoreOptions

TTLS: Final = ({Tier.STORAGE: 100.0}, {Tier.STORAGE: 100.0, Tier.CPU: 70.0})
STEP_S: Final = 30.25
"""No entry is of an age at which half a second matters."""
ROOMY: Final = 1_000_000
"""Blocks: no engine is ever full here. Which ghosts are given up depends on what was seen of late, and that is not
written; such a source is `suspect` and its bound `estimate`, before and after."""
SEED: Final = "seed"


@dataclass
class Life:
    """One core with one engine, what was written of it, and a follower."""

    options: CoreOptions
    core: Core = field(init=False)
    speaker: Speaker = field(init=False)
    written: dict[bytes, bytes] = field(default_factory=dict)
    facts: bytes = b""
    generation: int = 0
    last_told: list[tuple[int, int]] = field(default_factory=list)
    follower: tuple[Mirror, SourceIndex] = field(init=False)

    def __post_init__(self) -> None:
        self.core = Core(**self.options)
        self.speaker = self.core.engine(blocks_total=ROOMY)
        self.source.changes = Changes()
        self.generation = self.source.facts.generation
        self.follower = self._new_follower()

    @property
    def source(self) -> SourceIndex:
        return self.speaker.source

    @property
    def wall_ahead_s(self) -> float:
        return self.core.clock.wall_ahead_s

    def write(self) -> None:
        """As an owner does: what changed since the last time."""
        source, changes = self.source, self.source.changes
        assert changes is not None
        source.changes = Changes()
        before, self.facts = self.facts, pack_facts(source, self.core.clock.wall_us())
        if source.facts.generation != self.generation:
            self.generation = source.facts.generation
            self.written.clear()
            before, self.last_told, self.follower = b"", [], self._new_follower()
        for name, value in encode_changes(source, changes, self.core.mirror, self.wall_ahead_s).items():
            if value is None:
                self.written.pop(name, None)
            else:
                self.written[name] = value
        held = list(encode_presence(source, self.core.mirror, changes.tokens).items())
        told = unpack_presence(SourceChange(b"", 1, 0, b"", *pack_presence(held)))
        assert told == held
        self._check_followers(before, told)
        self.last_told = told

    def _check_followers(self, before: bytes, told: list[tuple[int, int]]) -> None:
        """One that follows; one that read the facts before the map and the entry; one that read all before it."""
        entry = (self.facts, told)
        followers = [(self.follower, [entry])]
        for read, entries in ((before, [entry]), (self.facts, [(before, self.last_told), entry])):
            mirror, shown = follower = self._new_follower()
            restore_facts(shown, unpack_facts(read), mirror)
            Showing(mirror, shown.slot, shown.lane_table).take(self.written)
            followers.append((follower, entries))
        source = self.source
        for (mirror, shown), entries in followers:
            for facts, presences in entries:
                restore_facts(shown, unpack_facts(facts), mirror)
                show_change(mirror, shown.slot, shown.lane_table, presences)
            assert presence(self.core.mirror, source) == presence(mirror, shown)
            assert source.shape[1:] == shown.shape[1:]
            assert (source.rules, source.facts.rule_missing) == (shown.rules, shown.facts.rule_missing)

    def _new_follower(self) -> tuple[Mirror, SourceIndex]:
        mirror = Mirror()
        return mirror, SourceIndex(self.source.descriptor, mirror, generation=1, orphans_max=0)

    def restarted(self) -> Life:
        """Another process with what was written; how the stream stands is a matter of the cursor."""
        life = Life(self.options)
        old, new = self.source, life.source
        life.core.clock.at = self.core.clock.at
        life.speaker.next_sequence = self.speaker.next_sequence
        restore_facts(new, unpack_facts(self.facts), life.core.mirror)
        restoring = Restoring(new, life.core.mirror, life.core.clock.now(), life.wall_ahead_s)
        fields = list(self.written.items())
        for part in (fields[::2], fields[1::2], fields[:5]):
            restoring.take(dict(part))
        restoring.finish()
        assert not restoring.is_undated
        for name in ("generation", "sequence", "message_at", "proof_at", "alive_at", "syncing"):
            setattr(new.facts, name, getattr(old.facts, name))
        life.core.ingest._last_generation = self.core.ingest._last_generation
        life.core.ingest._note_waiting(new)
        life.core.ingest.touched(new)
        life.core.ingest.reshaped(new)
        life.written = dict(self.written)
        life.generation = self.generation
        life.facts, life.follower, life.last_told = self.facts, self.follower, self.last_told
        life.write()
        return life


def forget_what_is_not_written(life: Life) -> None:
    """All that a restart loses."""
    reverse = life.source.map
    reverse._gone.clear()
    reverse._gone_before.clear()
    healing = [(h, token) for h, token in reverse.healing if reverse.resolve(h) is not None]
    reverse.healing = [(h, token) for h, token in healing if h not in reverse.orphans]
    if not reverse.healing:
        assert life.source.changes is not None
        life.source.changes.waiting |= reverse.leaving
        reverse.let_go()
    life.core.ingest._note_waiting(life.source)
    life.core.ingest.touched(life.source)
    life.write()


def presence(mirror: Mirror, source: SourceIndex) -> dict[int, int]:
    """Token hash to lanes, of one slot."""
    held = {h: mirror.book.records[rid].lanes_of(source.slot) for h, rid in table_holders(mirror).items()}
    return {h: lanes for h, lanes in held.items() if lanes}


def parents(mirror: Mirror) -> dict[int, int]:
    """Of all that is held."""
    return {token_hash: mirror.table.parent(token_hash) for token_hash in table_holders(mirror)}


def of_map(reverse: ReverseMap) -> dict[str, Any]:
    """All that matters of a map. Order matters only where a look goes through all lanes."""
    lanes = reverse.lanes
    return {
        "era": reverse.era,
        "lanes": [(key, lane.number) for key, lane in lanes.items()],
        "placed": {
            key: {h: (token, lane.count(h), lane.announced(h)) for h, token in lane.items()}
            for key, lane in lanes.items()
        },
        "counts": {key: (lane.pairs, lane.extra_copies) for key, lane in lanes.items()},
        "aliases": {key: {h: n for piece in lane.aliases for h, n in piece.items()} for key, lane in lanes.items()},
        "parked": {
            h: (orphan.parent, orphan.local, orphan.lane.group, orphan.lane.tier, reverse.copies_waited(orphan.waited))
            for h, orphan in reverse.orphans.items()
        },
        "children": {h: set(children) for h, children in reverse.children.items()},
        "unplaced": {
            h: {key: reverse.copies_waited(count) for key, count in waiting.items()}
            for h, waiting in reverse.unplaced.items()
        },
        "leaving": reverse.leaving,
    }


def deadlines(reverse: ReverseMap) -> list[dict[int, float]]:
    """Of all lanes, piece by piece."""
    return [dict(piece) for lane in reverse.lanes.values() for piece in lane.deadlines or []]


def of_answers(life: Life, queries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is answered, but for the generation's name."""
    entries = [msgspec.to_builtins(life.core.ask(**query)["pod"]) for query in queries]
    return [{key: value for key, value in entry.items() if key != "generation"} for entry in entries]


def assert_alike(reference: Life, restarted: Life, queries: Sequence[Mapping[str, Any]]) -> None:
    """Everything, once nothing is under way."""
    for life in (reference, restarted):
        check_mirror(life.core.mirror)
        all_fields = {
            change.field: change.value
            for step in encode_all(life.source, life.core.mirror, life.wall_ahead_s)
            for change in step
        }
        assert set(all_fields) == set(life.written)
    if reference.source.map.healing or restarted.source.map.healing:
        return
    assert of_map(reference.source.map) == of_map(restarted.source.map)
    for one, other in zip(deadlines(reference.source.map), deadlines(restarted.source.map), strict=True):
        assert one == pytest.approx(other, rel=0, abs=0.501)
    assert presence(reference.core.mirror, reference.source) == presence(restarted.core.mirror, restarted.source)
    assert parents(reference.core.mirror) == parents(restarted.core.mirror)
    assert same_facts(reference.facts, restarted.facts)
    assert of_answers(reference, queries) == of_answers(restarted, queries)


class Story:
    """Both lives, told the same."""

    def __init__(self, options: CoreOptions, queries: Sequence[Mapping[str, Any]]) -> None:
        self.reference = Life(options)
        self.restarted = Life(options)
        self.queries = queries

    def batch(self, *events: object) -> None:
        for life in (self.reference, self.restarted):
            life.speaker.say(*events)

    def trouble(self, what: str) -> None:
        """What happens to the source besides batches."""
        for life in (self.reference, self.restarted):
            if what == "gap" and life.speaker.sink.cursor is not None:
                life.speaker.lose()
                life.speaker.gap()
            elif what == "other engine":
                life.speaker.restart()
            elif what == "operator":
                life.core.ingest.clear(life.speaker.sink)
            elif what == "time":
                life.core.clock.at += STEP_S
                life.core.tidy()
                life.core.alive()

    def heal(self, slices: int) -> None:
        for life in (self.reference, self.restarted):
            for _ in range(slices):
                if life.core.ingest._healing:
                    life.core.ingest._heal_slice()

    def written(self) -> None:
        """All that happened so far is written; both are alike."""
        self.reference.write()
        self.restarted.write()
        assert_alike(self.reference, self.restarted, self.queries)

    def restart(self) -> None:
        self.restarted = self.restarted.restarted()
        forget_what_is_not_written(self.reference)
        assert_alike(self.reference, self.restarted, self.queries)

    def end(self) -> None:
        for life in (self.reference, self.restarted):
            life.core.tidy()
        self.written()
        assert not self.reference.source.map.healing
        assert not self.restarted.source.map.healing


# -- any stream --------------------------------------------------------------------------------------------------------

troubles = st.sampled_from(["gap", "gap", "gap", "operator", "other engine", "time"])
steps = st.lists(st.one_of(STORED, STORED, REMOVED, MIXED, troubles, st.just("restart")), max_size=14)


def event_of(operation: Store | Removal | str, contents: Contents, layout: str) -> object:
    """As it stands on the wire. Parents may be anything: unknown, or not held."""
    if isinstance(operation, Store):
        return store_event(operation, contents, SEED, LAYOUTS[layout], lambda *_: False).event
    if isinstance(operation, Removal):
        return removal_event(operation, contents, SEED, LAYOUTS[layout]).event
    return {
        "clear": CLEARED,
        "nothing": stored([], [1, 2, 3, 4], group_idx=0),
        "unknown": {"type": "BlocksTeleported", "block_hashes": [1]},
        "broken": stored(["no hash"], [1, 2, 3, 4]),
    }[operation]


@given(steps=steps, layout=st.sampled_from(sorted(LAYOUTS)), count_copies=st.booleans(), ttls=st.sampled_from(TTLS))
def test_a_restart_changes_nothing(
    steps: list[list[Any] | str], layout: str, count_copies: bool, ttls: dict[Tier, float]
) -> None:
    """Of a stream with every kind of event, gaps, clears, another engine and entries with a time to live."""
    queries = [Chain(flavour, trunk).query(1) for flavour in ("plain", "adapter", "salt") for trunk in TRUNKS]
    contents = Contents()
    story = Story({"count_copies": count_copies, "tier_ttls": ttls}, queries)
    for step in steps:
        if step == "restart":
            story.restart()
        elif isinstance(step, str):
            story.trouble(step)
        else:
            story.batch(*(event_of(operation, contents, layout) for operation in step))
        story.written()
    story.restart()
    story.end()


# -- chains that are placed slice by slice ----------------------------------------------------------------------------

PARENTS: Final = (0, 0, 1, 2, 3, 2, 5, 6, 3, 8, 1)
"""Of blocks 1..10: a tree with forks, block 1 the root."""
numbers = st.integers(1, 10)
chain_steps = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.sampled_from(["store", "store", "store", "remove", "place", "place", "evict"]), numbers),
            st.tuples(st.sampled_from(["gap", "clear", "restart", "restart"]), st.just(0)),
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


def path(block: int) -> list[int]:
    """The prompt that ends with it."""
    return [*path(PARENTS[block]), *prompt(1, block * BLOCK)] if block else []


def chain_event(what: str, block: int) -> object:
    """As it stands on the wire."""
    if what == "store":
        return stored([block], prompt(1, block * BLOCK), PARENTS[block] or None)
    if what == "place":
        return placeholder([block], "GPU" if block % 2 else "CPU")
    return CLEARED if what == "clear" else removed(block, medium="CPU" if what == "evict" else "GPU")


@given(chain_steps)
def test_a_restart_while_chains_are_placed_changes_nothing(steps: list[tuple[tuple[str, int], int]]) -> None:
    """Blocks wait, some are placed, some leave in their turn; nothing of it is lost or claimed wrongly."""
    with pytest.MonkeyPatch.context() as patch:
        for module, limit in ((plan, "HEALED_WITH_A_BATCH"), (plan, "RUN_MAX"), (ingest, "HEALED_IN_A_SLICE")):
            patch.setattr(module, limit, 1)
        story = Story({}, [{"token_ids": path(block)} for block in range(1, 11)])
        for (what, block), slices in steps:
            if what == "restart":
                story.restart()
            elif what == "gap":
                story.trouble(what)
            else:
                story.batch(chain_event(what, block))
            story.heal(slices)
            story.written()
        story.end()


# -- what differs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [placeholder([1]), stored([2], prompt(1, BLOCK), 1)])
def test_what_names_a_mapping_that_went_just_before_waits(event: object) -> None:
    """It is held and not claimed, and the bound says so; without the restart it would be claimed at once."""
    reference = Life({})
    reference.speaker.say(stored([1], prompt(1)), removed(1))
    reference.write()
    restarted = reference.restarted()
    for life in (reference, restarted):
        life.speaker.say(event)
    claimed, waiting = (life.core.ask(prompt(3))["pod"] for life in (reference, restarted))

    assert "exact" == claimed.bound
    assert ("lower", 0) == (waiting.bound, waiting.matched_tokens)
    restarted.speaker.say(stored([1], prompt(1)))
    assert "exact" == restarted.core.ask(prompt(3))["pod"].bound
