"""Answers: their numbers and their order."""

from __future__ import annotations

from collections import Counter

import pytest

from schemas.lookup import MmItem
from tests.support.core import Core, fleet
from tests.support.core_events import placeholder, prompt, removed, stored

TOKENS = prompt(4)


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_an_answer_in_full() -> None:
    """Every field of an answer and of an entry."""
    core = Core()
    engine = core.engine("10.0.0.1:8000", model="m")
    engine.say(stored([1, 2, 3], TOKENS[:12]), placeholder([3]), removed(3))
    core.clock.at += 0.4
    entry = core.ask([*TOKENS, 7], model="m", request_id="r-1")["10.0.0.1:8000"]
    answer = core.ask([*TOKENS, 7], model="m", request_id="r-1")

    assert ("r-1", "m", None, "model", 17, "exact", None) == (
        answer.request_id,
        answer.model,
        answer.lora_name,
        answer.resolved_by,
        answer.prompt_tokens,
        answer.state,
        answer.reason,
    )
    assert (1, 1, 0) == (answer.shards.answered, answer.shards.total, answer.took_us)
    assert (12, 12, 4, 0) == (entry.matched_tokens, entry.reusable_tokens, entry.block_size, entry.dp_rank)
    assert (8, 4, 0, 0, 0) == tuple(
        getattr(entry.tiers, name) for name in ("gpu", "cpu", "storage", "remote", "unknown")
    )
    assert (8, 12, 12, 12) == tuple(getattr(entry.prefix, name) for name in ("gpu", "cpu", "storage", "remote"))
    assert (8 + 0.8 * 4) / 17 == pytest.approx(entry.score)
    assert ("live", "exact", 0, None, 0) == (
        entry.state,
        entry.bound,
        entry.sequence,
        entry.reason,
        entry.speculative_tokens,
    )
    assert f"{engine.source.facts.generation:x}" == entry.generation
    assert 400 <= (entry.lag_ms or 0) <= 420
    assert 400 <= (entry.event_age_ms or 0) <= 420


@pytest.mark.parametrize(
    ("asked", "partial", "expected"),
    [(16, False, (16, 12)), (17, False, (16, 16)), (16, True, (16, 16)), (15, False, (12, 12)), (13, False, (12, 12))],
)
def test_a_fully_cached_prompt_is_never_a_full_hit(asked: int, partial: bool, expected: tuple[int, int]) -> None:
    """The last token is always computed, unless the prompt goes on."""
    entry = fleet(5).ask(range(asked), partial=partial)["a"]

    assert expected == (entry.matched_tokens, entry.reusable_tokens)


def test_a_partial_last_block_is_no_block() -> None:
    """It is neither hashed nor counted."""
    core = fleet(1)

    assert [0, 0, 4, 4] == [core.ask(range(count))["a"].matched_tokens for count in (0, 3, 4, 7)]


def test_adapter_salt_images_and_windows_of_a_question() -> None:
    """An adapter named as the model, a salt, an image, and a source whose hits a window limits: in one fleet."""
    core = Core()
    core.engine("adapted", model="base").say(stored([1], prompt(1), lora_name="ad", extra_keys=[["ad"]]))
    core.engine("salted", model="base").say(stored([1], prompt(1), extra_keys=[["s"]]))
    core.engine("seeing", model="base").say(stored([1], prompt(1), extra_keys=[[["img", 1]]]))
    window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 5}
    core.engine("hybrid", model="base").say(stored([1, 2], prompt(2)), stored([1], prompt(1), **window))

    assert 4 == core.ask(prompt(1), model="ad")["adapted"].matched_tokens
    assert 4 == core.ask(prompt(1), model="base", cache_salt="s")["salted"].matched_tokens
    assert 4 == core.ask(prompt(1), model="base", mm_items=(MmItem("img", 1, 2),))["seeing"].matched_tokens
    entry = core.ask(range(9), model="base")["hybrid"]
    assert (8, 4) == (entry.matched_tokens, entry.reusable_tokens)


def test_a_middle_block_that_goes_and_comes_back() -> None:
    """What lies behind it never went."""
    core = Core()
    engine = core.engine("a")
    engine.say(stored(range(1, 7), prompt(6)))
    matched = [core.ask(prompt(6))["a"].matched_tokens]
    for event in (removed(3), stored([3], prompt(1, 8), parent=2)):
        engine.say(event)
        matched.append(core.ask(prompt(6))["a"].matched_tokens)

    assert [24, 8, 24] == matched


def test_any_number_of_pods_that_share_a_prefix() -> None:
    """None is dropped for being one too many."""
    core = Core()
    for number in range(300):
        core.engine(f"pod-{number}").say(stored([1, 2], prompt(2)))

    answer = core.ask(prompt(2))

    assert 300 == len(answer.pods)
    assert {8} == {entry.matched_tokens for entry in answer.pods}


def test_a_pod_is_credited_only_for_what_it_holds_itself() -> None:
    """Two pods hold the two halves: neither has the second half's prefix."""
    core = Core()
    core.engine("front").say(stored([1, 2], TOKENS[:8]))
    back = core.engine("back")
    back.say(stored([1, 2, 3, 4], TOKENS), removed(1))

    assert {"front": 8, "back": 0} == core.ask(TOKENS).matched


# -- order -------------------------------------------------------------------------------------------------------------


def test_best_first() -> None:
    """By score; those without a hit behind, those that do not count last; always the same."""
    core = fleet(1, 4, 0, 2, 0)
    core.engine("new")
    core.cordon("b", cordoned=True)

    orders = [core.ask(TOKENS).order for _ in range(3)]

    assert ["d", "a"] == orders[0][:2]
    assert {"c", "e"} == set(orders[0][2:4])
    assert {"b", "new"} == set(orders[0][4:])
    assert orders[0] == orders[1] == orders[2]


def test_equal_scores_have_one_order_in_every_replica_and_spread_over_prompts() -> None:
    """Whatever the order of registration, and whoever holds what: by a rendezvous of prompt and pod."""
    pods = [f"pod-{number}" for number in range(5)]
    first: Counter[str] = Counter()
    hitless: Counter[str] = Counter()
    one, other = Core(shift=3), Core(shift=9)
    for core, order in ((one, pods), (other, pods[::-1])):
        for pod in order:
            engine = core.engine(pod)
            for start in range(50):
                engine.say(stored([start * 10 + 1], prompt(1, 100 * start)))
    for start in range(50):
        held, unheld = prompt(1, 100 * start), prompt(1, 100_000 + 100 * start)
        assert one.ask(held).order == other.ask(held).order
        assert one.ask(unheld).order == other.ask(unheld).order
        first[one.ask(held).order[0]] += 1
        hitless[one.ask(unheld).order[0]] += 1

    assert min(first[pod] for pod in pods) >= 3
    assert min(hitless[pod] for pod in pods) >= 3


def test_ranks_of_one_pod_are_ordered_too() -> None:
    """Equal scores within a pod."""
    core = Core()
    for rank in range(4):
        core.engine("pod", dp_rank=rank).say(stored([1], prompt(1)))

    orders = {tuple(entry.dp_rank for entry in core.ask([*prompt(1), extra]).pods) for extra in range(5)}
    assert 1 == len(orders)
    assert {0, 1, 2, 3} == set(next(iter(orders)))


@pytest.mark.parametrize(("limit", "expected"), [(0, 4), (2, 2), (9, 4)])
def test_limit(limit: int, expected: int) -> None:
    """The best so many; 0 is all."""
    answer = fleet(1, 4, 0, 2).ask(TOKENS, limit=limit)

    assert expected == len(answer.pods)
    assert "b" == answer.order[0]


def test_one_entry_a_pod() -> None:
    """With `group: pod` the best rank of each, named in `dp_rank`."""
    core = Core()
    for pod, rank, blocks in (("a", 0, 1), ("a", 1, 3), ("a", 2, 0), ("b", 0, 0), ("b", 1, 2), ("c", 5, 0)):
        events = [stored(range(1, blocks + 1), prompt(blocks))] if blocks else []
        core.engine(pod, dp_rank=rank).say(*events)

    answer = core.ask(TOKENS, group="pod")

    assert [("a", 1, 12), ("b", 1, 8), ("c", 5, 0)] == [(e.pod, e.dp_rank, e.matched_tokens) for e in answer.pods]
    assert 6 == len(core.ask(TOKENS).pods)
    assert ["a", "b"] == core.ask(TOKENS, group="pod", limit=2).order


def test_one_entry_a_pod_in_the_usual_order() -> None:
    """Those that do not count come last there, too."""
    core = fleet(0, 0, 0, 1)
    core.engine("new")
    core.cordon("b", cordoned=True)

    for start in range(8):
        order = core.ask(prompt(1, 900 + start), group="pod").order
        assert {"b", "new"} == set(order[-2:])
        assert {"a", "c", "d"} == set(order[:3])


def test_every_tier_in_one_entry() -> None:
    """Five blocks, one a tier: each cumulative prefix ends one block further."""
    core = Core()
    engine = core.engine("a")
    engine.say(stored([1, 2, 3, 4, 5], prompt(5)))
    for engine_hash, medium in ((2, "CPU"), (3, "DISK"), (4, "EXTERNAL"), (5, "tape")):
        engine.say(placeholder([engine_hash], medium), removed(engine_hash))

    entry = core.ask(prompt(5))["a"]
    assert (4, 8, 12, 16) == (entry.prefix.gpu, entry.prefix.cpu, entry.prefix.storage, entry.prefix.remote)
    assert (4, 4, 4, 4, 4) == (
        entry.tiers.gpu,
        entry.tiers.cpu,
        entry.tiers.storage,
        entry.tiers.remote,
        entry.tiers.unknown,
    )
    assert (1 + 0.8 + 0.5 + 0.5) / 5 == pytest.approx(entry.score)


def test_what_lies_in_gpu_memory_counts_fully() -> None:
    """The usual entry: tiers, prefixes and score of blocks that are all there."""
    entry = fleet(2).ask([*prompt(4), 7])["a"]

    assert (8, 0, 0, 0, 0) == (
        entry.tiers.gpu,
        entry.tiers.cpu,
        entry.tiers.storage,
        entry.tiers.remote,
        entry.tiers.unknown,
    )
    assert (8, 8, 8, 8) == (entry.prefix.gpu, entry.prefix.cpu, entry.prefix.storage, entry.prefix.remote)
    assert 8 / 17 == pytest.approx(entry.score)
