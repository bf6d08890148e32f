"""Prompts that are said to be routed, and what lookups show of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.errors import BadRequestError, SourceUnknownError
from indexer.receipts import routed, speculation
from indexer.receipts.repeats import REPEATED_S
from indexer.source_words import reason_in_words
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport
from tests.support.core import Core
from tests.support.core_events import CLEARED, prompt, removed, stored, u32
from tests.support.steps import done

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKENS = prompt(4)
KNOWN = [9_001, 9_002, 9_003, 9_004]
"""A block that makes an engine's block size known."""


def core_of(*pods: str, **descriptor: object) -> Core:
    """Engines that hold something, and nothing of TOKENS."""
    core = Core()
    for pod in pods:
        core.engine(pod, **descriptor).say(stored([99], KNOWN))
    return core


def expected(core: Core, tokens: Iterable[int] = TOKENS, **query: object) -> dict[str, int]:
    """Speculative tokens by pod."""
    return {entry.pod: entry.speculative_tokens for entry in core.ask(tokens, **query).pods}


# -- what a lookup shows ----------------------------------------------------------------------------------------------


def test_whole_blocks_are_expected_and_never_count_as_held() -> None:
    """Speculative tokens stand beside what is held: no match, no score, no tier, and the answer stays exact."""
    core = core_of("a", "b")
    assert "expected" == core.route([*TOKENS, 7], "a")
    answer = core.ask([*TOKENS, 7, 8])
    entry = answer["a"]

    assert ("exact", "no_match") == (answer.state, answer.reason)
    assert (16, 0, 0, 0.0, "no_match") == (
        entry.speculative_tokens,
        entry.matched_tokens,
        entry.reusable_tokens,
        entry.score,
        entry.reason,
    )
    assert ["a", "b"] == answer.order
    assert 0 == answer["b"].speculative_tokens


def test_what_is_held_comes_before_what_is_expected() -> None:
    """The score alone ranks; of equal scores more expected tokens come first, then the order as it was."""
    core = core_of("a", "b", "c", "d")
    for pod, hashes in (("a", [1, 2]), ("b", [1]), ("c", [1])):
        core.speaker(pod).say(stored(hashes, TOKENS[: 4 * len(hashes)]))
    core.route(TOKENS, "c")
    core.route(TOKENS[:8], "d")
    answer = core.ask(TOKENS)

    assert ["a", "c", "b", "d"] == answer.order
    assert {"a": 0, "b": 0, "c": 12, "d": 8} == expected(core)
    assert answer["b"].score == answer["c"].score < answer["a"].score


def test_the_run_goes_through_what_is_held_and_ends_at_what_is_neither() -> None:
    """Blocks that the engine holds behind a hole continue a run that fills the hole."""
    core = core_of("a")
    engine = core.speaker("a")
    engine.say(stored([1, 2, 3, 4], TOKENS), removed(2))
    assert "expected" == core.route(TOKENS[:12], "a")
    assert (4, 12) == (core.ask(TOKENS)["a"].matched_tokens, core.ask(TOKENS)["a"].speculative_tokens)
    engine.say(removed(4))
    assert 8 == core.ask(TOKENS)["a"].speculative_tokens


def test_in_each_encoding_and_grouping_the_same() -> None:
    """By pod, with a limit, by hashes, in MessagePack and for gRPC."""
    core = core_of("a", "b")
    core.route(TOKENS, "b")

    assert {"a": 0, "b": 16} == expected(core, group="pod")
    assert ["b"] == core.ask(TOKENS, limit=1).order
    told = core.ask(None, block_hashes=core.hashes(TOKENS).tolist(), block_size=4)
    assert {"a": 0, "b": 16} == {entry.pod: entry.speculative_tokens for entry in told.pods}
    for encoding in ("msgpack", "proto"):
        packed = core.lookup.answer(LookupQuery(tokens=u32(TOKENS)), encoding).pods
        first = packed[0]
        assert not isinstance(first, bytes)
        assert ("b", 16) == (first.pod, first.speculative_tokens)


def test_a_prompt_never_seen_before_is_hashed_as_far_as_it_is_expected() -> None:
    """Hashing ends where nobody holds anything, unless something is expected there."""
    core = core_of("a")
    long = prompt(1_000)
    core.route(long, "a")
    core.lookup.forget_prompts()

    assert 4_000 == core.ask(long)["a"].speculative_tokens


def test_who_must_not_be_used_is_not_expected_to_hold_anything() -> None:
    """A cordoned source, and one that lags more than the caller bears."""
    core = core_of("a")
    core.route(TOKENS, "a")
    core.cordon("a", cordoned=True)
    assert {"a": 0} == expected(core)
    core.cordon("a", cordoned=False)
    core.clock.at += 2
    core.alive()
    assert {"a": 0} == expected(core, max_lag_ms=1_000)


# -- which prompt, and whose ------------------------------------------------------------------------------------------


def test_adapter_salt_and_alias_belong_to_the_prompt() -> None:
    """Blocks are expected under the hashes that a lookup of the same prompt asks for, and no other."""
    core = Core(aliases={"short": "m"})
    engine = core.engine("a", model="m", aliases=("one",))
    engine.say(stored([99], KNOWN), stored([98], KNOWN, lora_name="ad", extra_keys=[["ad"]]))
    core.route(TOKENS, "one", model="short", cache_salt="s")
    core.route(TOKENS[:8], "a", model="ad")

    assert {"a": 16} == expected(core, model="m", cache_salt="s")
    assert {"a": 8} == expected(core, model="m", lora_name="ad")
    assert {"a": 0} == expected(core, model="m")


def test_of_an_answered_lookup_its_prompt_counts() -> None:
    """With the model that the lookup named."""
    core = core_of("a", model="m")
    before = {("r", "default"): LookupQuery(tokens=u32(TOKENS), model="m", pods=("other",))}
    core.routed.asked_before = lambda request, tenant: before.get((request, tenant))

    assert "expected" == core.route(None, "a", of="r")
    assert {"a": 16} == expected(core)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({"of": "never"}, "of.unknown"),
        ({"model": "n"}, "model.unknown"),
        ({"model": "other"}, "model.other"),
        ({"block_hashes": [1], "block_size": 8}, "block_size.other"),
    ],
)
def test_what_contradicts_what_is_known_is_refused(report: dict[str, object], code: str) -> None:
    """Rather than expecting what no lookup would find."""
    core = core_of("a", model="m")
    core.engine("b", model="other")
    tokens = None if {"of", "block_hashes"} & report.keys() else TOKENS
    with pytest.raises(BadRequestError) as refused:
        core.route(tokens, "a", **report)

    assert code == refused.value.code
    assert 0 == core.speculation.blocks


def test_a_pod_of_several_ranks_is_told_by_rank() -> None:
    """Another tenant's is not there."""
    core = Core()
    for rank in (0, 1):
        core.engine("a", dp_rank=rank, tenant="t").say(stored([99], KNOWN))
    with pytest.raises(BadRequestError, match="several ranks"):
        core.route(TOKENS, "a", tenant="t")
    with pytest.raises(SourceUnknownError):
        core.route(TOKENS, "a", dp_rank=1)
    assert "expected" == core.route(TOKENS, "a", dp_rank=1, tenant="t")
    assert 16 == core.ask(TOKENS, tenant="t").rank("a", 1).speculative_tokens


def test_nothing_is_expected_of_a_source_whose_block_size_nobody_told() -> None:
    """Nor of a prompt without a whole block."""
    core = core_of("a")
    core.engine("silent")

    assert ("not_placed", "not_placed") == (core.route(TOKENS, "silent"), core.route([1, 2, 3], "a"))
    assert {"a": 0, "silent": 0} == expected(core)


def test_what_is_held_already_is_not_expected() -> None:
    """The engine will announce nothing."""
    core = core_of("a")
    core.speaker("a").say(stored([1, 2, 3, 4], TOKENS))

    assert "held" == core.route(TOKENS, "a")
    assert 0 == core.speculation.blocks


# -- once -------------------------------------------------------------------------------------------------------------


def test_a_request_counts_once_in_a_while() -> None:
    """By its id and tenant; one that was refused did not count."""
    core = core_of("a")
    with pytest.raises(SourceUnknownError):
        core.route(TOKENS, "nobody", request_id="r")
    results = [core.route(TOKENS, "a", request_id="r") for _ in range(2)]
    assert ["expected", "repeated"] == results
    core.clock.at += 20
    core.tidy_receipts()
    assert "repeated" == core.route(TOKENS, "a", request_id="r")
    assert {"a": 0} == expected(core)
    core.clock.at += REPEATED_S
    core.alive()
    assert "expected" == core.route(TOKENS, "a", request_id="r")


def test_a_request_that_was_sent_to_another_pod_counts_there_too() -> None:
    """A router that tries again elsewhere keeps its id; of each engine process it counts once."""
    core = core_of("a", "b")
    for rank in (0, 1):
        core.engine("c", dp_rank=rank).say(stored([99], KNOWN))
    to = [("a", None), ("b", None), ("c", 0), ("c", 1)]
    results = [core.route(TOKENS, pod, dp_rank=rank, request_id="r") for _ in range(2) for pod, rank in to]

    assert ["expected"] * 4 + ["repeated"] * 4 == results
    assert all(each.speculative_tokens == 16 for each in core.ask(TOKENS).pods)


def test_a_pod_that_another_tenant_registers_next_knows_nothing_of_the_request() -> None:
    """Nor does a pod that came back under its name, for another tenant."""
    core = Core()
    for tenant in ("t", "u"):
        core.engine("a", tenant=tenant).say(stored([99], KNOWN))
        assert ["expected", "repeated"] == [core.route(TOKENS, "a", tenant=tenant, request_id="r") for _ in range(2)]
        core.remove("a")


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_the_event_ends_it_and_is_a_sample() -> None:
    """From then on the blocks are held, or evicted: nothing more is expected."""
    core = core_of("a", model="m")
    core.route(TOKENS, "a")
    core.clock.at += 0.4
    engine = core.speaker("a")
    engine.say(stored([1, 2, 3], TOKENS[:12]))
    core.tidy_receipts()
    assert (12, 4) == (core.ask(TOKENS)["a"].matched_tokens, core.ask(TOKENS)["a"].speculative_tokens)
    engine.say(stored([4], TOKENS[12:], parent=3))
    core.tidy_receipts()
    engine.say(removed(4), removed(3))
    assert (8, 0) == (core.ask(TOKENS)["a"].matched_tokens, core.ask(TOKENS)["a"].speculative_tokens)
    for _ in range(7):
        core.delays.seen(engine.source.descriptor.id, "m", 0.4)
    assert 0.8 == pytest.approx(core.routed.ttl_s(engine.source))


def test_the_deadline_ends_it_and_a_late_event_is_still_a_sample() -> None:
    """Else a source that became slower than its deadlines would never be known to be."""
    core = core_of("a")
    engine = core.speaker("a")
    for _ in range(8):
        core.delays.seen(engine.source.descriptor.id, None, 1.0)
    core.route(TOKENS, "a")
    core.clock.at += 1.9
    core.tidy_receipts()
    assert {"a": 16} == expected(core)
    core.clock.at += 0.2
    core.tidy_receipts()
    assert {"a": 0} == expected(core)
    assert 0 == core.speculation.blocks
    core.clock.at += 2
    engine.say(stored([1, 2, 3, 4], TOKENS))
    core.tidy_receipts()
    assert 8.2 == pytest.approx(core.routed.ttl_s(engine.source))


def test_what_never_comes_is_watched_for_a_while_and_told() -> None:
    """A request that was cancelled, or a hint that was wrong."""
    core = core_of("a")
    core.route(TOKENS, "a")
    core.clock.at += speculation.WATCHED_S
    core.tidy_receipts()
    core.tidy_receipts()
    assert {"expired": 1} == core.receipts_ended


def test_a_later_receipt_keeps_what_both_name() -> None:
    """The newest word counts: blocks that it names outlive the earlier one's deadline, the others do not."""
    core = core_of("a")
    core.route(TOKENS, "a")
    core.clock.at += 6
    core.alive()
    core.route(TOKENS[:8], "a")
    core.clock.at += 6
    core.alive()
    core.tidy_receipts()

    assert {"a": 8} == expected(core)
    assert 2 == core.speculation.blocks


@pytest.mark.parametrize("how", ["restart", "clear", "cleared by the engine", "removal"])
def test_with_its_generation_all_ends_at_once(how: str) -> None:
    """And what comes under the same slot next is not taken for it."""
    core = core_of("a")
    engine = core.speaker("a")
    core.route(TOKENS, "a")
    if how == "restart":
        engine.restart()
    elif how == "clear":
        core.ingest.clear(engine.sink)
    elif how == "cleared by the engine":
        engine.say(CLEARED)
    else:
        core.remove("a")
        engine = core.engine("a")
    engine.say(stored([99], KNOWN))

    assert {"a": 0} == expected(core)
    assert 0 == core.speculation.blocks
    core.tidy_receipts()
    core.route(TOKENS[:4], "a")
    assert {"a": 4} == expected(core)


def test_marks_are_given_out_again_once_nothing_has_them() -> None:
    """A thousand generations leave nothing behind."""
    core = core_of("a")
    engine = core.speaker("a")
    for _ in range(1_000):
        engine.say(stored([99], KNOWN))
        core.route(TOKENS, "a")
        engine.restart()
        core.tidy_receipts()
    core.clock.at += 20
    core.tidy_receipts()
    assert core.speculation.is_empty


LONG = prompt(2_000)
"""In several portions."""


@pytest.mark.parametrize("what", [{}, {"cache_salt": "s"}, {"block_hashes": list(range(2_000)), "scheme": "dynamo"}])
def test_of_a_long_prompt_all_is_expected_in_many_steps(what: dict[str, object]) -> None:
    """Between which others run; told again meanwhile, it counts once."""
    core = core_of("a")
    told = dict(what, block_size=4) if "block_hashes" in what else dict(what, tokens=u32(LONG))
    query = LookupQuery(**told)  # type: ignore[arg-type]
    report = RoutedReport(pod="a", dp_rank=None, request_id="r", of=None, query=query)
    steps = core.routed.take(report)
    next(steps)
    assert 0 == core.speculation.blocks
    assert "repeated" == done(core.routed.take(report))
    assert "expected" == done(steps)
    assert 2_000 == core.speculation.blocks
    assert {"a": 8_000} == {entry.pod: entry.speculative_tokens for entry in core.lookup.answer(query).pods}


@pytest.mark.parametrize("how", ["restart", "removal", "another under its name"])
def test_of_an_engine_that_ends_while_it_is_looked_at_nothing_is_expected(how: str) -> None:
    """Nor of what comes in its place."""
    core = core_of("a")
    report = RoutedReport(pod="a", dp_rank=None, request_id=None, of=None, query=LookupQuery(tokens=u32(LONG)))
    steps = core.routed.take(report)
    next(steps)
    if how == "restart":
        core.speaker("a").restart()
    else:
        core.remove("a")
        core.engine("b" if how == "removal" else "a").say(stored([99], KNOWN))

    assert "not_placed" == done(steps)
    assert core.speculation.is_empty


# -- limits -----------------------------------------------------------------------------------------------------------


def test_of_too_many_blocks_those_due_next_go() -> None:
    """And it is counted."""
    core = core_of("a", blocks_total=None)
    prompts = [[number, *range(1, 4_000)] for number in range(110)]
    for each in prompts:
        core.route(each, "a")

    assert 0 < core.limits_reached[speculation.BLOCKS_LIMIT]
    assert 100_000 >= core.speculation.blocks > 90_000
    assert (0, 4_000) == (expected(core, prompts[0])["a"], expected(core, prompts[-1])["a"])


def test_of_a_very_long_prompt_the_beginning_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is counted."""
    monkeypatch.setattr(routed, "BLOCKS_MAX", 3)
    core = core_of("a")
    core.route(TOKENS, "a")

    assert {"a": 12} == expected(core)
    assert 1 == core.limits_reached[routed.BLOCKS_LIMIT]


def test_of_too_many_receipts_the_latest_end_by_their_deadlines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their events are not looked for, and that is counted."""
    monkeypatch.setattr(speculation, "RECEIPTS_MAX", 1)
    core = core_of("a")
    for number in range(2):
        core.route([number, 1, 2, 3], "a")
    core.speaker("a").say(stored([1], [0, 1, 2, 3]), stored([2], [1, 1, 2, 3]))
    core.tidy_receipts()

    assert (1, 1) == (core.speculation.blocks, core.limits_reached[speculation.RECEIPTS_LIMIT])
    core.clock.at += 11
    core.tidy_receipts()
    assert core.speculation.is_empty


def test_a_block_that_is_named_again_and_again_takes_no_more_room() -> None:
    """Its deadline moves; it outlives what was named once, and goes when nobody names it any more."""
    core = core_of("a")
    core.route([7, *TOKENS], "a")
    for _ in range(40):
        core.route(TOKENS, "a")
        core.clock.at += 1
        core.tidy_receipts()
    core.alive()
    assert (4, 16) == (core.speculation.blocks, expected(core)["a"])
    assert 0 == core.limits_reached.total()
    core.clock.at += 11
    core.tidy_receipts()
    assert core.speculation.is_empty


# -- engines that may never speak -------------------------------------------------------------------------------------


def test_an_engine_that_need_not_speak_is_live_on_what_was_routed() -> None:
    """By estimate, for its model's time, whatever events other engines take."""
    core = Core(silent_block_sizes={"m": 4}, silent_ttl_s=100.0)
    core.engine("a", model="m", connected=False)
    core.engine("b", model="m").say(stored([99], KNOWN))
    assert "expected" == core.route(TOKENS, "a", model="m")
    core.clock.at += 99
    core.alive()
    core.tidy_receipts()
    answer = core.ask(TOKENS, model="m")
    entry = answer["a"]

    assert ("degraded", "no_match", ["a", "b"]) == (answer.state, answer.reason, answer.order)
    assert ("live", "estimate", "approximate", 4, 16, 0.0, None) == (
        entry.state,
        entry.bound,
        entry.reason,
        entry.block_size,
        entry.speculative_tokens,
        entry.score,
        entry.sequence,
    )
    assert ("live", "exact", "no_match") == (answer["b"].state, answer["b"].bound, answer["b"].reason)
    core.clock.at += 1.2
    core.alive()
    core.tidy_receipts()
    assert {"a": 0, "b": 0} == expected(core, model="m")
    assert core.receipts_ended.total() == 0


def test_one_that_speaks_after_all_is_known_by_that_alone() -> None:
    """Also after a restart; hints of before are gone."""
    core = Core(silent_block_sizes={"m": 8})
    engine = core.engine("a", model="m")
    core.route(TOKENS, "a", model="m")
    assert {"a": 16} == expected(core, model="m")
    engine.say(stored([99], KNOWN))
    core.tidy_receipts()
    entry = core.ask(TOKENS, model="m")["a"]
    assert ("live", "exact", "no_match", 4, 0) == (
        entry.state,
        entry.bound,
        entry.reason,
        entry.block_size,
        entry.speculative_tokens,
    )
    assert 0 == core.speculation.blocks
    engine.restart()
    assert ("new", "no_events_yet") == (core.ask(TOKENS, model="m")["a"].state, core.ask(TOKENS, model="m")["a"].reason)


def test_a_clear_of_one_that_never_spoke_forgets_what_was_routed() -> None:
    """It stays what it is; so does one that is cordoned, which does not count."""
    core = Core(silent_block_sizes={"m": 4})
    engine = core.engine("a", model="m", connected=False)
    core.route(TOKENS, "a", model="m")
    core.ingest.clear(engine.sink)
    assert {"a": 0} == expected(core, model="m")
    assert "approximate" == core.ask(TOKENS, model="m")["a"].reason
    core.route(TOKENS, "a", model="m")
    core.cordon("a", cordoned=True)
    entry = core.ask(TOKENS, model="m")["a"]
    assert ("cordoned", 0) == (entry.reason, entry.speculative_tokens)


def test_an_operator_reads_why_it_is_an_estimate() -> None:
    """In a sentence."""
    core = Core(silent_block_sizes={"m": 4})
    source = core.engine("a", model="m").source
    told = reason_in_words(source.facts, core.lookup.view.prepared(source, core.clock.now()))

    assert told is not None
    assert "models.approximate" in told
