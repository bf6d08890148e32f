"""A deployment with a hash secret, as a process on a store: it answers whatever is not asked by others' hashes.

And the secret comes out nowhere.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import grpc
import httpx
import msgspec
import pytest

from api.demo.engine import EngineSimulator
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest
from schemas.rpc.indexer.v1.indexer_pb2_grpc import IndexerServiceStub
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.core_events import BLOCK, payload, stored, u32
from tests.support.core_hashing import naive_locals
from tests.support.core_service import RunningService, applied
from tests.support.planted import HASH_SECRET, found_in
from tests.support.redis_servers import content, own_server
from tests.support.text_models import published, small_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.redis_servers import Server

POD: Final = "10.0.0.1:8000"
TEXT: Final = "The quick brown fox jumps over the lazy dog. " * 3
TOKENS: Final[list[int]] = list(small_tokenizer().encode(TEXT).ids)
BLOCKS: Final = len(TOKENS) // BLOCK
LOCALS: Final = naive_locals(TOKENS, BLOCK)
"""As a caller has them that knows the prompt and no secret."""
DYNAMOS: Final = {"model_name": "m", "block_hashes": LOCALS}
DEADLINE_S: Final = 30.0
PACKED: Final = {"content-type": "application/msgpack"}
JSON: Final = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of the deployment."""
    with own_server(tmp_path_factory.mktemp("store")) as server:
        yield server


def _settings(store: Server, secret: str) -> dict[str, str]:
    return {
        "redis__url": store.url,
        "auth__hash_secret": secret,
        "redis__partitions": "2",
        "telemetry__log_level": "debug",
    }


@pytest.fixture(scope="module")
def service(store: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Its one engine holds the prompt."""
    model = published(tmp_path_factory.mktemp("model"))
    with (
        EngineSimulator() as engine,
        RunningService(
            [f"{POD}={engine.endpoint},model=m"], models__tokenizer=str(model), **_settings(store, HASH_SECRET)
        ) as running,
    ):
        engine.wait_subscribers()
        engine.publish(payload(stored(range(1, BLOCKS + 1), TOKENS[: BLOCKS * BLOCK])))
        running.wait_for(lambda: applied(running, POD, 0), "the engine to be heard")
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[httpx.Client]:
    """Whatever it is answered is looked at."""

    def look(answer: httpx.Response) -> None:
        answer.read()
        assert [] == found_in(answer.content + str(answer.headers).encode())

    with httpx.Client(base_url=service.url, timeout=DEADLINE_S, event_hooks={"response": [look]}) as made:
        yield made


def _chunked(body: bytes) -> Iterator[bytes]:
    yield body[:7]
    yield body[7:]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(DYNAMOS).encode(), JSON),
        (json.dumps({"block_hashes": [(each ^ 2**63) - 2**63 for each in LOCALS], "model_name": "m"}).encode(), JSON),
        (json.dumps(DYNAMOS | {"unheard": [1]}).encode(), JSON),
        (json.dumps(DYNAMOS | {"model_name": "nobodys"}).encode(), JSON),
        (json.dumps(DYNAMOS | {"block_hashes": []}).encode(), JSON),
        (json.dumps(DYNAMOS | {"lora_name": "x"}).encode(), JSON),
        (gzip.compress(json.dumps(DYNAMOS).encode()), JSON | {"content-encoding": "gzip"}),
        (msgspec.msgpack.encode({"model": "m", "block_size": BLOCK, "seq_hashes": LOCALS}), PACKED),
        (json.dumps({"model": "m", "block_size": BLOCK, "block_hash": LOCALS}).encode(), JSON),
    ],
)
def test_no_other_indexers_hashes_are_taken(client: httpx.Client, body: bytes, headers: dict[str, str]) -> None:
    """409, in one read or in several, whichever of the two protocols, whether anybody holds anything or not."""
    for sent in (body, _chunked(body)):
        refused = client.post("/query_by_hash", content=sent, headers=headers)
        assert 409 == refused.status_code, refused.text
        assert "token_ids" in refused.text or "token ids" in refused.text  # what to do instead


OURS: Final[dict[str, Any]] = {"model": "m", "block_hashes": LOCALS, "block_size": BLOCK, "scheme": "dynamo"}


def test_nor_at_our_own_doors(service: RunningService, client: httpx.Client) -> None:
    """A lookup, one of a batch, whose others are answered, and every call of gRPC."""
    refused = client.post("/v1/lookup", json=OURS)
    assert (409, "scheme.conflict") == (refused.status_code, refused.json()["code"])
    packed = client.post("/v1/lookup", content=msgspec.msgpack.encode(OURS), headers=PACKED)
    assert 409 == packed.status_code
    batch = client.post("/v1/lookup/batch", json={"items": [OURS, {"model": "m", "token_ids": TOKENS}]}).json()
    assert ("scheme.conflict", BLOCKS * BLOCK) == (
        batch["items"][0]["code"],
        batch["items"][1]["pods"][0]["matched_tokens"],
    )
    asked = pb.LookupRequest(**OURS)
    with grpc.insecure_channel(_rpc(service)) as channel:
        stub = KvIndexerStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Lookup(asked, timeout=DEADLINE_S)
        told = [*stub.LookupBatch(pb.LookupBatchRequest(items=[asked]), timeout=DEADLINE_S).items]
        told += stub.LookupStream(iter([asked]), timeout=DEADLINE_S)
    metadata = dict(caught.value.trailing_metadata())  # type: ignore[attr-defined]
    assert "scheme.conflict" == metadata["kvindexer-code"]
    assert ["scheme.conflict"] * 2 == [each.problem.code for each in told]
    assert [] == found_in(f"{caught.value} {metadata} {told}".encode())


def _rpc(service: RunningService) -> str:
    found = re.search(r"grpc://([0-9.:]+)", service.banner)
    assert found
    return found[1]


def test_every_other_door_answers(service: RunningService, client: httpx.Client) -> None:
    """By ids, by texts, and by the hashes that this deployment makes itself: all find what the engine holds."""
    matched = BLOCKS * BLOCK
    hashed = client.post("/v1/hash", json={"token_ids": TOKENS, "block_size": BLOCK}).json()
    assert set(hashed["hashes"]).isdisjoint(f"{each:016x}" for each in LOCALS)
    by_hash = {"block_size": BLOCK, "block_hashes": hashed["hashes"]}
    for prompt in (
        {"token_ids": TOKENS},
        {"prompt": TEXT},
        by_hash,
        {**by_hash, "scheme": hashed["scheme"]},
    ):
        answer = client.post("/v1/lookup", json={"model": "m", **prompt})
        assert 200 == answer.status_code, answer.text
        assert matched == answer.json()["pods"][0]["matched_tokens"]
    packed = client.post(
        "/v1/lookup?model=m", content=u32(TOKENS), headers={"content-type": "application/octet-stream"}
    )
    assert matched == packed.json()["pods"][0]["matched_tokens"]

    picked = client.post("/v1/pick", json={"model": "m", "prompt": TEXT}, headers={"x-kvindexer-timeout-ms": "20000"})
    assert POD == picked.headers["x-gateway-destination-endpoint"]
    dynamos = client.post("/query", json={"model_name": "m", "token_ids": TOKENS})
    mooncakes = client.post("/query", json={"model": "m", "block_size": BLOCK, "token_ids": TOKENS})
    assert (200, 200) == (dynamos.status_code, mooncakes.status_code)
    assert str(BLOCKS) in dynamos.text
    assert str(matched) in mooncakes.text
    assert matched == client.post("/lookup", json={"model": "m", "prompt": TEXT}).json()["tokens"]

    with grpc.insecure_channel(_rpc(service)) as channel:
        own = [int(each, 16) for each in hashed["hashes"]]
        for question in (
            pb.LookupRequest(token_ids=TOKENS),
            pb.LookupRequest(prompt=TEXT),
            pb.LookupRequest(block_hashes=own, block_size=BLOCK),
        ):
            (entry,) = KvIndexerStub(channel).Lookup(question, timeout=DEADLINE_S).pods
            assert matched == entry.matched_tokens
        scored = IndexerServiceStub(channel).GetPodScores(GetPodScoresRequest(prompt=TEXT), timeout=DEADLINE_S)
        assert [(POD, BLOCKS)] == [(score.pod, round(score.score, 6)) for score in scored.scores]


def test_the_secret_is_nowhere(service: RunningService, client: httpx.Client, store: Server) -> None:
    """Not in what the service says of itself, not in its log, and not in the store."""
    for path in ("/v1/config", "/v1/sources", f"/v1/sources/{POD}/history", "/v1/partitions", "/metrics", "/readyz"):
        assert 200 == client.get(path).status_code, path  # the client looks at each answer
    assert "DEBUG" in service.log()
    assert [] == found_in(service.log().encode())
    with store.client() as look:
        keys: list[Any] = list(look.scan_iter())
        told = [repr((key, content(look, key))).encode() for key in keys]
    assert any(POD.encode() in each for each in told)
    assert [] == [found for each in told for found in found_in(each)]


def test_a_replica_of_another_secret_does_not_start(service: RunningService, store: Server) -> None:
    """It would answer wrongly; it says which setting differs, and shows neither of the two."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
    for secret in ("another-of-somebody", None):
        settings = _settings(store, secret or "")
        if secret is None:
            del settings["auth__hash_secret"]
        settings |= {"redis__replica": "other", "server__grpc_port": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "indexer", "serve", "--port", "0"],
            env={**environment, **{f"KVINDEXER_{name.upper()}": value for name, value in settings.items()}},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert 0 != done.returncode
        assert "secret" in done.stderr
        assert "another-of" not in done.stderr
        assert [] == found_in((done.stdout + done.stderr).encode())
    assert 200 == service.call("GET", "/readyz").status_code
