"""Whatever is asked of whatever fleet: the answer's reason is the one that all of its entries have."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.lookup import LookupQuery
from tests.support.core import Answer, Core
from tests.support.core_events import prompt, stored, u32

NOT_CANDIDATES: Final = {"other_model", "model_unknown", "filtered", "pod_unknown"}
KINDS: Final = ("new", "silent", "plain", "coarse", "ahead", "hybrid", "cordoned", "syncing", "gone")
HELD: Final = prompt(4)
OTHER: Final = [900 + n for n in range(40)]
PODS: Final = ("a", "b", "c", "nobody")

engines = st.tuples(
    st.sampled_from(KINDS), st.sampled_from(["m", "n"]), st.sampled_from(["prefill", "both"]), st.integers(0, 1)
)
fleets = st.lists(engines, max_size=3)
options = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "n", "x"]),
        "pods": st.lists(st.sampled_from(PODS), unique=True).map(tuple),
        "pod_roles": st.sampled_from([("prefill",), ("decode",)]),
        "group": st.just("pod"),
        "max_lag_ms": st.sampled_from([0, 1_000_000]),
        "min_sequence": st.sampled_from([{"a": 99}, {"b": 0}, {"nobody": 1}]),
        "lora_name": st.just("ad"),
        "overdue": st.just(value=True),
    },
)
prompts = st.one_of(
    st.sampled_from([HELD, OTHER, OTHER[:3], OTHER[:4], OTHER[:15], []]).map(lambda ids: {"tokens": u32(ids)}),
    st.builds(
        lambda size, hashes, scheme: {"block_size": size, "block_hashes": hashes, "scheme": scheme},
        st.sampled_from([1, 4, 16, 32]),
        st.lists(st.integers(1, 9), min_size=1, max_size=3),
        st.sampled_from([None, "dynamo"]),
    ),
)


def _engine(core: Core, pod: str, kind: str, model: str, role: str, dp_rank: int) -> None:
    made = core.engine(pod, model=model, role=role, dp_rank=dp_rank)
    if kind == "new":
        return
    size = 16 if kind == "coarse" else 4
    ahead = {"lookahead_token_ids": [[4]]} if kind == "ahead" else {}
    made.say(*([] if kind == "silent" else [stored([1], prompt(size // 4), block_size=size, **ahead)]))
    if kind == "hybrid":
        made.say(stored([1], prompt(1), group_idx=1, kv_cache_spec_kind="mamba"))
    if kind == "cordoned":
        core.cordon(pod, cordoned=True, dp_rank=dp_rank)
    if kind == "syncing":
        made.sink.syncing(True)


@given(fleet=fleets, of=options, told=prompts, down=st.booleans())
def test_the_answers_reason_is_the_one_all_entries_have(
    fleet: list[tuple[str, str, str, int]], of: dict[str, Any], told: dict[str, Any], down: bool
) -> None:
    """In every form of a question and an answer; None where somebody holds something."""
    core = Core()
    for pod, engine in zip(PODS, fleet, strict=False):
        _engine(core, pod, *engine)
    core.clock.at += 100.0 if down else 0.0
    query = LookupQuery(**told, **of)
    answer = msgspec.json.decode(msgspec.json.encode(core.lookup.answer(query)), type=Answer)
    said = {entry.reason for entry in answer.pods}

    assert {answer.reason} == {core.lookup.answer(query, encoding).reason for encoding in ("json", "msgpack", "proto")}
    if any(entry.matched_tokens for entry in answer.pods):
        assert answer.reason is None
    elif len(said) == 1:
        assert said == {answer.reason}
    elif query.overdue:
        assert "deadline" == answer.reason
    elif said:
        of_candidates = said - NOT_CANDIDATES
        unknown = query.model == "x" or not {query.model} <= {None, *(model for _, model, _, _ in fleet)}
        wanted = "model_unknown" if unknown else of_candidates.pop() if len(of_candidates) == 1 else "no_match"
        assert wanted == answer.reason
    else:
        assert answer.reason in {"model_unknown", "filtered", "no_events_yet"}
