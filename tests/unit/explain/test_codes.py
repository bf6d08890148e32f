"""Why an engine holds no more: the closed list of codes, each by a situation that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from indexer.explain.codes import ADVICE, CODES, Code
from indexer.model import Reason, Tier
from tests.support.core_events import CLEARED, placeholder, prompt, removed, stored
from tests.support.explaining import AskedCore, codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.explain import PodExplanation
    from tests.support.core import Speaker

TOKENS = prompt(4)
OTHER = prompt(4, 900)


def one(*events: object, **descriptor: Any) -> tuple[AskedCore, Speaker]:  # noqa: ANN401  passed on as it is
    """An engine `a` that has said this."""
    core = AskedCore()
    engine = core.engine("a", **descriptor)
    engine.say(*events)
    return core, engine


def _complete() -> PodExplanation:
    return one(stored([1, 2, 3, 4], TOKENS))[0].why([*TOKENS, 7])


def _last_token() -> PodExplanation:
    return one(stored([1, 2, 3, 4], TOKENS))[0].why(TOKENS)


def _hybrid_group() -> PodExplanation:
    full = {"kv_cache_spec_kind": "full_attention"}
    core, _ = one(stored([1, 2], prompt(2), **full), stored([11], prompt(1), group_idx=1, **full))
    return core.why(TOKENS)


def _evicted() -> PodExplanation:
    core, engine = one(stored([1, 2, 3, 4], TOKENS))
    engine.say(removed(3))
    core.clock.at += 90.0
    core.alive()
    return core.why(TOKENS)


def _expired() -> PodExplanation:
    core = AskedCore(tier_ttls={Tier.STORAGE: 30.0})
    core.engine("a").say(stored([1, 2], prompt(2), medium="STORAGE"))
    core.clock.at += 31.0
    core.tidy()
    core.alive()
    return core.why(TOKENS)


def _given_up() -> PodExplanation:
    core, engine = one(stored([1, 2, 3, 4], TOKENS), blocks_total=4)
    engine.lose(removed(4))
    engine.gap()
    for number in range(12):
        engine.say(stored([100 + number], prompt(1, 1000 + 10 * number)))
    return core.why(TOKENS)


def _other_adapter() -> PodExplanation:
    return one(stored([1, 2], prompt(2), lora_name="ad"))[0].why(TOKENS)


def _other_salt() -> PodExplanation:
    return one(stored([1, 2], prompt(2)))[0].why(TOKENS, cache_salt="s")


def _waiting() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.say(stored([3], TOKENS[4:8], parent=2))
    return core.why(TOKENS)


def _syncing() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.sink.syncing(True)
    return core.why(OTHER)


def _stale() -> PodExplanation:
    core, _ = one(stored([1], prompt(1)))
    core.clock.at += 20.0
    return core.why(TOKENS)


def _gap() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.lose()
    engine.lose()
    engine.gap()
    return core.why(TOKENS)


def _in_doubt() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.say_bytes(b"\xc1")
    return core.why(TOKENS)


def _cleared() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.say(CLEARED)
    core.clock.at += 3.0
    return core.why(TOKENS)


def _restarted() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.restart()
    engine.say(stored([9], OTHER[:4]))
    return core.why(TOKENS)


def _history_truncated() -> PodExplanation:
    core = AskedCore()
    engine = core.engine("a")
    engine.next_sequence = 7
    engine.say(stored([1], prompt(1)))
    return core.why(TOKENS)


def _not_indexed() -> PodExplanation:
    core, engine = one(stored([1], prompt(1)))
    engine.say(stored([2], prompt(2, 50), block_size=8))
    return core.why(TOKENS)


def _never_stored() -> PodExplanation:
    return one(stored([1], prompt(1)))[0].why(TOKENS)


def _start_differs() -> PodExplanation:
    return one(stored(range(1, 21), prompt(20)))[0].why(OTHER)


def _tier_only() -> PodExplanation:
    core, engine = one(stored([1, 2], prompt(2)))
    engine.say(placeholder([1, 2]), removed(1, 2))
    return core.why(TOKENS)


def _down() -> PodExplanation:
    core, _ = one(stored([1], prompt(1)))
    core.clock.at += 100.0
    return core.why(TOKENS)


def _cordoned() -> PodExplanation:
    core, _ = one(stored([1], prompt(1)))
    core.cordon("a", cordoned=True)
    return core.why(TOKENS)


def _not_ready() -> PodExplanation:
    core, _ = one(stored([1], prompt(1)))
    core.make_ready("a", ready=False)
    return core.why(TOKENS)


def _lookahead() -> PodExplanation:
    return one(stored([1], prompt(1), lookahead_token_ids=[[4]]))[0].why(prompt(1))


def _no_events_yet() -> PodExplanation:
    core = AskedCore()
    core.engine("a")
    return core.why(TOKENS)


def _speculative() -> PodExplanation:
    core, _ = one(stored([1], prompt(1)))
    core.route(TOKENS, "a")
    return core.why(TOKENS)


def _approximate() -> PodExplanation:
    core = AskedCore(silent_block_sizes={"m": 4})
    core.engine("a", model="m")
    return core.why(TOKENS)


def plain(**query: Any) -> Callable[[], PodExplanation]:  # noqa: ANN401  passed on as it is
    """Of an engine of model m and role decode that holds one block."""

    def asked() -> PodExplanation:
        core, _ = one(stored([1], prompt(1)), model="m", role="decode")
        core.clock.at += query.pop("later", 0.0)
        if "block_hashes" not in query:
            query.setdefault("token_ids", TOKENS)
        return core.why(**query)

    return asked


SITUATIONS: dict[Code, Callable[[], PodExplanation]] = {
    "complete": _complete,
    "last_token": _last_token,
    "hybrid_group": _hybrid_group,
    "evicted": _evicted,
    "expired": _expired,
    "given_up": _given_up,
    "other_adapter": _other_adapter,
    "other_salt": _other_salt,
    "waiting": _waiting,
    "syncing": _syncing,
    "stale": _stale,
    "gap": _gap,
    "in_doubt": _in_doubt,
    "cleared": _cleared,
    "restarted": _restarted,
    "history_truncated": _history_truncated,
    "not_indexed": _not_indexed,
    "never_stored": _never_stored,
    "start_differs": _start_differs,
    "tier_only": _tier_only,
    "speculative": _speculative,
    "below_block_size": plain(token_ids=[0, 1]),
    "lookahead": _lookahead,
    "other_block_size": plain(block_hashes=[5], block_size=16),
    "block_size_unknown": lambda: one()[0].why(TOKENS),
    "adapter_unknown": plain(token_ids=OTHER, lora_name="ad"),
    "no_events_yet": _no_events_yet,
    "down": _down,
    "cordoned": _cordoned,
    "not_ready": _not_ready,
    "lagging": plain(max_lag_ms=0),
    "approximate": _approximate,
    "deadline": plain(token_ids=OTHER, min_sequence={"a": 99}),
    "other_model": lambda: _two_models().why(TOKENS, model="n", pods=("a",)),
    "model_unknown": plain(model="x", pods=("a",)),
    "filtered": plain(pods=("a",), pod_roles=("prefill",)),
    "pod_unknown": plain(pod="x", pods=("x",)),
}
FURTHER = {"start_differs", "tier_only", "speculative"}
"""Never what decides."""


def _two_models() -> AskedCore:
    core, _ = one(stored([1], prompt(1)), model="m")
    core.engine("b", model="n").say()
    return core


def test_every_code_has_a_situation() -> None:
    """The closed list: what an explanation can say, and no more."""
    assert set(get_args(Code)) == set(SITUATIONS)


@pytest.mark.parametrize("code", SITUATIONS)
def test_a_situation_is_told_by_its_code(code: Code) -> None:
    """As what decides, or as what else should be known."""
    explained = SITUATIONS[code]()

    assert code in codes(explained)
    assert code == explained.code or code in FURTHER
    for each in (explained, *explained.further):
        assert ADVICE[each.code] == each.advice  # type: ignore[index]  # a code
        assert each.why
        assert len(codes(explained)) == len(set(codes(explained)))


def test_every_code_is_described_and_has_advice() -> None:
    """In the same order."""
    assert list(get_args(Code)) == list(CODES) == list(ADVICE)


def test_every_reason_of_a_lookup_has_a_code() -> None:
    """By the same name, or by what stands behind it."""
    behind = {"no_match": "never_stored", "hybrid_window": "hybrid_group"}
    assert {behind.get(reason, reason) for reason in get_args(Reason)} <= set(get_args(Code))
