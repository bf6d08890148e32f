"""What of a source's life goes into its history: each fact once, with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.happenings import Happening
from tests.support.core import Core, Speaker
from tests.support.core_events import CLEARED, prompt, stored

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex
    from indexer.model import GapPolicy

TOKENS = prompt(4)


class Story:
    """A core whose one engine has announced something, and what happened since."""

    def __init__(self, policy: GapPolicy = "keep", first: int = 0) -> None:
        self.core = Core(gap_policy=policy)
        self.told: list[Happening] = []
        self.core.ingest.happened = self._happened
        self.engine: Speaker = self.core.engine()
        self.engine.next_sequence = first
        self.engine.say(stored([1, 2, 3, 4], TOKENS))

    def _happened(self, _: SourceIndex, happening: Happening) -> None:
        self.told.append(happening)

    @property
    def generation(self) -> int:
        return self.engine.source.facts.generation

    def since(self) -> list[Happening]:
        """And forget it."""
        told, self.told = self.told, []
        return told


def test_a_stream_is_joined_once() -> None:
    """From its beginning or not; batches after that are no news."""
    whole, cut = Story(), Story(first=7)
    whole.engine.say(stored([5], prompt(5)[16:], parent=4))

    assert [Happening(what="joined", cause="from_the_start", sequence=0, generation=whole.generation)] == whole.told
    assert [Happening(what="joined", cause="in_the_middle", sequence=7, generation=cut.generation)] == cut.told


def test_an_engine_known_to_have_said_nothing_is_joined_at_its_first_batch() -> None:
    """The proof of an empty history is no batch."""
    story = Story()
    story.engine.restart()
    story.engine.sink.proved()
    story.since()
    story.engine.say(stored([1], TOKENS[:4]))

    assert ["joined"] == [each.what for each in story.told]


@pytest.mark.parametrize("policy", ["keep", "clear"])
def test_a_gap_says_what_is_lost_and_what_became_of_the_rest(policy: GapPolicy) -> None:
    """Kept or cleared."""
    story = Story(policy)
    before = story.generation
    story.since()
    story.engine.lose()
    story.engine.lose()
    story.engine.gap()

    cause = "kept" if policy == "keep" else "cleared"
    (gap,) = story.told
    assert Happening(what="gap", cause=cause, first=1, last=2, lost=2, sequence=0, generation=story.generation) == gap
    assert (policy == "keep") is (before == story.generation)


def test_what_ends_a_generation_names_both() -> None:
    """A restart, the engine's own clear. An operator's is told by who obeys the command."""
    story = Story()
    first = story.generation
    story.since()
    story.engine.restart()
    second = story.generation
    story.engine.say(CLEARED)
    third = story.generation
    story.core.ingest.clear(story.engine.sink)

    assert [
        Happening(what="restart", cause="sequence_went_back", sequence=0, generation=second, generation_before=first),
        Happening(what="joined", cause="from_the_start", sequence=0, generation=second),
        Happening(what="cleared_by_engine", sequence=0, generation=third, generation_before=second),
    ] == story.told


def test_a_doubt_and_a_suspicion_are_told_when_they_change() -> None:
    """Not each time they are said."""
    story = Story()
    story.since()
    for _ in range(2):
        story.engine.sink.doubt("process_unproven")
        story.engine.sink.suspect("dropped", active=True)
    for _ in range(2):
        story.engine.sink.suspect("dropped", active=False)

    assert [("doubt", "process_unproven"), ("dropped", "begun"), ("dropped", "ended")] == [
        (each.what, each.cause) for each in story.told
    ]


def test_a_source_that_is_long_gone_is_forgotten_once() -> None:
    """Then there is nothing left to forget."""
    story = Story()
    story.engine.sink.alive(connected=True)
    story.since()
    story.core.clock.at += 100.0
    assert story.core.ingest.forget_lost(story.engine.source, 50.0)
    assert story.core.ingest.forget_lost(story.engine.source, 50.0)

    assert [("forgotten", "gone_too_long")] == [(each.what, each.cause) for each in story.told]


def test_a_sink_that_is_closed_tells_nothing() -> None:
    """What is in flight when a source goes belongs to nobody."""
    story = Story()
    story.core.ingest.close_source(story.engine.sink)
    story.since()
    story.engine.restart()
    story.engine.sink.doubt("process_unproven")
    story.engine.sink.suspect("dropped", active=True)

    assert [] == story.told
