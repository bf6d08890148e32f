"""The client as a router has it: one file and httpx, nothing else of ours, against a real service, and without one."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.answering import answering, ok, saying, trickling, trickling_body
from tests.support.bare_router import run_bare
from tests.support.served_fleet import MODEL, PODS, ServedFleet

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
STRANGER = "10.0.0.9:8000"

ASKS = """
import array, asyncio, json, sys
import kvindexer_client as k

url, asked = sys.argv[1], json.loads(sys.argv[2])
ids, options = asked["ids"], {"model": asked["model"], "cache_salt": None}
held = lambda answer: {entry.pod: entry.reusable_tokens for entry in answer.pods}
image = array.array("I", ids).tobytes()
out = {}

with k.Client(url, "unused") as index:
    hashes = index.hash(ids, block_size=16)
    out["sync"] = [held(index.lookup(form, **options)) for form in (ids, tuple(ids), image, array.array("I", ids))]
    by_hash = index.lookup(block_hashes=hashes["hashes"], block_size=16, prompt_tokens=len(ids), **options)
    out["hashes"] = held(by_hash)
    out["rank"] = index.rank(asked["pods"], ids, model=asked["model"], timeout_s=20.0).pods
    out["sources"] = [source["pod"] for source in index.sources()]
    out["version"] = sorted(index.version())
    out["mode"] = index.partitions()["mode"]
    many = index.batch([{"token_ids": ids, **options}, {"token_ids": [-1]}, {"token_ids": image}])
    out["batch"] = [many[0] and held(many[0]), many[1].code, len(many[2].pods)]
    picked = index.pick({"model": asked["model"], "prompt": ids, "stream": True}, pods=asked["pods"])
    out["pick"] = [picked.state, [(pod.pod, pod.matched_tokens) for pod in picked.pods]]
    asked_by = index.lookup(ids, request_id="reported", **options)
    told = [{"request_id": "reported", "pod": pod, "cached_tokens": held(asked_by)[pod]} for pod in held(asked_by)]
    out["feedback"] = index.feedback([*told, {"pod": "nobody", "token_ids": image, "cached_tokens": 0}])
    sent = [{"pod": asked["pods"][1], "token_ids": [7] * 64}, {"pod": "nobody", "of": "reported", "dp_rank": None}]
    out["routed"] = index.routed(sent)
    try:
        index.lookup(prompt="Once", model=asked["model"])
    except k.Refused as refused:
        out["text"] = refused.code
    try:
        index.lookup(ids, model="x" * 1000)
    except k.Refused as refused:
        out["refused"] = [refused.status, refused.code, refused.fields[0].field]
    try:
        index.remove_source(asked["pods"][-1])
    except k.Refused as refused:
        out["conflict"] = [refused.status, refused.code]
    new = {"pod": "new", "endpoint": "tcp://127.0.0.1:9", "model": "other"}
    out["managed"] = [
        index.register_source(new)["result"], index.cordon_source("new")["sources"],
        index.cordon_source("new", cordoned=False)["sources"], index.clear_source("new", dp_rank=0)["sources"],
        index.replace_sources([new])["kept"], index.remove_source("new")["sources"],
    ]

async def asynchronously():
    async with k.AsyncClient(url) as index:
        many = await asyncio.gather(*(index.lookup(ids, **options, timeout_s=20.0) for _ in range(100)))
        out["async"] = [held(answer) for answer in many]
        out["ranked"] = (await index.rank(asked["pods"], image, model=asked["model"], timeout_s=20.0)).pods
        out["again"] = await index.feedback(told)
        out["routed again"] = await index.routed(sent)
        out["default"] = many[0].pods_or(["elsewhere"])[-1]

asyncio.run(asynchronously())
print(json.dumps(out))
"""


def _asked(fleet: ServedFleet, bare: Path, url: str) -> tuple[dict[str, Any], dict[str, int]]:
    tokens, cached = next((tokens, cached) for tokens, cached in fleet.probed(20) if any(cached.values()))
    question = {"ids": list(tokens), "model": MODEL, "pods": [STRANGER, *reversed(PODS)]}
    return json.loads(run_bare(bare, ASKS, url, json.dumps(question))), cached


@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_it_asks_in_every_form_and_gets_the_same_answer(fleet: ServedFleet, bare: Path, door: str) -> None:
    """Sync and async, over a port and a Unix socket; the answers are what the engines said themselves."""
    url = fleet.url if door == "tcp" else f"unix:{fleet.service.args[-1]}"  # type: ignore[index]
    out, cached = _asked(fleet, bare, url)
    by_tokens = sorted(pod for pod, tokens in cached.items() if tokens == max(cached.values()))

    assert [cached] * 4 == out["sync"]
    assert [cached] * 100 == out["async"]
    assert set(cached) == set(out["hashes"])
    for order in (out["rank"], out["ranked"]):
        assert {STRANGER, *PODS} == set(order)
        assert order[0] in by_tokens
        assert cached[order[0]] > 0
        assert STRANGER in order[sum(tokens > 0 for tokens in cached.values()) :]
    assert PODS == out["sources"]
    assert {"version", "hash_scheme", "layout"} <= set(out["version"])
    assert ("memory", "elsewhere") == (out["mode"], out["default"])
    assert [422, "model.not_allowed", "model"] == out["refused"]
    assert [409, "source.conflict"] == out["conflict"]
    assert [cached, "token_ids.not_u32", len(PODS)] == out["batch"]
    assert "prompt.no_tokenizer" == out["text"]
    assert len(PODS) == out["feedback"]["joined"] == out["feedback"]["accepted"] == out["again"]["accepted"]
    assert [(len(PODS), "source.unknown")] == [(each["index"], each["code"]) for each in out["feedback"]["items"]]
    assert 0 == out["again"]["joined"]
    for routed in (out["routed"], out["routed again"]):
        assert (1, [(1, "source.unknown")]) == (
            routed["accepted"],
            [(each["index"], each["code"]) for each in routed["items"]],
        )
    state, lines = out["pick"]
    assert "exact" == state
    assert lines[0][0] in by_tokens
    assert cached[lines[0][0]] <= lines[0][1]
    assert ["created", 1, 1, 1, 1, 1] == out["managed"]


FIRST = """
import asyncio, json, sys
import kvindexer_client as k

async def asynchronously():
    async with k.AsyncClient(sys.argv[1]) as index:
        before = set(sys.modules)
        ranked = await index.rank(["a"], [1, 2], timeout_s=20.0)
        return [ranked.failure, sorted(set(sys.modules) - before)]

def synchronously():
    with k.Client(sys.argv[1]) as index:
        before = set(sys.modules)
        ranked = index.rank(["a"], [1, 2], timeout_s=20.0)
        return [ranked.failure, sorted(set(sys.modules) - before)]

print(json.dumps(asyncio.run(asynchronously()) if sys.argv[2] == "async" else synchronously()))
"""


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_the_first_rank_imports_nothing(fleet: ServedFleet, bare: Path, kind: str) -> None:
    """Its deadline is a few milliseconds: what takes longer to load was loaded when the client was made."""
    assert ["no_signal: pod_unknown", []] == json.loads(run_bare(bare, FIRST, fleet.url, kind))


def test_the_ten_lines_of_a_router(fleet: ServedFleet, bare: Path) -> None:
    """As they are shown to readers, but for address and model; asked until an answer came in time."""
    tokens, cached = next((tokens, cached) for tokens, cached in fleet.probed(20) if any(cached.values()))
    shown = (HERE / "from_a_router.py").read_text()
    code = shown.replace("http://127.0.0.1:8080", fleet.url).replace('"llama"', f'"{MODEL}"')
    pods = [STRANGER, *PODS]
    told = run_bare(bare, f"{code}\n{ASKS_ON.format(tokens=list(tokens), pods=pods)}").split()

    assert code != shown
    assert cached[told[-1]] > 0
    assert {STRANGER} >= set(told[:-1])


ASKS_ON = """
import asyncio
async def ask_on():
    while (pod := await pod_for({tokens}, {pods})) == {pods}[0]:
        print(pod)
        await asyncio.sleep(0.5)
    print(pod)
    await index.close()
asyncio.run(ask_on())
"""
WITHOUT = """
import asyncio, json, sys
import kvindexer_client as k

url, wait_s, pods, out = sys.argv[1], float(sys.argv[2]), ["b", "a"], {}

def failed(ask):
    try:
        ask()
    except k.KvindexerError as error:
        return type(error).__name__
    return "answered"

with k.Client(url) as index:
    out["sync"] = [index.rank(pods, [1, 2, 3], timeout_s=0.1).pods for _ in range(5)]
    out["rests"] = index.rank(pods, [1, 2, 3], timeout_s=0.1).failure
    out["lookup"] = failed(lambda: index.lookup([1, 2, 3], timeout_s=wait_s))
    out["bad"] = [index.rank(pods, [-1]).pods, index.rank(pods, None, timeout_s=0.1).pods, index.rank(pods, 7).pods]

async def asynchronously():
    async with k.AsyncClient(url) as index:
        out["async"] = [(await index.rank(pods, b"1234", timeout_s=0.1)).pods for _ in range(5)]
        out["together"] = [
            ranking.pods for ranking in await asyncio.gather(*(index.rank(pods, [1], timeout_s=0.1) for _ in range(50)))
        ]

asyncio.run(asynchronously())
print(json.dumps(out))
"""
ORDER = ["b", "a"]


def _fails_open(bare: Path, url: str, error: str) -> None:
    """And a plain lookup fails by that error: at its deadline early, by anything else in all the time it takes."""
    wait_s = 0.1 if error == "DeadlinePassed" else 20.0
    out = json.loads(run_bare(bare, WITHOUT, url, str(wait_s)))

    assert [ORDER] * 5 == out["sync"] == out["async"]
    assert [ORDER] * 50 == out["together"]
    assert [ORDER] * 3 == out["bad"]
    assert "left alone" in out["rests"]
    assert error == out["lookup"]


def test_a_dead_index_costs_nothing_but_knowledge(bare: Path) -> None:
    """Nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        _fails_open(bare, f"http://127.0.0.1:{reserved.getsockname()[1]}", "Unreachable")


def test_a_frozen_index_is_left_at_the_deadline(fleet: ServedFleet, bare: Path) -> None:
    """Stopped as a whole: its kernel still takes connections and requests."""
    fleet.service.send_signal(signal.SIGSTOP)
    try:
        _fails_open(bare, fleet.url, "DeadlinePassed")
    finally:
        fleet.service.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("slow", [trickling, trickling_body])
def test_an_index_that_never_ends_its_answer_is_left_at_the_deadline(
    bare: Path, slow: Callable[[socket.socket, threading.Event], None]
) -> None:
    """Although every byte comes in time."""
    with answering(slow) as url:
        _fails_open(bare, url, "DeadlinePassed")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "Unreachable"),
        (b"", "Unreachable"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "Unreachable"),
        (ok(b"<html>"), "BadAnswer"),
        (ok(b"[]"), "BadAnswer"),
        (ok(b'{"state": "exact", "pods": [{"pod": 3}]}'), "BadAnswer"),
        (ok(b'{"state": "exact", "pods": [{"pod": "a", "score": "much"}]}'), "BadAnswer"),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", "Refused"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", "Refused"),
        (b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n", "Refused"),
    ],
)
def test_garbage_is_no_answer(bare: Path, said: bytes, error: str) -> None:
    """Another protocol, an end in the middle, another service, a gateway that has nobody behind it."""
    with answering(saying(said)) as url:
        _fails_open(bare, url, error)
