"""Random histories of a partition, its commands and its losses: a follower never shows what no moment had.

At every moment: what a source shows in a generation was held in that generation at some time; and where it is whole, it
shows exactly what its owner had at the sequence that it tells. In the end it shows what its owner has.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from indexer.model import SourceId
from indexer.store.layout import PartitionKeys, tags
from indexer.store.rebuild import LoadOptions
from tests.support.collecting import until
from tests.support.following import QUICK, Follow, following
from tests.support.hand_owner import HandOwner
from tests.support.owning import client_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from indexer.store.client import Client
    from tests.support.redis_servers import Store

SOURCES = [SourceId("pod-1", 0), SourceId("pod-2", 0), SourceId("pod-2", 1)]
NUMBERS = st.frozensets(st.integers(0, 40), min_size=1, max_size=12)
SOURCE = st.sampled_from(SOURCES)
SMALL_STEPS = msgspec.structs.replace(QUICK, load=LoadOptions(count=2, in_flight=2))
Moment = tuple[SourceId, int, int | None]


class History(RuleBasedStateMachine):
    """`cleared` are sources whose generation a command raised and whose owner does not know yet.

    `models`: those whose sources are followed; None: all.
    """

    def __init__(self, store: Store, models: frozenset[str] | None = None) -> None:
        super().__init__()
        store.empty()
        self.options = msgspec.structs.replace(SMALL_STEPS, models=models)
        self.store = store
        self.keys = PartitionKeys("kvi", tags(16)[3])
        self.cleared: dict[SourceId, int] = {}
        self.moments: dict[Moment, dict[int, int]] = {}
        self.ever: dict[tuple[SourceId, int], dict[int, int]] = {}
        self.snapshot: dict[bytes, tuple[bytes, int]] | None = None
        self.is_lost = False
        self.runner = asyncio.Runner()
        self.open = contextlib.AsyncExitStack()
        self.client: Client
        self.owner: HandOwner
        self.follow: Follow
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.client = client_of(self.store.url)
        self.owner = HandOwner(self.client, self.keys)
        await self.owner.own()
        await self._follow()

    async def _follow(self) -> None:
        self.follow = await self.open.enter_async_context(following(self.store.url, self.keys, self.options))

    def teardown(self) -> None:
        """Everything is put right, and then followed."""

        async def end() -> None:
            try:
                await self._recover()
                await self._take_up_all()
                await self.follow.until_shows(self.owner)
            finally:
                await self.open.aclose()
                await self.client.close()

        try:
            self.runner.run(end())
        finally:
            self.runner.close()

    # -- the owner -----------------------------------------------------------------------------------------------------

    def do(self, source: SourceId, act: Callable[[], Awaitable[Any]]) -> None:
        """One thing that the owner does to a source, once the store is right again."""

        async def step() -> None:
            await self._recover()
            await self._take_up(source)
            if source not in self.owner.truth:
                await self.owner.put(source)
                self._note(source)
            await act()
            if source in self.owner.truth:
                self._note(source)

        self.runner.run(step())

    def _note(self, source: SourceId) -> None:
        truth = self.owner.truth[source]
        generation, presence = truth.where.generation, truth.presence
        self.moments[source, generation, truth.sequence] = presence
        ever = self.ever.setdefault((source, generation), {})
        for token_hash, lanes in presence.items():
            ever[token_hash] = ever.get(token_hash, 0) | lanes

    async def _take_up(self, source: SourceId) -> None:
        generation = self.cleared.pop(source, None)
        if generation is not None:
            await self.owner.turn(source, generation)
            self._note(source)

    async def _take_up_all(self) -> None:
        for source in list(self.cleared):
            await self._take_up(source)

    async def _recover(self) -> None:
        if not self.is_lost:
            return
        self.is_lost = False
        await self.owner.own()
        for source in list(self.owner.truth):
            await self.owner.command("restore", source)
            if source not in self.cleared:  # else its next generation begins, when its turn comes
                await self.owner.lay(source)

    @rule(source=SOURCE, numbers=NUMBERS, lanes=st.sampled_from([1, 2, 3]), aliases=st.sampled_from([0, 2]))
    def store_blocks(self, source: SourceId, numbers: frozenset[int], lanes: int, aliases: int) -> None:
        self.do(source, lambda: self.owner.store(source, numbers, lanes, aliases=aliases))

    @rule(source=SOURCE, numbers=NUMBERS)
    def remove_blocks(self, source: SourceId, numbers: frozenset[int]) -> None:
        self.do(source, lambda: self.owner.remove(source, numbers))

    @rule(source=SOURCE, runs=st.lists(st.tuples(st.booleans(), NUMBERS), min_size=2, max_size=12))
    def write_while_all_is_read_anew(self, source: SourceId, runs: list[tuple[bool, frozenset[int]]]) -> None:
        async def act() -> None:
            self.follow.lose()
            for is_store, numbers in runs:
                await (self.owner.store if is_store else self.owner.remove)(source, numbers)
                self._note(source)

        self.do(source, act)

    @rule(source=SOURCE)
    def restart(self, source: SourceId) -> None:
        self.do(source, lambda: self.owner.turn(source, self.owner.truth[source].where.generation + 1))

    @rule(source=SOURCE, moved=st.booleans())
    def lay(self, source: SourceId, moved: bool) -> None:
        self.do(source, lambda: self.owner.lay(source, moved=moved))

    @rule(source=SOURCE, comes=NUMBERS, goes=NUMBERS, numbers=NUMBERS, anew=st.booleans())
    def lay_what_was_not_told(
        self, source: SourceId, comes: frozenset[int], goes: frozenset[int], numbers: frozenset[int], anew: bool
    ) -> None:
        async def act() -> None:
            if anew:
                self.follow.lose()
            await self.owner.store(source, numbers)
            self._note(source)
            await self.owner.lay_untold(source, comes, goes)

        self.do(source, act)

    @rule()
    def change_owners(self) -> None:
        self.do(SOURCES[0], self.owner.own)

    @rule()
    def tick(self) -> None:
        self.do(SOURCES[0], self.owner.tick)

    # -- commands ------------------------------------------------------------------------------------------------------

    @rule(source=SOURCE)
    def clear(self, source: SourceId) -> None:
        async def act() -> None:
            self.cleared[source] = await self.owner.command("clear", source)

        self.do(source, act)

    @rule(source=SOURCE, crosses_restart=st.booleans())
    def remove(self, source: SourceId, crosses_restart: bool) -> None:
        async def act() -> None:
            if crosses_restart:  # and is not missed: see decisions/gaps.md
                end = str(self.owner.journal.position)
                await until(lambda: self.follow.position == end, "the journal to be followed")
            generation = await self.owner.command("remove", source)
            if crosses_restart:
                await self.owner.turn(source, generation + 1)
                self._note(source)
                await self.follow.until_gone(source, self.owner)
            del self.owner.truth[source]
            self.snapshot = None  # a store that loses a removal brings the source back

        self.do(source, act)

    @rule(source=SOURCE, model=st.sampled_from(["m", "n"]))
    def serve_a_model(self, source: SourceId, model: str) -> None:
        async def act() -> None:
            if self.owner.models.get(source, "m") != model:  # else it is registered so, and nothing begins
                self.owner.models[source] = model
                await self.owner.put(source)
                self.snapshot = None  # a store that loses this brings the model of before back

        self.do(source, act)

    @rule(source=SOURCE, cordoned=st.booleans())
    def cordon(self, source: SourceId, cordoned: bool) -> None:
        self.do(source, lambda: self.owner.command("edit", source, cordoned=cordoned))

    # -- the store and the follower ------------------------------------------------------------------------------------

    def _lose_nothing_that_was_removed(self) -> None:
        """A removal that is lost with the store before a follower saw it never was: that source is kept, and ages."""
        seen = self.follow.registry.sources
        self.runner.run(until(lambda: set(seen) <= set(self.owner.truth), "removals to be seen"))

    @rule()
    def empty_the_store(self) -> None:
        self._lose_nothing_that_was_removed()
        self.store.empty()
        self.is_lost = True

    @precondition(lambda self: not self.is_lost)
    @rule()
    def take_a_snapshot(self) -> None:
        look = self.store.look
        keys = [key for key in self.store.all_keys() if key.startswith(self.keys.head[:-4])]
        self.snapshot = {key: (look.dump(key), max(0, look.pttl(key))) for key in keys}

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def restore_the_snapshot(self) -> None:
        assert self.snapshot is not None
        self._lose_nothing_that_was_removed()
        self.store.empty()
        for key, (content, ttl) in self.snapshot.items():
            self.store.look.restore(key, ttl, content, replace=True)
        self.is_lost = True

    @precondition(lambda self: not self.is_lost)
    @rule()
    def trim_the_journal(self) -> None:
        self.store.look.xtrim(self.keys.log, maxlen=1, approximate=False)

    @rule()
    def follow_from_the_start(self) -> None:
        async def act() -> None:
            await self.open.aclose()
            await self._follow()

        self.runner.run(act())

    @rule()
    def read_all_anew(self) -> None:
        self.follow.lose()

    @rule(turns=st.integers(1, 30))
    def let_it_run(self, turns: int) -> None:
        async def act() -> None:
            for _ in range(turns):
                await asyncio.sleep(0.0005)

        self.runner.run(act())

    @precondition(lambda self: not self.is_lost and not self.cleared)
    @rule()
    def let_it_catch_up(self) -> None:
        self.runner.run(self.follow.until_shows(self.owner))

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def memory_comes_back(self) -> None:
        assert self.follow.tidied()

    @invariant()
    def nothing_is_shown_that_no_moment_had(self) -> None:
        models = self.options.models
        for source in self.follow.registry.sources:
            assert models is None or self.follow.source(source).descriptor.model in models
            facts, shown = self.follow.source(source).facts, self.follow.shown(source)
            ever = self.ever.get((source, facts.generation), {})
            assert {token: lanes for token, lanes in shown.items() if lanes & ~ever.get(token, 0)} == {}
            if self.follow.is_whole(source) and not facts.reloading:
                assert self.moments.get((source, facts.generation, facts.sequence), {}) == shown


def _try(store: Store, examples: int, models: frozenset[str] | None = None) -> None:
    run_state_machine_as_test(
        lambda: History(store, models),
        settings=settings(
            settings.default,
            max_examples=max(examples, settings.default.max_examples // 10),
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_histories(store: Store) -> None:
    """Whatever happens, in whatever order."""
    _try(store, 30)


def test_random_histories_of_chosen_models(store: Store) -> None:
    """The same where sources come and go as they change their models."""
    _try(store, 10, frozenset({"m"}))
