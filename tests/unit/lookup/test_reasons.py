"""Why nothing matched: the closed list of reasons, each by a situation that has it."""

from __future__ import annotations

from typing import Any, get_args

from indexer.model import Reason
from tests.support.core import Core, fleet, reasons
from tests.support.core_events import prompt, stored

TOKENS = prompt(4)


def why(core: Core, token_ids: list[int] | None = None, **query: Any) -> tuple[str | None, set[str | None]]:  # noqa: ANN401
    """The answer's reason and those of its entries."""
    answer = core.ask(TOKENS if token_ids is None else token_ids, **query)
    return answer.reason, {entry.reason for entry in answer.pods}


def asked_reasons() -> dict[str, tuple[str | None, set[str | None]]]:
    """Every reason of this version, each by a situation that has it."""
    other = [900, 901, 902, 903]
    plain = fleet(1)
    new, silent, hybrid, ahead = Core(), Core(), Core(), Core()
    new.engine("a")
    silent.engine("a").say()
    hybrid.engine("a").say(stored([1], prompt(1)), stored([1], prompt(1), group_idx=1, kv_cache_spec_kind="mamba"))
    ahead.engine("a").say(stored([1], prompt(1), lookahead_token_ids=[[4]]))
    cordoned, down, syncing, unready = fleet(1), fleet(1), fleet(1), fleet(1)
    cordoned.cordon("a", cordoned=True)
    unready.make_ready("a", ready=False)
    down.clock.at += 100.0
    next(iter(syncing.sinks.values())).syncing(True)
    models = fleet(1, model="m")
    models.engine("z", model="n").say()
    roles = fleet(1, role="decode")
    return {
        "no_match": why(plain, other),
        "below_block_size": why(plain, [0, 1]),
        "no_events_yet": why(new),
        "model_unknown": why(models, model="x"),
        "other_model": why(models, model="m", pods=("z",)),
        "adapter_unknown": why(plain, lora_name="ad"),
        "other_block_size": why(plain, [], block_hashes=[5], block_size=16, tokens=None),
        "block_size_unknown": why(silent),
        "lookahead": why(ahead, [0, 1, 2, 3]),
        "hybrid_window": why(hybrid, other),
        "syncing": why(syncing, other),
        "lagging": why(plain, max_lag_ms=0),
        "down": why(down),
        "cordoned": why(cordoned),
        "not_ready": why(unready),
        "filtered": why(roles, pods=("a",), pod_roles=("prefill",)),
        "pod_unknown": why(plain, pods=("x",)),
        "deadline": why(plain, other, min_sequence={"a": 99}),
    }


LATER = {
    "stale": "a stale source is scored until it is down",
    "approximate": "approximate mode comes with receipts",
}


def test_every_reason_has_a_situation() -> None:
    """The closed list: each is an entry's or the answer's in some situation; later versions bring the rest."""
    found = asked_reasons()

    assert set(get_args(Reason)) == set(found) | set(LATER)
    for reason, (of_answer, of_entries) in found.items():
        assert reason in {of_answer, *of_entries}, (reason, of_answer, of_entries)


def test_the_answers_reason_is_the_one_all_entries_have() -> None:
    """Different ones: nobody matched. None where somebody holds something."""
    core = fleet(1)
    core.engine("new")

    assert ("no_match", {"no_match", "no_events_yet"}) == why(core, [900, 901, 902, 903])
    turned = Core()
    turned.engine("new")
    turned.engine("other").say(stored([1], prompt(1)))
    assert ("no_match", {"no_match", "no_events_yet"}) == why(turned, [900, 901, 902, 903])
    assert (None, {None, "no_events_yet"}) == why(core)
    assert "no_events_yet" == Core().ask(TOKENS).reason
    assert "filtered" == core.ask(TOKENS, pod_roles=("prefill",), pods=()).reason


def test_reasons_in_an_answer_of_one_entry_a_pod() -> None:
    """The same as in the other form."""
    core = fleet(1)
    core.engine("new")

    for query in ({}, {"group": "pod"}):
        assert {"a": "below_block_size", "new": "no_events_yet"} == reasons(core.ask([0], **query))
        assert {"a": "no_match", "new": "no_events_yet"} == reasons(core.ask([900] * 4, **query))
    assert {"a": "no_match", "new": "no_events_yet"} == reasons(core.ask(block_hashes=[5], block_size=4))


def test_reasons_of_short_prompts_follow_each_sources_block_size() -> None:
    """In one answer."""
    core = Core()
    core.engine("fine").say(stored([1], prompt(1)))
    core.engine("coarse").say(stored([1], prompt(4), block_size=16))

    assert {"fine": "no_match", "coarse": "below_block_size"} == reasons(core.ask([900, 901, 902, 903, 904]))
    assert {"fine": "below_block_size", "coarse": "below_block_size"} == reasons(core.ask([900]))
