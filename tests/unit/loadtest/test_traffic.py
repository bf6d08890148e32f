"""The fleet's right answers, against the real core fed with what the fleet says."""

import pytest
from msgspec import json

from api.rest.lookup_request import LookupRequests
from loadtest.content import BLOCK
from loadtest.questions import FORMS, OCTETS, Form, wrong
from loadtest.service import MODEL, pod
from loadtest.traffic import Traffic, overlap
from tests.support.core import Core

SOURCES = 4
PAIRS = 40_000
TOKENS_MAX = 1_000_000


class Fleet:
    """Engines of `Traffic` and a core that hears them."""

    def __init__(self) -> None:
        self.traffic = Traffic(SOURCES, PAIRS)
        self.core = Core()
        self.speakers = [self.core.engine(pod(number), model=MODEL) for number in range(SOURCES)]
        for engine in self.traffic.engines:
            for batch in engine.fill():
                self.speakers[engine.number].say_bytes(batch)

    @property
    def pairs(self) -> list[int]:
        return [speaker.source.pairs for speaker in self.speakers]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """Filled."""
    return Fleet()


def test_a_filled_fleet_holds_what_it_says(fleet: Fleet) -> None:
    """Pair for pair."""
    assert fleet.traffic.pairs == sum(fleet.pairs)
    assert fleet.traffic.pairs == pytest.approx(PAIRS, rel=0.02)


@pytest.mark.parametrize("tokens", [512, 8_192, 131_072])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_prompt_has_its_right_answer(fleet: Fleet, tokens: int, form: Form) -> None:
    """In every form, parsed as the server parses it; and none is right for another prompt."""
    requests = LookupRequests(TOKENS_MAX)
    prompts = fleet.traffic.prompts(tokens, 20)
    for prompt in prompts:
        kind, query_string = ("ids", f"model={MODEL}".encode()) if form is OCTETS else ("json", b"")
        query = requests.parse(kind, form.body(prompt), query_string, {}).query
        answer = json.encode(fleet.core.lookup.answer(query))
        assert wrong(prompt, answer, SOURCES) is None
        other = next(one for one in prompts if one.held != prompt.held)
        assert wrong(other, answer, SOURCES) is not None


@pytest.mark.parametrize("tokens", [512, 8_192, 131_072])
def test_prompts_overlap_as_promised(tokens: int) -> None:
    """At least half of the blocks match on two or more engines, a tenth of the prompts match nowhere; all differ."""
    prompts = Traffic(8, 100_000).prompts(tokens, 200)
    shares = overlap(prompts)

    assert shares.blocks_on_two >= 0.5
    assert 0.1 == shares.prompts_nowhere
    assert 200 == len({prompt.tokens.tobytes() for prompt in prompts})
    assert {tokens // BLOCK} == {len(prompt.tokens) // BLOCK for prompt in prompts}


def test_a_round_of_the_ring_changes_nothing() -> None:
    """After it every engine holds what it held before, and prompts keep their answers meanwhile."""
    fleet = Fleet()
    before, unique = fleet.pairs, fleet.core.mirror.table.live
    for engine in fleet.traffic.engines:
        for batch in engine.live():
            fleet.speakers[engine.number].say_bytes(batch)

    assert before == fleet.pairs
    assert unique == fleet.core.mirror.table.live
    assert not sum(speaker.source.counters["removed_unknown"] for speaker in fleet.speakers)
