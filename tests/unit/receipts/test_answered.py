"""What is remembered of answers: by request id or by prompt, for a time, within bounds."""

from array import array
from collections import Counter
from typing import Final

import numpy as np
import pytest

from indexer.model import Tier
from indexer.receipts.answer import AT_ONCE_MAX
from indexer.receipts.answered import RECORD_BYTES, AnswerOptions, Answers
from indexer.receipts.prompts import QUERY_BYTES
from indexer.trust import AGE_CLASSES, BOUNDS, STATES, Trust, in_words, trust_of
from schemas.lookup import LookupQuery
from tests.support.core import Core, fleet
from tests.support.core_events import BLOCK, prompt, stored, u32

SALT: Final = 5


class Remembering:
    """A core whose answers are remembered."""

    def __init__(self, core: Core, options: AnswerOptions | None = None) -> None:
        self.core = core
        self.reached: Counter[str] = Counter()
        self.answers = Answers(core.clock, options or AnswerOptions(), SALT, lambda limit: self.reached.update([limit]))
        core.lookup.answers = self.answers

    def reusable(self, request_id: str, pod: str, tenant: str | None = None) -> int | None:
        found = self.answers.find(request_id, tenant)
        predicted = None if found is None else found.predicted(b"%b#0" % pod.encode())
        return None if predicted is None else predicted.reusable_tokens


def test_an_answer_is_found_by_its_request_with_what_it_said_of_each_source() -> None:
    """Also of those that held nothing; of a pod that it was not about it says nothing."""
    told = Remembering(fleet(4, 2, 0))

    told.core.ask(prompt(5), request_id="r")

    assert {"a": 16, "b": 8, "c": 0, "z": None} == {pod: told.reusable("r", pod) for pod in "abcz"}
    found = told.answers.find("r", None)
    assert found is not None
    predicted = found.predicted(b"b#0")
    assert predicted is not None
    assert (16, BLOCK, "live", "exact") == (predicted.best_tokens, predicted.block_size, *predicted.trust[:2])


def test_the_last_token_is_always_computed() -> None:
    """A prompt that is held wholly is not reused wholly."""
    told = Remembering(fleet(4))

    told.core.ask(prompt(4), request_id="r")

    assert 12 == told.reusable("r", "a")


def test_what_was_said_stays_whatever_happens_to_the_source() -> None:
    """Generation and trust are those of the answer."""
    told = Remembering(core := Core())
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)))
    core.ask(prompt(3), request_id="r")
    before = engine.source.facts.generation

    engine.restart()
    core.ask(prompt(3), request_id="s")

    found = told.answers.find("r", None)
    assert found is not None
    predicted = found.predicted(b"a#0")
    assert predicted is not None
    assert (8, before, "live") == (predicted.reusable_tokens, predicted.generation, predicted.trust.state)
    assert told.reusable("s", "a") is None, "a source that is new counts nothing"


def test_the_newest_answer_to_a_request_counts() -> None:
    """Who asks again is answered anew."""
    told = Remembering(core := fleet(1))
    core.ask(prompt(5), request_id="r")
    core.engine("b").say(stored([1, 2, 3], prompt(3)))

    core.ask(prompt(5), request_id="r")

    assert 12 == told.reusable("r", "b")
    assert 1 == len(told.answers)


def test_a_tenant_finds_its_own_answers_only() -> None:
    """Two tenants may use one request id."""
    told = Remembering(core := Core())
    core.engine("a", tenant="one").say(stored([1], prompt(1)))
    core.engine("b", tenant="two").say(stored([1], prompt(1)))

    core.ask(prompt(2), request_id="r", tenant="one")

    assert (4, None, None) == (told.reusable("r", "a", "one"), told.reusable("r", "a", "two"), told.reusable("r", "a"))


@pytest.mark.parametrize("crowd", [1, AT_ONCE_MAX, AT_ONCE_MAX + 1])
def test_large_fleets_and_small_ones_are_remembered_alike(crowd: int) -> None:
    """Whether the numbers are made at once or a moment later, before or after they are asked for."""
    told = Remembering(core := Core())
    for number in range(crowd):
        held = 1 + number % 3
        core.engine(f"p{number}").say(stored(range(1, held + 1), prompt(held)))
    expected = [BLOCK * (1 + number % 3) for number in range(crowd)]
    core.ask(prompt(9), request_id="first")
    core.ask(prompt(9), request_id="second")

    assert expected == [told.reusable("first", f"p{number}") for number in range(crowd)]
    assert not told.answers.tidy()
    assert expected == [told.reusable("second", f"p{number}") for number in range(crowd)]


def test_hybrid_rules_count() -> None:
    """Of a source with a sliding window only what its window group holds is reusable."""
    told = Remembering(core := Core())
    engine = core.engine("a")
    window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 2 * BLOCK}
    engine.say(
        stored([1, 2, 3, 4], prompt(4), group_idx=0, kv_cache_spec_kind="full_attention"),
        stored([1, 2], prompt(2), **window),
    )

    answer = core.ask(prompt(5), request_id="r")

    assert 8 == answer["a"].reusable_tokens == told.reusable("r", "a")


def test_what_may_be_gone_unannounced_is_an_upper_bound() -> None:
    """As the entry says; a match of the same source that lies in GPU memory alone is as certain as ever."""
    told = Remembering(core := Core(tier_ttls={Tier.STORAGE: 60.0}))
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)), stored([3], prompt(1, start=2 * BLOCK), 2, medium="STORAGE"))

    for name, blocks in (("disk", 3), ("gpu", 2)):
        entry = core.ask(prompt(blocks + 1) if name == "disk" else [*prompt(2), 9], request_id=name)["a"]
        found = told.answers.find(name, None)
        assert found is not None
        predicted = found.predicted(b"a#0")
        assert predicted is not None
        assert (name == "disk", entry.bound) == (predicted.unannounced, predicted.trust.bound)
        assert entry.reusable_tokens == predicted.reusable_tokens == blocks * BLOCK


def test_answers_are_forgotten_after_their_time() -> None:
    """And counted as nothing: it is as it should be."""
    told = Remembering(core := fleet(1), AnswerOptions(horizon_s=60.0))
    core.ask(prompt(2), request_id="r")
    core.clock.at += 59.0
    core.ask(prompt(2), request_id="s")
    core.clock.at += 2.0

    assert not told.answers.tidy()

    assert (None, 0) == (told.reusable("r", "a"), told.answers.dropped)
    assert (4, 2.0) == (told.reusable("s", "a"), told.answers.kept(None).oldest_s)
    core.clock.at += 60.0
    told.answers.tidy()
    assert (0, 0, 0) == (len(told.answers), told.answers.bytes, told.answers.prompts.bytes)


def test_beyond_its_bytes_the_oldest_go_and_are_counted() -> None:
    """Whoever reports of them is told that they are not known."""
    told = Remembering(core := fleet(1), AnswerOptions(bytes_max=10 * (RECORD_BYTES + 40)))

    for number in range(30):
        core.ask(prompt(2), request_id=f"r{number}")

    assert told.answers.bytes <= 10 * (RECORD_BYTES + 40)
    assert (None, 4) == (told.reusable("r0", "a"), told.reusable("r29", "a"))
    assert told.answers.dropped == told.reached["feedback.answers_bytes"] == 30 - len(told.answers)


def test_prompts_are_kept_for_seconds_within_a_bound() -> None:
    """The rest of an answer outlives its prompt."""
    one = QUERY_BYTES + len(u32(prompt(2)))
    told = Remembering(core := fleet(1), AnswerOptions(prompt_s=10.0, prompt_bytes=2 * one))
    for name in "abc":
        core.ask(prompt(2), request_id=name)
    kept = {name: told.answers.find(name, None) for name in "abc"}
    assert 1 == told.reached["feedback.prompt_bytes"]
    assert {"a": False, "b": True, "c": True} == {
        name: found is not None and found.query is not None for name, found in kept.items()
    }

    core.clock.at += 10.0
    told.answers.tidy()

    assert 0 == told.answers.prompts.bytes
    assert all(found is not None and found.query is None for found in kept.values())
    assert 4 == told.reusable("c", "a")


def test_no_prompt_is_kept_where_none_may_be() -> None:
    """A bound of nothing switches it off."""
    told = Remembering(core := fleet(1), AnswerOptions(prompt_bytes=0))

    core.ask(prompt(2), request_id="r")

    found = told.answers.find("r", None)
    assert found is not None
    assert found.query is None
    assert told.answers.find_prompt(LookupQuery(tokens=u32(prompt(2))), None, None) is None


def test_an_answer_is_found_by_its_prompt() -> None:
    """The newest of it, also long after the prompt itself is gone, and no other model's or adapter's."""
    told = Remembering(core := Core())
    core.engine("a", model="m").say(stored([1], prompt(1)))
    core.ask(prompt(3), request_id="r", model="m")
    same = LookupQuery(tokens=u32(prompt(3)))

    def found(query: LookupQuery, lora_name: str | None = None, model: str | None = "m") -> str | None:
        record = told.answers.find_prompt(query, lora_name, model)
        return None if record is None else record.request_id

    assert "r" == found(same)
    core.ask(prompt(3), request_id="s", model="m")
    core.clock.at += 60.0
    told.answers.tidy()

    assert ("s", None, None) == (found(same), found(same, "adapter"), found(same, None, "other"))
    assert found(LookupQuery(tokens=u32(prompt(4)))) is None
    assert found(LookupQuery(tokens=u32(prompt(3)), cache_salt="salt")) is None
    assert found(LookupQuery(tokens=u32(prompt(3)), tenant="another")) is None


def test_prompts_told_by_hashes_are_found_by_these() -> None:
    """In whatever kind of list a face has them."""
    told = Remembering(core := fleet(1))
    hashes = core.hashes(prompt(2))
    core.ask(block_hashes=np.array(hashes, np.uint64), block_size=BLOCK, request_id="r")

    found = told.answers.find_prompt(LookupQuery(block_hashes=array("Q", hashes), block_size=BLOCK), None, None)

    assert found is not None
    assert "r" == found.request_id
    assert QUERY_BYTES + 2 * 8 == told.answers.prompts.bytes


def test_a_question_without_an_id_is_not_remembered() -> None:
    """Nobody could name it."""
    told = Remembering(core := fleet(1))

    core.ask(prompt(2))

    assert 0 == len(told.answers)


def _fleet(*each: tuple[int, str]) -> Core:
    """Sources p0, p1, … that hold so many blocks there."""
    core = Core()
    for number, (blocks, medium) in enumerate(each):
        core.engine(f"p{number}").say(
            *([stored(range(1, blocks + 1), prompt(blocks), medium=medium)] if blocks else [])
        )
    return core


@pytest.mark.parametrize(
    "each",
    [
        [(4, "GPU")] * 3,
        [(4, "CPU")] * 3,
        [(4, "GPU"), (4, "CPU"), (0, "GPU")],
        [(4, "GPU"), (2, "CPU"), (1, "GPU"), (4, "GPU")],
        [(4, "GPU")] * (AT_ONCE_MAX + 1),
        [(4, "GPU"), (3, "GPU")] * AT_ONCE_MAX,
    ],
)
@pytest.mark.parametrize("asked", [{"blocks": 4}, {"blocks": 4, "partial": True}, {"blocks": 6}, {"blocks": 3}])
def test_what_is_remembered_is_what_was_answered(each: list[tuple[int, str]], asked: dict[str, int]) -> None:
    """Of each source, whether all hold alike or not, few or many; one that could not count is not among them."""
    told = Remembering(core := _fleet((4, "GPU"), *each))
    core.cordon("p0", cordoned=True)

    answer = core.ask(prompt(asked["blocks"]), request_id="r", partial=bool(asked.get("partial")))
    while told.answers.tidy():
        pass

    found = told.answers.find("r", None)
    assert found is not None
    assert found.predicted(b"p0#0") is None
    said = {entry.pod: (entry.matched_tokens, entry.reusable_tokens, entry.prefix.gpu) for entry in answer.pods}
    for number in range(1, len(each) + 1):
        predicted = found.predicted(b"p%d#0" % number)
        assert predicted is not None
        assert said[f"p{number}"] == predicted[:3]


def test_a_crowd_that_holds_alike_waits_for_nothing() -> None:
    """Its answer is numbers at once, however many they are, and keeps nothing of the lookup."""
    told = Remembering(core := _fleet(*[(2, "GPU")] * (AT_ONCE_MAX + 1)))

    core.ask(prompt(3), request_id="r")

    assert 0 == told.answers._waiting_matches
    assert 2 * BLOCK == told.reusable("r", f"p{AT_ONCE_MAX}")


def test_what_housekeeping_never_came_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of large fleets hold much until they are made small."""
    monkeypatch.setattr("indexer.receipts.answered.WAITING_MAX", 2)
    monkeypatch.setattr("indexer.receipts.answer.AT_ONCE_MAX", 0)
    told = Remembering(core := fleet(1, 2))

    for name in "abc":
        core.ask(prompt(2), request_id=name)

    assert {"a": None, "b": 4, "c": 4} == {name: told.reusable(name, "a") for name in "abc"}
    assert (1, 1) == (told.answers.dropped, told.reached["feedback.answers_waiting"])


def test_what_goes_before_housekeeping_came_to_it_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else less and less would be remembered."""
    monkeypatch.setattr("indexer.receipts.answer.AT_ONCE_MAX", 0)
    told = Remembering(core := fleet(*[1, 2] * 8), AnswerOptions(bytes_max=10 * (RECORD_BYTES + 60)))
    counts: list[int] = []

    for number in range(100):
        core.ask(prompt(2), request_id=f"r{number}")
        if number % 20 == 19:
            counts.append(len(told.answers))
            told.answers.tidy()

    assert counts[-1] == counts[0] > 5
    core.clock.at += 600.0
    while told.answers.tidy():
        pass
    assert (0, 0, 0) == (len(told.answers), told.answers.bytes, told.answers._waiting_matches)


def test_trust_in_a_byte_says_what_it_was_made_of() -> None:
    """Each state, bound and age comes back."""
    ages = dict(zip(AGE_CLASSES, (0, 100, 4_999, 5_000, 60_000, None), strict=True))
    for state in STATES:
        for bound in BOUNDS:
            for age, lag_ms in ages.items():
                assert Trust(state, bound, age) == in_words(trust_of(state, bound, lag_ms))
