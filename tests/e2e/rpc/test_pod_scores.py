"""llm-d's question, with a real model's tokenizer and real hits: the scores are those of our own answer."""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from tokenizers import Tokenizer

from api.demo.engine import EngineSimulator
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest, PodScore
from schemas.rpc.indexer.v1.indexer_pb2_grpc import IndexerServiceStub
from tests.support.core_events import payload, removed, stored
from tests.support.core_service import RunningService, applied
from tests.support.text_models import published_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK: Final = 16
PROMPT: Final = "Which of these engines has read so much of this before? Ça dépend — 東京, 42 × π, `code()`.\n" * 20
TOKENS: Final[list[int]] = list(Tokenizer.from_file(str(published_tokenizer())).encode(PROMPT).ids)
WHOLE: Final = len(TOKENS) // BLOCK
NEAR, FAR, RANKS, SMALL, EMPTY, OTHER = "near:8000", "far:8000", "ranks:8000", "small:8000", "empty:8000", "other:8000"
DEADLINE_S: Final = 30.0


def _held(blocks: int, *, block_size: int = BLOCK, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  passed on
    return stored(range(1, blocks + 1), TOKENS[: blocks * block_size], block_size=block_size, **fields)


SAID: Final = {
    (NEAR, 0): [_held(WHOLE)],
    (FAR, 0): [_held(2), _held(5, medium="CPU"), _held(9, medium="DISK")],
    (RANKS, 0): [_held(3)],
    (RANKS, 1): [_held(8), removed(8, 7)],
    (SMALL, 0): [_held(10, block_size=32)],
    (EMPTY, 0): [stored([1], [7] * BLOCK, block_size=BLOCK)],
    (OTHER, 0): [_held(WHOLE)],
}
EXPECTED: Final = {
    (NEAR, 0): WHOLE,
    (FAR, 0): 2 * 1.0 + 3 * 0.8 + 4 * 0.5,
    (RANKS, 0): 3,
    (RANKS, 1): 6,
    (SMALL, 0): 10,
}
"""Blocks from the start, each by the weight of its best tier, of that engine's own size."""


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """With engines that hold more or less of the prompt, one of them of another model."""
    with contextlib.ExitStack() as stack:
        engines = {of: stack.enter_context(EngineSimulator()) for of in SAID}
        flags = [
            f"{pod}={engine.endpoint},rank={rank},model={'n' if pod == OTHER else 'm'},alias={pod}-{rank}-alias"
            for (pod, rank), engine in engines.items()
        ]
        running = stack.enter_context(
            RunningService(
                flags,
                models__tokenizers=json.dumps({"m": {"file": str(published_tokenizer())}}),
                models__aliases=json.dumps({"short": "m"}),
            )
        )
        for of, engine in engines.items():
            engine.wait_subscribers()
            engine.publish(payload(*SAID[of]))
        for pod, _ in SAID:
            running.wait_for(lambda pod=pod: applied(running, pod, 0), f"{pod} to be heard")
        yield running


def _scores(service: RunningService, prompt: str, model: str = "m", pods: tuple[str, ...] = ()) -> list[PodScore]:
    found = re.search(r"grpc://([0-9.:]+)", service.banner)
    assert found
    asked = GetPodScoresRequest(prompt=prompt, model_name=model, pod_identifiers=pods)
    with grpc.insecure_channel(found[1]) as channel:
        return list(IndexerServiceStub(channel).GetPodScores(asked, timeout=DEADLINE_S).scores)


def _of_lookup(service: RunningService, model: str, pods: tuple[str, ...], **prompt: object) -> dict[Any, float]:
    """The same number out of our own answer, and in its order."""
    question = {"model": model, "pods": pods or None, **prompt}
    answer = service.call("POST", "/v1/lookup", question)
    assert 200 == answer.status_code, answer.text
    told = answer.json()
    return {
        (entry["pod"], entry["dp_rank"]): entry["score"] * told["prompt_tokens"] / entry["block_size"]
        for entry in told["pods"]
        if entry["score"]
    }


def test_scores_are_weighted_blocks_from_the_start(service: RunningService) -> None:
    """As the engines said; who holds nothing is absent, and so is who serves another model."""
    told = {(score.pod, score.data_parallel_rank): score.score for score in _scores(service, PROMPT)}

    assert pytest.approx(EXPECTED) == told


@pytest.mark.parametrize("model", ["m", "short", "none"])
@pytest.mark.parametrize(
    "pods",
    [
        (),
        (NEAR,),
        (EMPTY,),
        (f"{RANKS}-1-alias", f"http://{FAR}/", NEAR),
        ("nobody:8000", RANKS, OTHER),
        (NEAR, f"{NEAR}-0-alias"),
    ],
)
@pytest.mark.parametrize("end", [len(PROMPT), len(PROMPT) // 2, 1])
def test_scores_are_those_of_our_own_answer(
    service: RunningService, model: str, pods: tuple[str, ...], end: int
) -> None:
    """To the same text, by any name of model and pods; in the order of that answer, and by the names asked for."""
    scores = _scores(service, PROMPT[:end], model, pods)
    ours = _of_lookup(service, model, pods, prompt=PROMPT[:end])

    assert list(ours) == [(score.pod, score.data_parallel_rank) for score in scores]
    assert pytest.approx(list(ours.values())) == [score.score for score in scores]
    assert all(score.HasField("data_parallel_rank") for score in scores)
    if end == len(PROMPT):
        assert ours == pytest.approx(_of_lookup(service, model, pods, token_ids=TOKENS))


def test_they_are_counted_as_what_they_are(service: RunningService) -> None:
    """Beside our own lookups; no text is in the metrics or the log."""
    name = 'kvindexer_lookup_duration_seconds_count{api="llm-d",code="200",input="text"}'
    before = service.metrics().get(name, 0.0)
    _scores(service, PROMPT)

    assert 1 == service.metric(name) - before
    assert "engines has read" not in service._client.get("/metrics").text + service.log()
