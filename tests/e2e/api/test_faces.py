"""The faces from outside: requests as the originals' clients send them, over real sockets."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from api.demo.engine import EngineSimulator
from api.server import ServerSettings
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import Descriptor, SourceId
from schemas.lookup import Holding
from tests.support.core_service import RunningService
from tests.support.core_traces import Recording, recording
from tests.support.fake_node import FakeNode
from tests.support.serving import served_in_thread

PROBES = 40
"""Of a recording that are asked."""
PACKED = {"content-type": "application/msgpack"}
DYNAMOS = {"instance_id": 7, "endpoint": "tcp://127.0.0.1:5557", "model_name": "m", "block_size": 16}
MOONCAKES = {
    "endpoint": "tcp://127.0.0.1:5557",
    "type": "vLLM",
    "modelname": "m",
    "instance_id": "prefill-1",
    "block_size": 128,
    "dp_rank": 0,
    "tenant_id": "default",
    "lora_name": "",
    "hash_profile": {
        "strategy": "vllm_v1",
        "algorithm": "sha256_cbor",
        "python_hash_seed": "0",
        "index_projection": "low64_be",
    },
}
"""As its example proxy registers."""


@pytest.fixture
def served() -> Iterator[tuple[FakeNode, httpx.Client]]:
    """A server, and the double behind it."""
    node = FakeNode()
    with (
        served_in_thread(node, ServerSettings(port=0, grpc_port=None)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}") as client,
    ):
        yield node, client


def _packed(client: httpx.Client, path: str, body: object) -> tuple[int, Any]:
    answer = client.post(path, content=msgspec.msgpack.encode(body), headers=PACKED)
    assert answer.headers["content-type"] == "application/msgpack", answer.text
    return answer.status_code, msgspec.msgpack.decode(answer.content)


def test_dynamos_registration(served: tuple[FakeNode, httpx.Client]) -> None:
    """201, then 409; the number is the pod's name; what nobody knows is passed over."""
    node, client = served
    body = DYNAMOS | {
        "dp_rank": 2,
        "replay_endpoint": "tcp://127.0.0.1:5558",
        "routing_group": "g",
        "additional_salt": "s",
    }

    answers = [client.post("/register", json=body) for _ in range(2)]
    assert [201, 409] == [answer.status_code for answer in answers]
    assert {"status": "ok"} == answers[0].json()
    assert {"error"} == set(answers[1].json())
    assert {
        SourceId("7", 2): Descriptor(
            pod="7",
            dp_rank=2,
            endpoint="tcp://127.0.0.1:5557",
            replay_endpoint="tcp://127.0.0.1:5558",
            model="m",
            tenant="g",
            labels={"block_size": "16"},
            origin="api",
        )
    } == node.sources


def test_mooncakes_registration(served: tuple[FakeNode, httpx.Client]) -> None:
    """In MessagePack as in JSON; the same once more is no error, another one is."""
    node, client = served
    told = {"status": "registered successfully", "instance_id": "prefill-1"}

    assert (200, told) == _packed(client, "/register", MOONCAKES)
    assert told == client.post("/register", json=MOONCAKES).json()
    other = client.post("/register", json=MOONCAKES | {"endpoint": "tcp://127.0.0.1:9"})
    assert (409, "source.conflict") == (other.status_code, other.json()["reason"])
    assert ("m", None, "default") == (
        node.sources[SourceId("prefill-1", 0)].model,
        node.sources[SourceId("prefill-1", 0)].lora_name,
        node.sources[SourceId("prefill-1", 0)].tenant,
    )
    assert (200, {"status": "unregistered successfully", "removed_instances": ["prefill-1|default|0"]}) == _packed(
        client, "/unregister", {"instance_id": "prefill-1", "dp_rank": 0}
    )
    assert {} == node.sources


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (DYNAMOS | {"endpoint": "http://127.0.0.1:1"}, 400, "application/json"),
        (DYNAMOS | {"endpoint": "tcp://0.0.0.0:1"}, 400, "application/json"),
        (DYNAMOS | {"endpoint": "tcp://10.0.0.1:1"}, 403, "application/json"),
        (DYNAMOS | {"replay_endpoint": "tcp://169.254.169.254:80"}, 403, "application/json"),
        (DYNAMOS | {"instance_id": "seven"}, 422, "text/plain"),
        (DYNAMOS | {"instance_id": 2**64}, 422, "text/plain"),
        (DYNAMOS | {"block_size": 0}, 422, "text/plain"),
        (DYNAMOS | {"modelname": "m"}, 422, "text/plain"),
        ({"instance_id": 7}, 422, "text/plain"),
        (MOONCAKES | {"instance_id": 7}, 400, "application/json"),
        (MOONCAKES | {"instance_id": ""}, 400, "application/json"),
        (MOONCAKES | {"type": "Mooncake"}, 400, "application/json"),
        (MOONCAKES | {"additionalsalt": "w8a8"}, 400, "application/json"),
        (MOONCAKES | {"endpoint": "nothing"}, 400, "application/json"),
        (MOONCAKES | {"endpoint": "tcp://10.0.0.1:1"}, 403, "application/json"),
        (MOONCAKES | {"tenant_id": "a\nb"}, 400, "application/json"),
    ],
)
def test_registrations_that_are_refused(
    served: tuple[FakeNode, httpx.Client], body: dict[str, Any], status: int, kind: str
) -> None:
    """In the protocol's form; nothing is registered."""
    node, client = served
    answer = client.post("/register", json=body)

    assert (status, kind) == (answer.status_code, answer.headers["content-type"].partition(";")[0]), answer.text
    assert {} == node.sources


def test_who_was_forwarded_changes_nothing(served: tuple[FakeNode, httpx.Client]) -> None:
    """While nobody has to show a token, sources are changed from this machine."""
    node, client = served
    forwarded = {"x-forwarded-for": "192.0.2.1"}

    assert 403 == client.post("/register", json=DYNAMOS, headers=forwarded).status_code
    assert 201 == client.post("/register", json=DYNAMOS).status_code
    out = {"instance_id": 7, "model_name": "m"}
    assert 403 == client.post("/unregister", json=out, headers=forwarded).status_code
    assert {SourceId("7", 0)} == set(node.sources)


def test_dynamos_unregistration(served: tuple[FakeNode, httpx.Client]) -> None:
    """Of what is registered so, and no other."""
    node, client = served
    for rank in (0, 1):
        client.post("/register", json=DYNAMOS | {"dp_rank": rank})

    def unregister(**members: Any) -> int:  # noqa: ANN401  whatever JSON can say
        return client.post("/unregister", json={"instance_id": 7, "model_name": "m"} | members).status_code

    wrong = [{"instance_id": 8}, {"model_name": "n"}, {"routing_group": "g"}, {"dp_rank": 2}, {"tenant_id": "t"}]
    assert [404] * 5 == [unregister(**each) for each in wrong]
    assert 200 == unregister(dp_rank=1)
    assert {SourceId("7", 0)} == set(node.sources)
    assert [200, 404] == [unregister(routing_group="default"), unregister()]
    assert 400 == client.post("/unregister", json={"instance_id": "prefill-1"}).status_code


def test_workers(served: tuple[FakeNode, httpx.Client]) -> None:
    """In Dynamo's words; an instance whose name is no number is told by its name."""
    _, client = served
    for body in (DYNAMOS, DYNAMOS | {"dp_rank": 1}, MOONCAKES | {"tenant_id": "t"}):
        client.post("/register", json=body)

    listener = {"endpoint": "tcp://127.0.0.1:5557", "status": "pending"}
    seven, prefill = client.get("/workers").json()
    assert {
        "instance_id": 7,
        "source": "zmq",
        "status": "pending",
        "model_name": "m",
        "routing_group": "default",
        "block_size": 16,
        "endpoints": {"0": "tcp://127.0.0.1:5557", "1": "tcp://127.0.0.1:5557"},
        "listeners": {"0": listener, "1": listener},
    } == seven
    assert ("prefill-1", "t", 128) == (prefill["instance_id"], prefill["routing_group"], prefill["block_size"])
    assert [seven] == client.get("/workers", params={"routing_group": "default"}).json()
    assert [prefill] == client.get("/workers", params={"model_name": "m", "routing_group": "t"}).json()
    assert [] == client.get("/workers", params={"model_name": "n"}).json()
    assert 422 == client.get("/workers", params={"model_name": ""}).status_code


def test_the_picker_goes_to_the_one_that_holds_most(served: tuple[FakeNode, httpx.Client]) -> None:
    """Model and prompt in, instance and tokens out; then whose address that is."""
    node, client = served
    node.held = [Holding("a", 0, 16, 16, 16), Holding("10.0.0.2:8000", 0, 16, 48, 64), Holding("c", 0, 32, 32, 32)]

    assert {"instance_id": "10.0.0.2:8000", "tokens": 64} == client.post(
        "/lookup", json={"model": "m", "prompt": "to whom"}
    ).json()
    assert ("m", b"t\0\0\0", 2_000) == (
        node.queries[-1].model,
        node.queries[-1].tokens[:4],
        node.queries[-1].timeout_ms,
    )  # type: ignore[index]
    node.held = []
    assert {"instance_id": "", "tokens": 0} == client.post("/lookup", json={"model": "", "prompt": "x"}).json()

    node.sources = {
        SourceId(pod, 0): Descriptor(pod=pod, aliases=aliases, address=address)
        for pod, aliases, address in (
            ("10.0.0.2:8000", (), None),
            ("b", ("http://10.0.0.3:8000",), None),
            ("c", (), "[fd00::1]:8000"),
            ("10.0.0.4", (), None),
        )
    }
    found = {
        ip: client.get("/query", params={"ip": ip}) for ip in ("10.0.0.2", "10.0.0.3", "fd00::1", "10.0.0.4", "10.0.0")
    }
    assert ["10.0.0.2:8000", "b", "c", "10.0.0.4"] == [each.json().get("instance_id") for each in found.values()][:4]
    assert 404 == found["10.0.0"].status_code
    assert 422 == client.get("/query").status_code


def test_a_picker_without_a_tokenizer_goes_its_own_way(
    served: tuple[FakeNode, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the status alone; and nothing of the prompt is in the answer."""
    node, client = served

    async def none(_: object) -> None:
        raise BadRequestError("prompt.no_tokenizer", [FieldIssue("prompt", "no tokenizer is configured")])

    monkeypatch.setattr(node, "tokenized", none)
    answer = client.post("/lookup", json={"model": "m", "prompt": "planted"})
    assert (422, {"error"}) == (answer.status_code, set(answer.json()))
    assert "planted" not in answer.text
    assert 422 == client.post("/lookup", json={"model": "m"}).status_code
    assert 400 == client.post("/lookup", content=b"{", headers={"content-type": "application/json"}).status_code
    assert [("picker", "text", 422), ("picker", "unknown", 422), ("picker", "unknown", 400)] == [
        (each["api"], each["input"], each["code"]) for each in node.observed
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"user-agent": "python-httpx/0.28.1", "accept": "*/*", "accept-encoding": "gzip, deflate, zstd"},
        {"user-agent": "Python/3.11 aiohttp/3.12", "accept": "*/*", "accept-encoding": "gzip, deflate"},
        {"user-agent": "Go-http-client/1.1", "accept-encoding": "gzip"},
        {"accept": "application/json", "x-request-id": "r-1", "authorization": "Bearer None"},
        {"content-type": "application/json; charset=utf-8", "accept": "text/html"},
    ],
)
def test_what_clients_send_beside_the_body_changes_nothing(
    served: tuple[FakeNode, httpx.Client], headers: dict[str, str]
) -> None:
    """Twice on one connection: the second time the head is known."""
    node, client = served
    node.held = [Holding("7", 0, 16, 16, 16)]
    sent = {"content-type": "application/json"} | headers
    answers = [
        client.post(path, content=body, headers=sent)
        for path, body in (
            ("/query", b'{"token_ids":[1,2],"model_name":"m"}'),
            ("/query_by_hash", b'{"block_hashes":[-1,2],"model_name":"m"}'),
        )
        for _ in range(2)
    ]

    assert [200] * 4 == [answer.status_code for answer in answers]
    assert {"application/json"} == {answer.headers["content-type"] for answer in answers}
    assert 1 == len({answer.content for answer in answers})


def test_compressed_bodies_and_bodies_in_pieces(served: tuple[FakeNode, httpx.Client]) -> None:
    """As some clients send them."""
    node, client = served
    node.held = [Holding("7", 0, 16, 16, 16)]
    body = b'{"token_ids": [1, 2], "model_name": "m"}'

    def pieces() -> Iterator[bytes]:
        yield body[:10]
        yield body[10:]

    whole = client.post("/query", content=body, headers={"content-type": "application/json; charset=utf-8"})
    parts = client.post("/query", content=pieces(), headers={"content-type": "application/json"})
    assert 200 == whole.status_code
    packed = client.post(
        "/query", content=gzip.compress(body), headers={"content-type": "application/json", "content-encoding": "gzip"}
    )
    assert whole.json() == parts.json() == packed.json()
    assert "application/json" == whole.headers["content-type"]


# -- a running service ------------------------------------------------------------------------------------------------


class Played:
    """A recording's engines, registered by the face of one protocol with a service that knew of none."""

    def __init__(self, recorded: Recording, service: RunningService) -> None:
        self.recorded, self.service = recorded, service
        self.engines = [EngineSimulator(replay_endpoint=None) for _ in recorded.header.pods]
        self.client = httpx.Client(base_url=service.url)
        self._position = 0

    def start(self, protocol: str) -> None:
        """Engines 1, 2 and so on."""
        for number, engine in enumerate(self.engines, 1):
            engine.start()
            body = (
                DYNAMOS | {"instance_id": number, "endpoint": engine.endpoint}
                if protocol == "dynamo"
                else MOONCAKES | {"instance_id": str(number), "endpoint": engine.endpoint, "block_size": 16}
            )
            assert self.client.post("/register", json=body).is_success
            engine.wait_subscribers(1)

    def close(self) -> None:
        """Of what was opened."""
        self.client.close()
        for engine in self.engines:
            engine.close()

    def play(self, until: int) -> None:
        """Publish up to there; returns when it is applied."""
        for message in self.recorded.messages[self._position : until]:
            self.engines[message.pod].publish(message.payload)
        self._position = until
        wanted = {str(i): engine.sequence for i, engine in enumerate(self.engines, 1) if engine.sequence >= 0}

        def applied() -> bool:
            sources = self.service.sources()
            return all(sources[pod]["sequence"] == sequence for pod, sequence in wanted.items())

        self.service.wait_for(applied, f"sequences {wanted}")


@pytest.mark.parametrize("protocol", ["dynamo", "mooncake"])
def test_registered_and_asked_by_a_face(protocol: str) -> None:
    """What the recorded engines hold, as they said themselves, by the requests of each protocol."""
    recorded = recording("basic")
    with RunningService([]) as service:
        played = Played(recorded, service)
        try:
            played.start(protocol)
            for probe in recorded.probes[:: len(recorded.probes) // PROBES]:
                played.play(probe.n)
                tokens = recorded.truth.prompts[probe.prompt].tokens
                matched = _dynamos(played.client, tokens) if protocol == "dynamo" else _mooncakes(played.client, tokens)
                assert list(probe.chain) == [matched.get(str(i), 0) for i in range(1, len(played.engines) + 1)]
            assert {"1", "2", "3"} == {str(each["instance_id"]) for each in played.client.get("/workers").json()}
        finally:
            played.close()


def _dynamos(client: httpx.Client, tokens: tuple[int, ...]) -> dict[str, int]:
    answer = client.post("/query", json={"token_ids": tokens, "model_name": "m"}).json()
    assert {pod: {"0": each["gpu"]} for pod, each in answer["instances"].items()} == answer["scores"]
    return {pod: ranks["0"] for pod, ranks in answer["scores"].items()}


def _mooncakes(client: httpx.Client, tokens: tuple[int, ...]) -> dict[str, int]:
    """In both forms, which say the same."""
    body = {"model": "m", "block_size": 16, "token_ids": tokens}
    packed = {**body, "token_ids": struct.pack(f"<{len(tokens)}i", *tokens), "tenant_id": "default", "lora_name": ""}
    told = client.post("/query", json=body).json()["instances"]
    status, answer = _packed(client, "/query", packed)
    assert status == 200
    matched = {pod: each["longest_matched"] for pod, each in answer["instances"].items()}
    assert {pod: each["longest_matched"] for pod, each in told.items()} == matched
    return matched
