"""Prompts and chats through the client, at a running service that makes their tokens; with asyncio and without."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from api.demo.engine import EngineSimulator
from kvindexer_client import Answer, AsyncClient, Client, Refused
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import RunningService, applied
from tests.support.text_models import published, small_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Way = Literal["sync", "async"]
LONG_S: Final = 20.0
NEAR, FAR, EMPTY = "near:8000", "far:8000", "empty:8000"
PODS: Final = [EMPTY, FAR, NEAR]
PROMPT: Final = "the quick brown fox jumps over the lazy dog, " * 4
CHAT: Final[list[dict[str, Any]]] = [
    {"role": "system", "content": "Be brief — ça suffit."},
    {"role": "user", "content": [{"type": "text", "text": "engine token prefix? " * 5}]},
]
TEMPLATE: Final = (
    "{%- if hurry is defined %}{{- '<hurry ' + hurry + '>' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
SAID: Final = "<|im_start|>system\nBe brief — ça suffit.<|im_start|>user\n" + "engine token prefix? " * 5
BEGUN: Final = "<|im_start|>assistant\n"


def _ids(text: str, *, special: bool) -> list[int]:
    return list(small_tokenizer().encode(text, add_special_tokens=special).ids)


PROMPT_IDS: Final = _ids(PROMPT, special=True)
CHAT_IDS: Final = _ids(SAID + BEGUN, special=False)
HURRIED_IDS: Final = _ids("<hurry now>" + SAID, special=False)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One engine holds prompt and chats whole, another the first half, a third nothing."""
    folder = published(tmp_path_factory.mktemp("model"), template=TEMPLATE)
    with EngineSimulator() as near, EngineSimulator() as far, EngineSimulator() as empty:
        engines = {NEAR: near, FAR: far, EMPTY: empty}
        flags = [f"{pod}={engine.endpoint},model=m" for pod, engine in engines.items()]
        models = json.dumps({"m": {"file": str(folder)}})
        with RunningService(flags, models__tokenizers=models) as running:
            for pod, said in ((NEAR, _events(1)), (FAR, _events(2)), (EMPTY, [stored([1], range(BLOCK))])):
                engines[pod].wait_subscribers()
                engines[pod].publish(payload(*said))
                running.wait_for(lambda pod=pod: applied(running, pod, 0), f"{pod} to be heard")
            yield running
            log = running.log()
    assert not any(word in log for word in ("quick brown", "Be brief", "engine token"))


def _events(share: int) -> Iterator[dict[str, Any]]:
    for number, ids in enumerate((PROMPT_IDS, CHAT_IDS, HURRIED_IDS)):
        blocks = len(ids) // BLOCK // share
        first = 1_000 * (number + 1)
        yield stored(range(first, first + blocks), ids[: blocks * BLOCK])


def _held(ids: list[int]) -> dict[str, int]:
    """By pod, of a prompt that was announced."""
    blocks = len(ids) // BLOCK
    return {NEAR: blocks * BLOCK, FAR: blocks // 2 * BLOCK, EMPTY: 0}


def _asked(service: RunningService, way: Way, ask: Callable[[Any], Any]) -> Any:  # noqa: ANN401  any answer
    """What the call gives, by either client."""
    if way == "sync":
        with Client(service.url, timeout_s=LONG_S) as index:
            return ask(index)

    async def asked() -> object:
        async with AsyncClient(service.url, timeout_s=LONG_S) as index:
            told = ask(index)
            assert inspect.isawaitable(told)
            return await told

    return asyncio.run(asked())


each_way = pytest.mark.parametrize("way", ["sync", "async"])
each_text = pytest.mark.parametrize(
    ("told", "ids"),
    [
        ({"prompt": PROMPT}, PROMPT_IDS),
        ({"messages": CHAT}, CHAT_IDS),
        (
            {"messages": CHAT, "chat_template_kwargs": {"hurry": "now"}, "add_generation_prompt": False},
            HURRIED_IDS,
        ),
        ({"messages": tuple(CHAT), "tools": None}, CHAT_IDS),
    ],
)


@each_way
@each_text
def test_a_text_is_answered_as_its_ids(service: RunningService, way: Way, told: dict[str, Any], ids: list[int]) -> None:
    """Entry for entry, and told how many tokens it has."""
    by_text: Answer = _asked(service, way, lambda index: index.lookup(model="m", **told))
    by_ids: Answer = _asked(service, way, lambda index: index.lookup(ids, model="m"))

    assert _held(ids) == {entry.pod: entry.matched_tokens for entry in by_text.pods}
    assert [(entry.pod, entry.score) for entry in by_ids.pods] == [(entry.pod, entry.score) for entry in by_text.pods]
    assert ("exact", "m", len(ids)) == (by_text.state, by_text.model, by_text.prompt_tokens)
    assert by_text.tokenizer is not None
    assert ("file", "m", len(ids)) == tuple(by_text.tokenizer[name] for name in ("source", "name", "tokens"))
    assert by_ids.tokenizer is None


@each_way
@each_text
def test_a_router_ranks_by_a_text(service: RunningService, way: Way, told: dict[str, Any], ids: list[int]) -> None:
    """Who holds most of it first, who holds nothing last; a pod that nobody knows keeps its place behind."""
    pods = ["unknown:8000", *PODS]
    ranked = _asked(service, way, lambda index: index.rank(pods, model="m", timeout_s=LONG_S, **told))

    assert (None, [NEAR, FAR, "unknown:8000", EMPTY]) == (ranked.failure, ranked.pods)
    assert len(ids) == ranked.answer.prompt_tokens


@each_way
def test_a_batch_mixes_texts_and_ids(service: RunningService, way: Way) -> None:
    """Each in its place; one that cannot be read fails no other."""
    items: list[dict[str, Any]] = [
        {"prompt": PROMPT, "model": "m"},
        {"messages": CHAT, "model": "m"},
        {"token_ids": CHAT_IDS, "model": "m"},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "model": "m"},
        {"prompt": PROMPT, "token_ids": PROMPT_IDS},
    ]
    prompt, chat, ids, image, twice = _asked(service, way, lambda index: index.batch(items))

    assert _held(PROMPT_IDS) == {entry.pod: entry.matched_tokens for entry in prompt.pods}
    assert [_held(CHAT_IDS)] * 2 == [{entry.pod: entry.matched_tokens for entry in told.pods} for told in (chat, ids)]
    assert ["messages.not_text", "prompt.exactly_one"] == [image.code, twice.code]


@each_way
def test_hashes_of_a_text_find_what_the_text_finds(service: RunningService, way: Way) -> None:
    """As the service makes them."""
    hashed = _asked(service, way, lambda index: index.hash(block_size=BLOCK, model="m", messages=CHAT))
    answer = _asked(
        service, way, lambda index: index.lookup(model="m", block_hashes=hashed["hashes"], block_size=BLOCK)
    )

    assert len(CHAT_IDS) == hashed["prompt_tokens"]
    assert _held(CHAT_IDS) == {entry.pod: entry.matched_tokens for entry in answer.pods}


@each_way
@pytest.mark.parametrize("request_", [{"prompt": PROMPT}, {"messages": CHAT, "stream": True, "temperature": 0.5}])
def test_a_pick_takes_the_clients_request(service: RunningService, way: Way, request_: dict[str, Any]) -> None:
    """As it is, or as its bytes; and cut."""
    body = {"model": "m", **request_}
    held = _held(PROMPT_IDS if "prompt" in request_ else CHAT_IDS)
    for sent in (body, json.dumps(body).encode()):
        picked = _asked(service, way, lambda index, sent=sent: index.pick(sent, pods=PODS, timeout_s=LONG_S))
        named = [(pod.pod, pod.matched_tokens) for pod in picked.pods]
        assert [(NEAR, held[NEAR]), (FAR, held[FAR])] == named[:2]
        assert {(EMPTY, 0)} >= {*named[2:]}  # once loads are known, by the picks before, all three are named
    cut = json.dumps({"model": "m", "prompt": PROMPT}).encode()[:-30]
    picked = _asked(service, way, lambda index: index.pick(cut, truncated=True, timeout_s=LONG_S))
    assert NEAR == picked.pods[0].pod


@each_way
def test_what_cannot_be_made_in_time_or_at_all(service: RunningService, way: Way) -> None:
    """Too late: nothing is known, in the order given. Refused: it says which field, and repeats nothing of it."""
    fresh = f"asked by {way} for the first time " * 50
    late: Answer = _asked(
        service, way, lambda index: index.request("POST", "/v1/lookup", json.dumps(_late(fresh)).encode())
    ).json()
    assert ("no_signal", "deadline") == (late["state"], late["reason"])  # type: ignore[index]

    wrong = {"messages": [{"role": "user", "content": [{"type": "input_audio", "planted": "planted"}]}]}
    with pytest.raises(Refused) as caught:
        _asked(service, way, lambda index: index.lookup(model="m", **wrong))
    assert (422, "messages.not_text") == (caught.value.status, caught.value.code)
    ranked = _asked(service, way, lambda index: index.rank(PODS, model="m", timeout_s=LONG_S, **wrong))
    assert PODS == ranked.pods
    assert "messages" in ranked.failure
    for shown in (str(caught.value), repr(caught.value), ranked.failure):
        assert "planted" not in shown


def _late(text: str) -> dict[str, Any]:
    return {"prompt": text, "model": "m", "timeout_ms": 0}


def test_many_ask_for_texts_at_once(service: RunningService) -> None:
    """Each gets its own answer: tasks of one client, and of one thread's loop."""
    texts = [f"{number} " + PROMPT for number in range(60)]

    async def ask() -> list[int]:
        async with AsyncClient(service.url, timeout_s=LONG_S) as index, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(index.lookup(model="m", prompt=text)) for text in texts]
        return [each.result().prompt_tokens for each in asked]

    assert [len(_ids(text, special=True)) for text in texts] == asyncio.run(ask())
