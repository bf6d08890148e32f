"""What a question may demand: a largest lag, an applied sequence; and hashes instead of tokens."""

from __future__ import annotations

import pytest

from indexer.demands import unmet
from indexer.errors import BadRequestError, SchemeConflictError
from indexer.hashing.chain import local_hashes
from indexer.index.states import StateLimits
from indexer.lookup import hash_block_size
from indexer.model import RawBatch
from schemas.lookup import LookupQuery, MmItem
from tests.support.core import Core, fleet, reasons
from tests.support.core_events import BLOCK, payload, prompt, stored, u32

TOKENS = prompt(4)


# -- trust -------------------------------------------------------------------------------------------------------------


def test_a_largest_lag() -> None:
    """Sources that lag more are listed with 0; the answer is degraded."""
    core = fleet(4, 4)
    core.clock.at += 1.0
    core.sinks[next(key for key in core.sinks if key.pod == "b")].proved()
    core.clock.at += 0.1

    answer = core.ask(TOKENS, max_lag_ms=500)

    assert ({"a": 0, "b": 16}, {"a": "lagging", "b": None}) == (answer.matched, reasons(answer))
    assert ("degraded", None) == (answer.state, answer.reason)
    assert "exact" == core.ask(TOKENS, max_lag_ms=5_000).state
    assert "lagging" == core.ask(TOKENS, max_lag_ms=1).reason


def test_a_source_whose_lag_is_not_known_lags() -> None:
    """It was never proved that nothing is missing."""
    core = fleet(4)
    core.sinks[next(iter(core.sinks))].source.facts.proof_at = None
    core.lookup.view.touch(next(iter(core.sinks.values())).source)

    assert "lagging" == core.ask(TOKENS, max_lag_ms=10_000)["a"].reason


def test_a_sequence_that_must_be_applied() -> None:
    """Until it is, the caller may wait; then the answer says so."""
    core = fleet(4, 4)
    waits = LookupQuery(tokens=u32(TOKENS), min_sequence={"a": 1})
    assert unmet(core.registry, waits)

    answer = core.ask(TOKENS, min_sequence={"a": 1, "nobody": 7})
    assert {"a": "deadline", "b": None} == reasons(answer)
    assert ("degraded", 16) == (answer.state, answer["a"].matched_tokens)
    assert "deadline" == core.ask(prompt(1, 900), pods=("a",), min_sequence={"a": 1}).reason

    core.sinks[next(key for key in core.sinks if key.pod == "a")].apply(RawBatch(b"", 1, payload()))
    assert not unmet(core.registry, waits)
    assert "exact" == core.ask(TOKENS, min_sequence={"a": 1}).state


def test_a_sequence_of_a_source_that_never_spoke() -> None:
    """Is not applied."""
    core = Core()
    engine = core.engine("a")
    assert unmet(core.registry, LookupQuery(min_sequence={"a": 0}))
    engine.sink.proved()
    assert unmet(core.registry, LookupQuery(min_sequence={"a": 0}))
    engine.say()
    assert not unmet(core.registry, LookupQuery(min_sequence={"a": 0}))


def test_a_suspect_source_may_be_discounted() -> None:
    """Its prefix stays what it is; its score does not."""
    core = Core(limits=StateLimits(suspect_weight=0.25))
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)), {"type": "New"})

    entry = core.ask(prompt(2))["a"]
    assert (8, 0.25, "suspect") == (entry.matched_tokens, entry.score, entry.state)


# -- hashes as input ---------------------------------------------------------------------------------------------------


def test_token_hashes_instead_of_tokens() -> None:
    """As `POST /v1/hash` gives them: the same answer."""
    core = fleet(3, 1)
    hashes = [int(each) for each in core.hashes(TOKENS)]

    by_hashes = core.ask(block_hashes=hashes, block_size=BLOCK, prompt_tokens=16)
    by_tokens = core.ask(TOKENS)

    assert by_tokens.pods == by_hashes.pods
    assert (16, by_tokens.state) == (by_hashes.prompt_tokens, by_hashes.state)
    assert 16 == core.ask(block_hashes=hashes, block_size=BLOCK).prompt_tokens
    assert 17 == core.ask(block_hashes=hashes, block_size=BLOCK, prompt_tokens=17).prompt_tokens
    assert {"a": 12, "b": 4} == core.ask(block_hashes=hashes, block_size=BLOCK, scheme="kvi1").matched


def test_local_hashes_of_another_indexers_clients() -> None:
    """Scheme `dynamo`: unchained hashes, chained here; with a deployment secret they are refused."""
    core = fleet(3)
    locals_ = [int.from_bytes(each, "big") for each in local_hashes(u32(TOKENS), BLOCK)]

    assert {"a": 12} == core.ask(block_hashes=locals_, block_size=BLOCK, scheme="dynamo").matched
    keyed = Core(secret=b"s")
    with pytest.raises(SchemeConflictError):
        keyed.ask(block_hashes=locals_, block_size=BLOCK, scheme="dynamo")


def test_hashes_at_another_block_size() -> None:
    """A source of other blocks cannot be asked so: said per entry."""
    core = Core()
    core.engine("fine").say(stored([1, 2], prompt(2)))
    core.engine("coarse").say(stored([1], prompt(2), block_size=8))
    core.engine("ahead").say(stored([1, 2], prompt(2), lookahead_token_ids=[[4], [8]]))

    answer = core.ask(block_hashes=[int(each) for each in core.hashes(prompt(2))], block_size=BLOCK, prompt_tokens=8)

    assert {"fine": None, "coarse": "other_block_size", "ahead": "lookahead"} == reasons(answer)
    assert {"fine": 8, "coarse": 0, "ahead": 0} == answer.matched
    assert "other_block_size" == core.ask(block_hashes=[5], block_size=16, pods=("fine",)).pods[0].reason


def test_hash_zero_is_held_by_nobody() -> None:
    """A caller may send any number."""
    core = fleet(1)

    assert 0 == core.ask(block_hashes=[0, 0], block_size=BLOCK)["a"].matched_tokens
    assert 0 == core.ask(block_hashes=[2**64 - 1] * 200, block_size=BLOCK)["a"].matched_tokens


def test_hashing_needs_a_block_size() -> None:
    """The caller's."""
    assert 16 == hash_block_size(LookupQuery(tokens=b"", block_size=16))
    with pytest.raises(BadRequestError, match="block_size"):
        hash_block_size(LookupQuery(tokens=b""))


def test_images_on_top_of_each_other_are_the_callers_mistake() -> None:
    """Refused, whoever holds what."""
    core = fleet(1)

    with pytest.raises(BadRequestError):
        core.ask(TOKENS, mm_items=(MmItem("a", 0, 8), MmItem("b", 4, 8)))
