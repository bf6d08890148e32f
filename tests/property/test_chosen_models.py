"""A follower of chosen models beside one that follows all, told the same: they show the same of these models.

Commands, batches, registries read anew and maps read in any order; a naive world says what is registered and held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.model import SourceId
from indexer.store.entries import Turned
from indexer.store.layout import source_name
from indexer.store.rebuild import Survey
from tests.support.fed_partition import FIRST, Fed, registration
from tests.support.steps import done

SOURCES = [SourceId(f"pod-{number}", number % 2) for number in range(3)]
MODELS = ["m", "n", "o"]
FOLLOWED = frozenset({"m", "o"})
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "edit", "remove", "clear", "batch", "batch", "registry", "read"]),
        st.sampled_from(SOURCES),
        st.sampled_from(MODELS),
        st.integers(1, 6),
    ),
    max_size=30,
)


@dataclass
class Life:
    """A source as its owner has it."""

    generation: int = 0
    sequence: int = -1
    model: str | None = None
    held: dict[int, int] = field(default_factory=dict)


class World:
    """Tells both followers all that happens."""

    def __init__(self) -> None:
        self.all, self.chosen = Fed(), Fed(FOLLOWED)
        self.lives = {source: Life() for source in SOURCES}
        self._generation = 1
        for fed in (self.all, self.chosen):
            fed.begin(position=FIRST)

    def step(self, what: str, source: SourceId, model: str, number: int) -> None:
        """What is about a registered source does nothing to another."""
        life = self.lives[source]
        if what == "put":
            self._begin(source, life, model)
        elif what == "registry":
            self._read_registry()
        elif life.model is not None:
            self._step_of_registered(what, source, life, model, number)

    def _step_of_registered(self, what: str, source: SourceId, life: Life, model: str, number: int) -> None:
        match what:
            case "edit":
                life.model = model
                self._obey("edit", source, life.generation, registration(source, model=model))
            case "remove":
                life.model = None
                self._generation += 1
                self._obey("remove", source, self._generation)
            case "clear":
                self._begin(source, life, None)
            case "batch":
                self._batch(source, life, number)
            case _:
                self.read(source)

    def _batch(self, source: SourceId, life: Life, number: int) -> None:
        """A block comes, or goes where it is held."""
        life.sequence += 1
        lanes = 0 if life.held.pop(number, 0) else 1
        if lanes:
            life.held[number] = lanes
        for fed in (self.all, self.chosen):
            fed.change(life.generation, life.sequence, {number: lanes}, of=source)

    def _read_registry(self) -> None:
        registry = {
            source_name(each): registration(each, model=life.model)
            for each, life in self.lives.items()
            if life.model is not None
        }
        for fed in (self.all, self.chosen):
            done(fed.partition.begin(Survey(fed.partition.position, b"0-0", registry), fed.now))

    def _begin(self, source: SourceId, life: Life, model: str | None) -> None:
        """A command gives a generation; the owner takes it up."""
        self._generation += 1
        verb = "clear" if model is None else "put"
        life.generation, life.sequence, life.held, life.model = self._generation, -1, {}, model or life.model
        descriptor = b"" if model is None else registration(source, model=model)
        self._obey(verb, source, self._generation, descriptor)
        for fed in (self.all, self.chosen):
            fed.hear(Turned(source_name(source), life.generation))

    def _obey(self, verb: str, source: SourceId, generation: int, descriptor: bytes = b"") -> None:
        for fed in (self.all, self.chosen):
            fed.obey(verb, generation, descriptor, of=source)  # type: ignore[arg-type]

    def read(self, source: SourceId) -> None:
        """Its map, by whoever wants to."""
        life = self.lives[source]
        for fed in (self.all, self.chosen):
            followed = fed.partition.sources.by_name.get(source_name(source))
            if followed is not None and followed.reading is not None:
                cursor = life.sequence if life.sequence >= 0 else None
                fed.read(life.generation, cursor, life.held, of=source)


@settings(max_examples=60)
@given(STEPS)
def test_chosen_models_are_followed_as_all_are(steps: list[tuple[str, SourceId, str, int]]) -> None:
    """Sources, generations and blocks; of the other models as many are counted as are registered."""
    world = World()
    for what, source, model, number in steps:
        world.step(what, source, model, number)
        wanted = {each for each, life in world.lives.items() if life.model in FOLLOWED}
        assert wanted == set(world.chosen.registry.sources)
    for source in SOURCES:
        world.read(source)

    for source, life in world.lives.items():
        if life.model in FOLLOWED:
            both = [(fed.source(source).facts.generation, fed.shown(source)) for fed in (world.all, world.chosen)]
            assert [(life.generation, life.held)] * 2 == both
    for model in set(MODELS) - FOLLOWED:
        others = sum(life.model == model for life in world.lives.values())
        assert (others > 0) == world.chosen.registry.resolve(model, "default").elsewhere
    assert sum(life.model == "n" for life in world.lives.values()) == len(world.chosen.partition.sources.passed_over)
