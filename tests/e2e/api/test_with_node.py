"""The same face with the real node behind it: every path once, each answer in the shape that the document names."""

import asyncio
import http.client
import json
import struct
import threading
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec
import pytest

from api.ports import NodePort
from api.server import ServerSettings, serve
from indexer.clock import SystemClock
from indexer.node import Node
from indexer.settings import Settings
from indexer.settings.sections import Auth
from schemas.lookup import LookupAnswer
from schemas.rest import HashAnswer, Problem, Readiness, SourceList, VersionAnswer
from tests.support.serving import DEADLINE_S, request

JSON = "application/json"
SOURCE = {"pod": "10.9.9.9:8000", "endpoint": "tcp://127.0.0.1:1", "model": "m", "blocks_total": 100}


@pytest.fixture
def settings() -> Settings:
    """Defaults; a test that needs others says so."""
    return Settings()


@pytest.fixture
def client(settings: Settings) -> Iterator[http.client.HTTPConnection]:
    """A connection to a service of its own, which follows nobody yet."""
    stop, loops, bound, up = asyncio.Event(), [], [], threading.Event()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        node = Node(settings, SystemClock())
        port: NodePort = node

        def announce(addresses: Sequence[str]) -> None:
            bound.extend(addresses)
            up.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.run(stop))
            tasks.create_task(serve(port, ServerSettings(port=0), stop, announce=announce))

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert up.wait(DEADLINE_S)
    where = urlsplit(bound[0])
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=DEADLINE_S)
    yield connection
    connection.close()
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def _ask(client: http.client.HTTPConnection, **members: object) -> LookupAnswer:
    status, _, body = request(client, "POST", "/v1/lookup", json.dumps(members).encode(), content_type=JSON)
    assert 200 == status, body
    return msgspec.json.decode(body, type=LookupAnswer)


def test_a_source_is_registered_asked_about_and_forgotten(client: http.client.HTTPConnection) -> None:
    """An engine that never speaks is `new`, counts for nothing, and says why."""
    assert "no_signal" == _ask(client, token_ids=[1, 2]).state

    def register() -> int:
        return request(client, "POST", "/v1/sources", json.dumps(SOURCE).encode(), content_type=JSON)[0]

    assert [201, 200] == [register(), register()]
    entry = _entries(_ask(client, token_ids=[*range(40)], model="m"))[0]
    assert ("10.9.9.9:8000", "new", "no_events_yet", 0) == (
        entry["pod"],
        entry["state"],
        entry["reason"],
        entry["score"],
    )
    listed = msgspec.json.decode(request(client, "GET", "/v1/sources")[2], type=SourceList).sources
    assert [("new", 100, "api")] == [(source.state, source.blocks_total, source.origin) for source in listed]
    ready = request(client, "GET", "/readyz")
    assert (503, False) == (ready[0], msgspec.json.decode(ready[2], type=Readiness).ready)

    path = "/v1/sources/10.9.9.9%3A8000"
    assert 200 == request(client, "PATCH", path, b'{"cordoned":true}', content_type=JSON)[0]
    assert "cordoned" == _entries(_ask(client, token_ids=[1]))[0]["reason"]
    assert 200 == request(client, "POST", path + "/clear")[0]
    assert 404 == request(client, "GET", path + "/blocks/1f")[0]
    assert 200 == request(client, "PUT", "/v1/sources", b"[]", content_type=JSON)[0]
    assert 404 == request(client, "DELETE", path)[0]
    assert 200 == request(client, "GET", "/readyz")[0]


def test_a_registration_is_answered_with_what_should_be_looked_at(client: http.client.HTTPConnection) -> None:
    """As far as it tells by itself; where all is well the answer says nothing of it."""

    def warnings(**source: object) -> list[str] | None:
        body = request(client, "POST", "/v1/sources", json.dumps(source).encode(), content_type=JSON)[2]
        return json.loads(body).get("warnings")  # type: ignore[no-any-return]  # JSON

    bare = warnings(pod="a", endpoint="tcp://127.0.0.1:1", model="m")
    whole = {"pod": "b", "endpoint": "tcp://127.0.0.1:2", "replay_endpoint": "tcp://127.0.0.1:3", "blocks_total": 9}
    assert bare is not None
    assert ["no replay endpoint", "capacity unknown (blocks_total)"] == [text.partition(":")[0] for text in bare]
    assert None is warnings(**whole, model="m")
    assert bare == warnings(pod="a", endpoint="tcp://127.0.0.1:1", model="m")
    (modelless,) = warnings(**{**whole, "pod": "c", "endpoint": "tcp://127.0.0.1:4"}) or [""]
    assert modelless.startswith("no model, and others have one")


def _entries(answer: LookupAnswer) -> list[dict[str, object]]:
    return msgspec.json.decode(msgspec.json.encode(answer.pods))


@pytest.mark.parametrize("content_type", [JSON, "application/msgpack", "application/octet-stream"])
def test_every_form_is_answered(client: http.client.HTTPConnection, content_type: str) -> None:
    """With the same length of prompt."""
    request(client, "POST", "/v1/sources", json.dumps(SOURCE).encode(), content_type=JSON)
    bodies = {
        JSON: json.dumps({"token_ids": [1, 2, 3]}).encode(),
        "application/msgpack": msgspec.msgpack.encode({"token_ids": struct.pack("<3I", 1, 2, 3)}),
        "application/octet-stream": struct.pack("<3I", 1, 2, 3),
    }
    _, headers, body = request(client, "POST", "/v1/lookup", bodies[content_type], content_type=content_type)
    decode = msgspec.msgpack.decode if headers["content-type"] == "application/msgpack" else msgspec.json.decode

    assert 3 == decode(body, type=LookupAnswer).prompt_tokens


def test_hashes_can_be_asked_by(client: http.client.HTTPConnection) -> None:
    """What `/v1/hash` hands out is a prompt for `/v1/lookup`."""
    body = json.dumps({"token_ids": list(range(33)), "block_size": 16}).encode()
    hashed = msgspec.json.decode(request(client, "POST", "/v1/hash", body, content_type=JSON)[2], type=HashAnswer)

    assert 2 == len(hashed.hashes)
    assert {16} == {len(value) for value in hashed.hashes}
    asked = _ask(client, block_hashes=hashed.hashes, block_size=16, prompt_tokens=33, scheme=hashed.scheme)
    assert 33 == asked.prompt_tokens


@pytest.mark.parametrize("settings", [Settings(auth=Auth(hash_secret="pepper"))])  # noqa: S106 - guards nothing
def test_hashes_without_the_secret_are_a_conflict(client: http.client.HTTPConnection) -> None:
    """409, and the rule."""
    body = json.dumps({"block_hashes": [1], "block_size": 16, "scheme": "dynamo"}).encode()
    status, _, answer = request(client, "POST", "/v1/lookup", body, content_type=JSON)
    problem = msgspec.json.decode(answer, type=Problem)

    assert (409, "scheme.conflict", "scheme") == (status, problem.code, problem.errors[0].field)
    assert "pepper" not in answer.decode()


def test_a_wait_for_events_ends_at_its_deadline(client: http.client.HTTPConnection) -> None:
    """What never comes is said to be missing."""
    request(client, "POST", "/v1/sources", json.dumps(SOURCE).encode(), content_type=JSON)
    answer = _ask(client, token_ids=[1], min_sequence={"10.9.9.9:8000": 5}, timeout_ms=20)

    assert "exact" != answer.state


def test_the_service_describes_itself(client: http.client.HTTPConnection) -> None:
    """Version, metrics, and a problem for what is not there."""
    version = msgspec.json.decode(request(client, "GET", "/v1/version")[2], type=VersionAnswer)
    _ask(client, token_ids=[1])
    metrics = request(client, "GET", "/metrics")[2].decode()
    missing = msgspec.json.decode(request(client, "DELETE", "/v1/sources/nobody")[2], type=Problem)

    assert "kvi1" == version.hash_scheme
    assert 'kvindexer_lookup_duration_seconds_count{api="rest",code="200",input="json"} 1' in metrics
    assert ("source.unknown", 404) == (missing.code, missing.status)
