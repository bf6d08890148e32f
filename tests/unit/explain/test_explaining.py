"""An explanation around the lookup's answer: the same numbers, whoever asks and however, and what changes meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.hashing.chain import local_hashes
from indexer.index.removals import Removals
from indexer.model import Tier
from indexer.receipts.answered import AnswerOptions, Answers
from schemas.lookup import LookupQuery
from tests.support.core_events import CLEARED, placeholder, prompt, removed, stored, u32
from tests.support.explaining import AskedCore, codes

if TYPE_CHECKING:
    from schemas.explain import PodExplanation

TOKENS = prompt(4)


def test_the_first_missing_block_and_what_became_of_it() -> None:
    """Its place, its hash, when and from where it went; later ones do not count."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1, 2, 3, 4], TOKENS))
    engine.say(removed(4))
    core.clock.at += 10.0
    engine.say(removed(2))
    core.clock.at += 3.0
    core.alive()
    told = core.why(TOKENS)

    assert told.missing is not None
    assert told.removed is not None
    assert (1, 4, 8) == (told.missing.block, told.missing.first_token, told.missing.end_token)
    assert f"{core.hashes(TOKENS)[1]:016x}" == told.missing.hash
    assert ("evicted", 3_000, "gpu", 0) == (told.code, told.removed.ago_ms, told.removed.tier, told.removed.group)
    assert "2023-11-14T22:30:10.000+00:00" == told.removed.at


def test_the_tier_that_it_left_last_is_told() -> None:
    """It was offloaded before it was dropped there, too."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)), placeholder([1, 2]), removed(1, 2))
    core.clock.at += 5.0
    engine.say(removed(2, medium="CPU"))
    told = core.why(TOKENS)

    assert told.removed is not None
    assert ("evicted", "cpu", 4) == (told.code, told.removed.tier, told.matched_tokens)


def test_what_came_back_and_is_there_is_not_missing() -> None:
    """Though its removal is known."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)), removed(2), stored([2], TOKENS[4:8], parent=1))

    assert "never_stored" == core.why(TOKENS).code


def test_removals_of_the_life_before_say_nothing_of_this_one() -> None:
    """The same block, in the same slot."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1], prompt(1)), removed(1), CLEARED, stored([9], prompt(1, 500)))
    core.clock.at += 3_600.0
    core.alive()

    assert ["never_stored", "cleared"] == codes(core.why(TOKENS))


def test_where_older_removals_are_forgotten_that_is_said() -> None:
    """The block may have been among them."""
    core = AskedCore()
    core.mirror.removals = Removals(2, core.clock.now())
    engine = core.engine("a")
    engine.say(stored(range(1, 7), prompt(6)), removed(1, 2, 3))
    core.clock.at += 60.0
    core.alive()
    engine.say(removed(4, 5, 6))
    told = core.why(TOKENS)

    assert "never_stored" == told.code
    assert "or went more than 0.0 s ago: removals of before are not known (limits.removals_kept)" in told.why
    core.mirror.removals = Removals(0)
    assert "removals are not kept here" in core.why(prompt(1, 900)).why


def test_a_young_life_in_which_removals_were_forgotten_already() -> None:
    """However short it is: what went in its first moments may have been the block."""
    core = AskedCore()
    core.mirror.removals = Removals(2, core.clock.now())
    engine = core.engine("a")
    engine.say(stored([1, 2, 3, 4], TOKENS), removed(2, 3, 4))

    assert "or went more than" in core.why(TOKENS[:8]).why
    engine.restart()
    engine.say(stored([1], prompt(1)))
    assert "or went more than" not in " ".join(each.why for each in core.why(TOKENS).further)


def test_a_restart_is_told_as_what_may_be() -> None:
    """Whether the prompt was held before is not known; what else is seen has an advice of its own."""
    core = AskedCore()
    core.engine("b").say(stored([1], prompt(1)))
    engine = core.engine("a")
    engine.say(stored([9], prompt(1, 500)))
    engine.restart()
    engine.say(stored([9], prompt(1, 500)))
    told = core.why(TOKENS)

    assert ["restarted", "start_differs"] == codes(told)
    assert "may have been among it" in told.why
    assert "chat template" in told.further[0].advice


def test_a_source_that_was_loaded_knows_no_removals_of_before() -> None:
    """Its life is older than what this process has seen of it."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1], prompt(1)))
    engine.source.facts.generation -= 60_000_000
    core.lookup.view.touch(engine.source)

    assert "more than 0.0 s ago" in core.why(TOKENS).why


def test_a_journal_tells_that_a_block_went_and_not_why() -> None:
    """A tier with a time to live has no removals: there it is that; elsewhere the engine removed it."""
    core = AskedCore(follows=lambda _: True, tier_ttls={Tier.STORAGE: 3_600.0})
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)), stored([3], TOKENS[8:12], parent=2, medium="STORAGE"))
    lanes = engine.source.lane_table
    third = core.hashes(TOKENS)[2]
    core.mirror.remove(engine.source.slot, lanes.number(0, Tier.STORAGE) or 0, [int(third)])
    assert "expired" == core.why(TOKENS).code
    assert "its journal tells only of what was placed" in core.why(prompt(2, 700)).why
    core.mirror.remove(engine.source.slot, lanes.number(0, Tier.GPU) or 0, [int(core.hashes(TOKENS)[1])])
    assert "evicted" == core.why(TOKENS).code


def test_windows_that_hold_too_little_of_the_end_are_told() -> None:
    """All blocks are held where they must be; and where a group's rule is not known, that."""
    full, window = {"kv_cache_spec_kind": "full_attention"}, {"kv_cache_spec_kind": "sliding_window"}
    core = AskedCore()
    engine = core.engine("a")
    engine.say(
        stored([1, 2, 3, 4], TOKENS, **full),
        stored([11], prompt(1), group_idx=1, kv_cache_spec_sliding_window=9, **window),
    )
    told = core.why([*TOKENS, 7])
    assert ("hybrid_group", None, 16) == (told.code, told.missing, told.matched_tokens)
    assert f"all 4 whole blocks are held, and {told.reusable_tokens} tokens of them can be used" in told.why

    engine.say(stored([21], prompt(1), group_idx=2, kv_cache_spec_kind="mamba"))
    beside = {each.code: each.why for each in core.why(prompt(5)).further}
    assert "the hit rule of one of its cache groups is not known" in beside["hybrid_group"]


def test_prompts_that_begin_with_other_salts_are_told_of() -> None:
    """Whether the same prompt is among them cannot be known; nor does it decide where others begin without."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2), extra_keys=[["s"], None]))
    for query in ({}, {"cache_salt": "t"}):
        assert ["other_salt"] == codes(core.why(TOKENS, **query))
    assert "never_stored" == core.why(TOKENS, cache_salt="s").code, "the rest of it"

    engine.say(stored([3], prompt(1, 50)), stored([4], prompt(1, 60), lora_name="ad", extra_keys=[["ad"]]))
    assert ["never_stored", "other_salt"] == codes(core.why(TOKENS))
    engine.say(CLEARED, stored([5], prompt(1, 70), lora_name="ad", extra_keys=[["ad", ["image", 0]]]))
    assert "other_salt" not in codes(core.why(TOKENS))


def test_ranks_are_entries_of_their_own() -> None:
    """One of them alone where it is named, and none that is not there."""
    core = AskedCore()
    core.engine("a", dp_rank=0).say(stored([1], prompt(1)))
    core.engine("a", dp_rank=1).say(stored([1, 2], prompt(2)))

    assert [(1, 8), (0, 4)] == [(each.dp_rank, each.matched_tokens) for each in core.explain(TOKENS).pods]
    (only,) = core.explain(TOKENS, dp_rank=0, pods=("a",)).pods
    assert (0, 4) == (only.dp_rank, only.matched_tokens)
    (unknown,) = core.explain(TOKENS, dp_rank=7, pods=("a",)).pods
    assert ("pod_unknown", 7) == (unknown.code, unknown.dp_rank)
    nobody = core.explain(TOKENS, dp_rank=7)
    assert ("no_signal", "pod_unknown", []) == (nobody.state, nobody.reason, nobody.pods)
    assert 1 == len(core.explain(TOKENS, limit=1, group="pod").pods)


def test_a_tenant_hears_nothing_of_others() -> None:
    """Neither of their pods nor that they hold the beginning."""
    core = AskedCore()
    core.engine("theirs", tenant="t").say(stored([1, 2], prompt(2)))
    core.engine("a").say(stored([9], prompt(1, 500)))

    assert ["a"] == [each.pod for each in core.explain(TOKENS).pods]
    assert ["never_stored"] == codes(core.why(TOKENS))
    assert "pod_unknown" == core.why(TOKENS, "theirs", pods=("theirs",)).code


def test_others_that_hold_the_beginning_are_named() -> None:
    """Also where the question is about one pod alone."""
    core = AskedCore()
    others = ("pod-1", "pod-2", "pod-3", "pod-4")
    for name in others:
        core.engine(name).say(stored([1], prompt(1)))
    core.engine("a").say(stored([9], prompt(1, 500)))

    for query in ({}, {"pods": ("a",)}):
        told = core.why(TOKENS, **query)
        assert ["never_stored", "start_differs"] == codes(told)
        assert 3 == sum(name in told.further[0].why for name in others)


def _by_hashes(core: AskedCore, tokens: list[int], **query: object) -> PodExplanation:
    return core.why(None, block_hashes=core.hashes(tokens), block_size=4, **query)


def test_hashes_are_explained_as_far_as_they_tell() -> None:
    """A removal is; another adapter cannot be."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1, 2], prompt(2)), removed(2), stored([5], prompt(1), lora_name="ad"))

    assert "evicted" == _by_hashes(core, TOKENS).code
    assert "never_stored" == _by_hashes(core, prompt(2, 80)).code


def test_most_of_what_is_held_under_another_identity_is_told() -> None:
    """Of several adapters the one with the longest beginning; not where less is held than matches."""
    core = AskedCore()
    core.engine("a").say(
        stored([1], prompt(1)),
        stored([11, 12], prompt(2), lora_name="x"),
        stored([21, 22, 23], prompt(3), lora_name="y"),
    )

    assert ("other_adapter", "'y'") == ((told := core.why(TOKENS)).code, told.why.split()[-1])
    assert "12 tokens" in told.why
    assert "other_adapter" == core.why(TOKENS, lora_name="z").code, "of an adapter that nobody knows"
    assert "never_stored" == core.why([*prompt(3), 77, 78, 79, 80], lora_name="y").code


def test_what_waits_is_told_of_the_block_itself() -> None:
    """By its content; with salts and by hashes of content, too."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1], prompt(1), extra_keys=[["s"]]), stored([3], TOKENS[4:8], parent=2))

    assert "was announced, and the block before it is not known" in core.why(TOKENS, cache_salt="s").why
    locals_ = [int.from_bytes(each, "big") for each in _locals(TOKENS)]
    assert "waiting" == core.why(None, block_hashes=locals_[1:], block_size=4, scheme="dynamo").code
    assert "waiting" in codes(_by_hashes(core, TOKENS)), "some wait, which of them is not told"


def _locals(tokens: list[int]) -> list[bytes]:
    return list(local_hashes(u32(tokens), 4))


def test_what_changes_while_it_is_asked_is_said() -> None:
    """A new life, a block that came, a registration that ended: none is mixed with what was told."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1], prompt(1)))

    def comes() -> None:
        if engine.next_sequence == 1:
            engine.say(stored([2], TOKENS[4:8], parent=1))

    assert "never_stored" == core.explain(TOKENS, between=core.alive).pods[0].code
    assert "syncing" == core.explain(TOKENS, between=comes).pods[0].code
    assert "syncing" == core.explain(TOKENS, between=engine.restart).pods[0].code
    engine.say(stored([1], prompt(1)))
    assert "syncing" == core.explain(TOKENS, between=lambda: core.remove("a") if core.sinks else None).pods[0].code


def test_what_is_not_done_by_the_deadline_is_said() -> None:
    """Entries that were made by then stand."""
    core = AskedCore()
    core.engine("a").say(stored([1, 2], prompt(2)))
    core.engine("b").say(stored([1], prompt(1)))
    steps = iter((0.0, 0.0, 1.0))
    answer = core.explain(
        TOKENS, timeout_ms=500, between=lambda: setattr(core.clock, "at", core.clock.at + next(steps, 0))
    )

    assert ["never_stored", "deadline"] == [each.code for each in answer.pods]
    assert ("no_signal", "deadline") == ((late := core.explain(tokens=b"", overdue=True)).state, late.pods[0].code)


def test_a_large_prompt_is_explained_for_many_sources_with_its_hashes_made_once() -> None:
    """Under each identity; beyond so many no further ones are tried."""
    core = AskedCore()
    adapters = [f"ad-{number}" for number in range(40)]
    for pod in ("a", "b"):
        engine = core.engine(pod)
        engine.say(*[stored([100 + n], prompt(1, 5_000 + 10 * n), lora_name=name) for n, name in enumerate(adapters)])
    core.engine("c").say(stored([1], prompt(1), lora_name="late"))

    assert ["never_stored"] * 2 == [each.code for each in core.explain(TOKENS, pods=("a", "b")).pods]
    assert {"never_stored", "other_adapter"} == {each.code for each in core.explain(TOKENS).pods}


def test_nobody_is_said_to_have_been_answered() -> None:
    """Reports of what came of answers are joined to lookups alone."""
    core = AskedCore()
    core.engine("a").say(stored([1], prompt(1)))
    told: list[str] = []
    core.lookup.answers = Answers(core.clock, AnswerOptions(60.0, 1_000_000, 60.0, 1_000_000), 1, told.append)
    core.explain(TOKENS, request_id="why")
    core.lookup.answer(LookupQuery(tokens=u32(TOKENS), request_id="routed"))

    assert None is core.lookup.answers.find("why", None)
    assert None is not core.lookup.answers.find("routed", None)


@pytest.mark.parametrize("state", ["stale", "gap"])
def test_trust_is_told_of_what_is_matched_too(state: str) -> None:
    """A whole match may be false."""
    core = AskedCore()
    engine = core.engine("a")
    engine.say(stored([1, 2, 3, 4], TOKENS))
    if state == "stale":
        core.clock.at += 20.0
    else:
        engine.lose()
        engine.gap()

    told = core.why(TOKENS)
    assert ["last_token", state] == codes(told)
    assert told.advice == told.further[0].advice, "what to do is said of the doubt"
