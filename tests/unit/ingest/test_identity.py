"""What makes two blocks the same: tokens and all before them, adapter, salt, images, lookahead; never the model."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.lookup import MmItem
from tests.support.core import Core
from tests.support.core_events import prompt, removed, stored

ADAPTER: dict[str, Any] = {"lora_name": "ad", "extra_keys": [["ad"], ["ad"]]}


def matched(core: Core, **query: Any) -> int:  # noqa: ANN401  the query's own types
    """Tokens of a two-block prompt."""
    return core.ask(prompt(2), **query)["pod"].matched_tokens


def test_an_adapter() -> None:
    """Right, absent, other."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2), **ADAPTER))

    assert [8, 0, 0] == [matched(core, lora_name=name) for name in ("ad", None, "other")]
    assert "adapter_unknown" == core.ask(prompt(2), lora_name="other")["pod"].reason


def test_an_adapter_known_by_its_number_only() -> None:
    """Numbers differ from process to process: nobody can ask for it, and the base model does not hold it."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2), lora_id=1))

    assert [0, 0, 0] == [matched(core), matched(core, lora_name="1"), matched(core, lora_name="0")]
    assert "exact" == core.ask(prompt(2)).state


def test_an_adapter_of_the_registration() -> None:
    """A source that serves one adapter and does not say so in its events."""
    core = Core()
    core.engine(lora_name="ad").say(stored([1, 2], prompt(2)))

    assert [8, 0] == [matched(core, lora_name="ad"), matched(core)]


def test_an_adapters_name_as_model() -> None:
    """Resolved to base model and adapter once events have named it."""
    core = Core()
    core.engine(model="base").say(stored([1, 2], prompt(2), **ADAPTER))

    answer = core.ask(prompt(2), model="ad")

    assert ("base", "ad", "adapter", 8) == (
        answer.model,
        answer.lora_name,
        answer.resolved_by,
        answer["pod"].matched_tokens,
    )


def test_adapters_are_bounded() -> None:
    """An engine with very many of them, or with absurd names: indexed and asked for by `lora_name`, not listed."""
    core = Core()
    engine = core.engine(model="base")
    for number in range(5_000):
        engine.say(stored([number + 1], prompt(1), lora_name=f"ad-{number}"))
    engine.say(stored([9_999], prompt(1), lora_name="x" * 10_000))

    assert len(engine.source.adapters) < 5_000
    assert engine.source.counters["adapters_unlisted"] + len(engine.source.adapters) == 5_001
    assert 4 == core.ask(prompt(1), lora_name="ad-4999")["pod"].matched_tokens


def test_a_salt() -> None:
    """Its owner's prompts alone; the chain carries it to later blocks."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1), extra_keys=[["s"]]), stored([2], prompt(1, 4), parent=1))

    assert [8, 0, 0] == [matched(core, cache_salt=salt) for salt in ("s", None, "t")]
    assert "no_match" == core.ask(prompt(2), cache_salt="t")["pod"].reason


def test_salt_and_adapter_never_meet() -> None:
    """A salt named as an adapter, an adapter named as a salt."""
    core = Core()
    core.engine("salted").say(stored([1, 2], prompt(2), extra_keys=[["ad"], None]))
    core.engine("adapted").say(stored([1, 2], prompt(2), **ADAPTER))

    assert {"salted": 8, "adapted": 0} == core.ask(prompt(2), cache_salt="ad").matched
    assert {"salted": 0, "adapted": 8} == core.ask(prompt(2), lora_name="ad").matched
    assert {"salted": 0, "adapted": 0} == core.ask(prompt(2)).matched


def test_images_with_equal_placeholder_tokens() -> None:
    """Another image, another place, none: other blocks."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2), extra_keys=[[["img", 2]], [["img", -2]]]))

    assert 8 == matched(core, mm_items=(MmItem("img", 2, 4),))
    for items in ((), (MmItem("other", 2, 4),), (MmItem("img", 1, 4),)):
        assert 0 == matched(core, mm_items=items)
    assert 4 == matched(core, mm_items=(MmItem("img", 2, 2),))


def test_an_image_of_before_0_19_is_never_found() -> None:
    """Its place was not told: a miss, not a false hit."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)), stored([2], prompt(1, 4), parent=1, extra_keys=[["img"]]))

    assert [4, 4] == [matched(core), matched(core, mm_items=(MmItem("img", 4, 4),))]


def test_prompt_embeddings_are_never_found() -> None:
    """No question can name them."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2), extra_keys=[[b"\x01" * 32], None]))

    assert 0 == matched(core)


def test_lookahead() -> None:
    """Equal blocks before different next tokens are different; the last block needs the token after it."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2), lookahead_token_ids=[[4], [8]]))

    assert 8 == core.ask(range(9))["pod"].matched_tokens
    assert 4 == core.ask(range(8))["pod"].matched_tokens
    assert 4 == core.ask([*range(8), 99])["pod"].matched_tokens
    assert 0 == core.ask([0, 1, 2, 3, 99])["pod"].matched_tokens
    assert "lookahead" == core.ask(range(4))["pod"].reason


def test_an_engine_that_restarts_without_lookahead() -> None:
    """What it hashed ahead before is forgotten with it."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2), lookahead_token_ids=[[4], [8]]))
    engine.restart()
    engine.say(stored([1, 2], prompt(2)))

    assert 8 == matched(core)


def test_equal_tokens_at_two_places() -> None:
    """One prompt holds the same block twice: two engine hashes, two contents; removing one keeps the other."""
    core = Core()
    engine = core.engine()
    same = [5, 5, 5, 5]
    engine.say(stored([1, 2], same * 2))

    engine.say(removed(2))
    assert 4 == core.ask(same * 3)["pod"].matched_tokens
    engine.say(stored([2], same, parent=1), removed(1))
    assert 0 == core.ask(same * 3)["pod"].matched_tokens
    assert 1 == core.mirror.table.live


def test_two_models_with_equal_engine_hashes() -> None:
    """Same tokens, same fixed seed: each source's hashes are its own, and so are its removals."""
    core = Core()
    one, two = core.engine("one", model="m1"), core.engine("two", model="m2")
    for engine in (one, two):
        engine.say(stored([1, 2], prompt(2)))

    assert [{"one": 8}, {"two": 8}] == [core.ask(prompt(2), model=model).matched for model in ("m1", "m2")]
    one.say(removed(2), removed(1))
    assert [{"one": 0}, {"two": 8}] == [core.ask(prompt(2), model=model).matched for model in ("m1", "m2")]


def test_a_removal_needs_no_model() -> None:
    """Events name neither model nor adapter on removal: the source and its hash are enough."""
    core = Core()
    engine = core.engine(model="m")
    engine.say(stored([1, 2], prompt(2), **ADAPTER))
    engine.say(removed(1), removed(2))

    assert 0 == core.mirror.table.live


def test_ranks_of_one_pod_are_sources_of_their_own() -> None:
    """Rank 1 evicts, rank 0 keeps; a restart of the one says nothing of the other."""
    core = Core()
    ranks = [core.engine("pod", dp_rank=rank) for rank in range(2)]
    for engine in ranks:
        engine.say(stored([1, 2], prompt(2)), rank=engine.source.descriptor.dp_rank)

    ranks[1].say(removed(2), removed(1), rank=1)
    answer = core.ask(prompt(2))
    assert (8, 0) == (answer.rank("pod", 0).matched_tokens, answer.rank("pod", 1).matched_tokens)
    ranks[0].restart()
    answer = core.ask(prompt(2))
    assert ("new", "live") == (answer.rank("pod", 0).state, answer.rank("pod", 1).state)


@pytest.mark.parametrize("seeds", [(1, 1), (1, 1001)])
def test_engine_hashes_of_two_pods_may_or_may_not_be_equal(seeds: tuple[int, int]) -> None:
    """Since 0.29 they are by default, before they never were: the answers are the same."""
    core = Core()
    for pod, seed in zip("ab", seeds, strict=True):
        core.engine(pod).say(stored([seed, seed + 1], prompt(2)))

    assert {"a": 8, "b": 8} == core.ask(prompt(2)).matched
    assert 2 == core.mirror.table.live


def test_a_deployment_secret() -> None:
    """Keys what is stored and what is asked alike."""
    keyed, plain = Core(secret=b"s"), Core()
    for core in (keyed, plain):
        core.engine().say(stored([1, 2], prompt(2)))
        assert 8 == matched(core)

    assert list(keyed.hashes(prompt(2))) != list(plain.hashes(prompt(2)))


def test_tokens_that_are_no_tokens() -> None:
    """SGLang's pairs: the event is used by its hashes, and they wait for tokens that tell which blocks they are."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], [[0, 1], [1, 2], [2, 3], [3, 4]]))

    assert ("lower", 0) == (core.ask(prompt(1))["pod"].bound, core.ask(prompt(1))["pod"].matched_tokens)
    engine.say(removed(1))
    assert 0 == engine.source.map.waiting
