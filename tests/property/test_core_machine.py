"""The core against a naive model: any engine behaviour at all, in any order, and the answers after every step.

Sources share contents, some share engine hashes, some run hybrid models. Stores come in any order and form, also
children before parents; removals name anything; gaps, restarts, clears, joins in the middle, removal and return of
sources, silence and housekeeping happen at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from indexer.model import TIER_NAMES, Tier
from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import CLEARED, stored
from tests.support.core_model import BLOCK, ModelSource
from tests.support.core_streams import (
    CHAINS,
    LAYOUTS,
    MIXED,
    REMOVED,
    STORED,
    Chain,
    Contents,
    Removal,
    Store,
    removal_event,
    store_event,
)

if TYPE_CHECKING:
    from schemas.lookup import PodEntry

PODS: Final = ("pod-0", "pod-1", "pod-2", "pod-3")
STORAGE_TTL_S: Final = 100.0
FLOOD: Final = 2_000
"""Blocks of a long prompt: more than the smallest table holds, so that tables grow, move and shrink."""
ROOMY, TIGHT = 1_000_000, 2
"""Blocks of an engine's memory: more than any source ever holds here, and so few that ghosts are given up after a gap.

Which ones is for tests of their own to say; here the bookkeeping must stay right.
"""
NUMBERS = st.integers(0, len(PODS) - 1)
"""Which of the present sources a rule is about."""
Operation = Store | Removal | str


class Engine:
    """One registration: its speaker, its model and how it hashes."""

    def __init__(self, speaker: Speaker, model: ModelSource, seed: str, alive_at: float) -> None:
        self.speaker = speaker
        self.model = model
        self.seed = seed
        self.is_tight = speaker.source.descriptor.blocks_total == TIGHT
        model.alive_at = alive_at
        self.generations = [speaker.source.facts.generation]

    @property
    def gives_up_ghosts(self) -> bool:
        """Whether entries may have gone that the model holds."""
        return self.is_tight and "gap" in self.model.doubts


class CoreMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.contents = Contents()
        self.engines: dict[str, Engine] = {}
        self.departed: list[Speaker] = []
        self.focus = Chain("plain", (0,))
        self.tail = 0
        self.partial = False
        self.last_generation = 0

    @initialize(
        keep=st.booleans(),
        count_copies=st.booleans(),
        shift=st.sampled_from([0, 7, 23]),
        secret=st.sampled_from([b"", b"s"]),
    )
    def begin(self, *, keep: bool, count_copies: bool, shift: int, secret: bytes) -> None:
        self.keep = keep
        self.count_copies = count_copies
        self.ttls = {Tier.STORAGE: STORAGE_TTL_S}
        self.core = Core(
            gap_policy="keep" if keep else "clear",
            count_copies=count_copies,
            tier_ttls=self.ttls,
            shift=shift,
            secret=secret,
        )
        self._join("pod-0", "windows", "seed-0")
        self._join("pod-1", "one group", "seed-1")
        self._join(PODS[-1], "one group, no kind told", "seed-1", TIGHT)

    # -- sources -------------------------------------------------------------------------------------------------------

    @rule(pod=st.sampled_from(PODS), layout=st.sampled_from(sorted(LAYOUTS)), seed=st.integers(0, 1))
    def join(self, pod: str, layout: str, seed: int) -> None:
        if pod not in self.engines:
            self._join(pod, layout, f"seed-{seed}", TIGHT if pod == PODS[-1] else ROOMY)

    @precondition(lambda self: len(self.engines) > 1)
    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        pod = self._pod(number)
        self.core.remove(pod)
        self.departed.append(self.engines.pop(pod).speaker)

    @precondition(lambda self: self.departed)
    @rule(operations=STORED)
    def late_batch_of_one_that_left(self, operations: list[Store]) -> None:
        """It finds a closed sink: nothing comes back."""
        speaker = self.departed.pop()
        assert not speaker.sink.open
        told = [store_event(op, self.contents, "seed-0", LAYOUTS["one group"], lambda *_: False) for op in operations]
        speaker.say(*(each.event for each in told))
        speaker.sink.restart("probe_differs")
        speaker.sink.gap(0, 9)
        speaker.sink.proved()
        speaker.sink.alive(connected=True)

    # -- the stream ----------------------------------------------------------------------------------------------------

    @rule(number=NUMBERS, operations=STORED)
    def stores(self, number: int, operations: list[Operation]) -> None:
        self._batch(self._engine(number), operations)

    @rule(number=NUMBERS, operations=STORED)
    def more_stores(self, number: int, operations: list[Operation]) -> None:
        self._batch(self._engine(number), operations)

    @rule(number=NUMBERS, operations=REMOVED)
    def removals(self, number: int, operations: list[Operation]) -> None:
        self._batch(self._engine(number), operations)

    @rule(number=NUMBERS, operations=MIXED)
    def anything(self, number: int, operations: list[Operation]) -> None:
        self._batch(self._engine(number), operations)

    @rule(number=NUMBERS, which=st.integers(0, 1))
    def flood(self, number: int, which: int) -> None:
        """A prompt of two thousand blocks."""
        chain = Chain("plain", tuple(range(1_000 + which, 1_000 + which + FLOOD)))
        store = Store(chain, (0, FLOOD), Tier.GPU, 0, hidden_salt=False, form="map", spelling="int", bare=False)
        self._batch(self._engine(number), [store])

    @rule(number=NUMBERS, trouble=st.sampled_from(["gap", "gap", "gap", "late", "restart", "operator", "garbage"]))
    def trouble(self, number: int, trouble: str) -> None:
        engine = self._engine(number)
        speaker, model = engine.speaker, engine.model
        if trouble == "gap" and model.sequence is not None:
            speaker.next_sequence += 2
            speaker.gap()
            model.gap(speaker.next_sequence - 1, keep=self.keep)
            self._new_generation(engine, expected=not self.keep)
        elif trouble == "late" and model.sequence is None:
            speaker.next_sequence += 3
        elif trouble == "restart":
            speaker.restart()
            model.restart()
            self._new_generation(engine, expected=True)
        elif trouble == "operator":
            self.core.ingest.clear(speaker.sink)
            model.cleared_by_operator()
            self._new_generation(engine, expected=True)
        elif trouble == "garbage":
            model.batch(speaker.next_sequence)
            model.doubts.add("undecodable")
            speaker.say_bytes(b"\xc1")

    # -- trust ---------------------------------------------------------------------------------------------------------

    @rule(
        number=NUMBERS, what=st.sampled_from(["cordon", "uncordon", "recover", "recovered", "alive", "alive", "probe"])
    )
    def trust(self, number: int, what: str) -> None:
        pod, engine = self._pod(number), self._engine(number)
        sink, model = engine.speaker.sink, engine.model
        if what in {"cordon", "uncordon"}:
            model.cordoned = what == "cordon"
            self.core.cordon(pod, cordoned=model.cordoned)
        elif what in {"recover", "recovered"}:
            model.syncing = what == "recover"
            sink.syncing(model.syncing)
        elif what == "alive":
            sink.alive(connected=True)
            model.alive_at = self.core.clock.at
        elif model.sequence is not None or not engine.speaker.next_sequence:
            sink.proved()  # nothing is missing; before the first batch: there was none
            if model.sequence is None:
                model.sequence, model.complete = -1, True

    @rule(seconds=st.sampled_from([4.0, 4.0, 30.0, 101.0]))
    def time_passes(self, seconds: float) -> None:
        """And housekeeping does all there is to do, so that what has a time to live is gone exactly then."""
        self.core.clock.at += seconds
        self.core.tidy()
        for engine in self.engines.values():
            engine.model.expire(self.core.clock.at)

    @rule(slices=st.integers(1, 20))
    def tidy_some(self, slices: int) -> None:
        for _ in range(slices):
            self.core.ingest.tidy_slice()

    @rule(chain=CHAINS, tail=st.integers(0, BLOCK - 1), partial=st.booleans())
    def look_elsewhere(self, chain: Chain, tail: int, *, partial: bool) -> None:
        self.focus, self.tail, self.partial = chain, tail, partial

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def answers_are_the_models(self) -> None:
        contents = self.contents.numbers(self.focus)
        query = self.focus.query(self.tail)
        answer = self.core.ask(**query, partial=self.partial)
        now = self.core.clock.at
        assert sorted(self.engines) == sorted(entry.pod for entry in answer.pods)
        for pod, engine in self.engines.items():
            self._check_entry(answer[pod], engine, contents, len(query["token_ids"]))
        models = [engine.model for engine in self.engines.values()]
        certain = all(
            (model.state(now) == "live" and model.bound == "exact") or model.cordoned or model.state(now) == "down"
            for model in models
        ) and not any(map(self._may_be_gone, answer.pods))
        heard = any(model.scored(now) for model in models)
        assert answer.state == ("no_signal" if not heard else "exact" if certain else "degraded")
        scores = [entry.score for entry in answer.pods]
        assert scores == sorted(scores, reverse=True)

    @invariant()
    def the_mirror_counts_right(self) -> None:
        if self.engines or self.departed:
            check_mirror(self.core.mirror)

    def teardown(self) -> None:
        """Housekeeping ends; then all sources leave, and nothing of them is left."""
        if not hasattr(self, "core"):
            return
        core = self.core
        core.tidy()
        contents: set[int] = set()
        for engine in self.engines.values():
            if engine.gives_up_ghosts:
                core.remove(engine.speaker.source.descriptor.pod)
                continue
            placed = [(h, held) for lane in engine.model.lanes.values() for h, held in lane.items()]
            placed = [(h, held) for h, held in placed if h in engine.model.placed]
            contents.update(self.contents.of_hash[h] for h, _ in placed)
            source = engine.speaker.source
            assert (len(placed), sum(held.copies for _, held in placed)) == (source.pairs, source.copies)
        core.tidy()
        assert len(contents) == core.mirror.table.live
        for key in list(core.sinks):
            core.remove(key.pod)
        core.tidy()
        assert 0 == core.mirror.table.live == core.mirror.live_slots == core.mirror.retired_slots()
        assert 1 == len(core.mirror.book)
        assert {} == core.mirror.book.tables
        check_mirror(core.mirror)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _join(self, pod: str, layout: str, seed: str, blocks_total: int = ROOMY) -> None:
        speaker = self.core.engine(pod, blocks_total=blocks_total)
        model = ModelSource(LAYOUTS[layout], self.contents.of_hash, self.count_copies, self.ttls, blocks_total)
        self.engines[pod] = Engine(speaker, model, seed, self.core.clock.at)
        self._new_generation(self.engines[pod], expected=True)

    def _pod(self, number: int) -> str:
        return sorted(self.engines)[number % len(self.engines)]

    def _engine(self, number: int) -> Engine:
        return self.engines[self._pod(number)]

    def _batch(self, engine: Engine, operations: list[Operation]) -> None:
        engine.model.batch(engine.speaker.next_sequence)
        events = [self._apply(engine, operation) for operation in operations]
        engine.model.batch_ends()
        engine.speaker.say(*events)

    def _new_generation(self, engine: Engine, *, expected: bool) -> None:
        generation = engine.speaker.source.facts.generation
        if expected:
            assert generation > self.last_generation
            self.last_generation = generation

    def _apply(self, engine: Engine, operation: Operation) -> object:
        """Tell the model, and return the event for the wire."""
        model = engine.model
        if isinstance(operation, str):
            return self._apply_word(model, operation)
        self.focus = operation.chain
        if isinstance(operation, Removal):
            told = removal_event(operation, self.contents, engine.seed, model.groups)
            model.removed(told.lane, told.hashes)
        else:
            told = store_event(operation, self.contents, engine.seed, model.groups, model.lacks_parent)
            model.stored(told.lane, told.hashes, told.parent, self.core.clock.at, dense=told.dense)
        return told.event

    def _apply_word(self, model: ModelSource, word: str) -> object:
        if word == "clear":
            model.cleared()
            self.last_generation += 1
            return CLEARED
        if word == "unknown":
            model.doubts.add("unknown")
            return {"type": "BlocksTeleported", "block_hashes": [1]}
        if word == "broken":
            model.doubts.add("broken")
            return stored(["no hash"], [1, 2, 3, 4])
        model.learn(0, sized=True)
        return stored([], [1, 2, 3, 4], group_idx=0)

    def _may_be_gone(self, entry: PodEntry) -> bool:
        """Whether blocks are matched whose end is never announced."""
        return any(getattr(entry.tiers, TIER_NAMES[tier]) for tier in self.ttls)

    def _check_entry(self, entry: PodEntry, engine: Engine, contents: list[int], prompt_tokens: int) -> None:
        model, now = engine.model, self.core.clock.at
        assert (entry.state, entry.bound) == (model.state(now), model.bound_of(self._may_be_gone(entry)))
        sequence = model.sequence
        assert entry.sequence == (sequence if sequence is not None and sequence >= 0 else None)
        if engine.gives_up_ghosts:
            return
        if not model.scored(now):
            assert (0, 0, 0.0) == (entry.matched_tokens, entry.reusable_tokens, entry.score)
            return
        expected = model.expected(contents, prompt_tokens, partial=self.partial)
        tiers, prefix = entry.tiers, entry.prefix
        got = (
            entry.matched_tokens,
            entry.reusable_tokens,
            (tiers.gpu, tiers.cpu, tiers.storage, tiers.remote, tiers.unknown),
            (prefix.gpu, prefix.cpu, prefix.storage, prefix.remote),
            pytest.approx(entry.score),
        )
        assert got == tuple(expected), entry.pod


@pytest.mark.timeout(3_600)  # long in `make soak`; and a failing run is made small before it is shown
def test_the_core_answers_as_the_model_does() -> None:
    """Whatever engines and operators do, answers and bookkeeping are those of plain dicts and sets."""
    run_state_machine_as_test(CoreMachine)
