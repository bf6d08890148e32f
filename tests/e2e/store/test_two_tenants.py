"""Two tenants of one deployment with a store: neither comes to know of the other, at any door of any replica.

Both have a source from a flag and one that they posted, and all four hold beginnings of one prompt. What is looked for
in every answer are marks: whatever belongs to a tenant is called by its own.
"""

from __future__ import annotations

import contextlib
import json
import re
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
import httpx
import pytest

from api.demo.engine import EngineSimulator
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest
from schemas.rpc.indexer.v1.indexer_pb2_grpc import IndexerServiceStub
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.callers import EVERY, bearer, token_of, write_tokens
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import RunningService
from tests.support.in_trouble import TIMES
from tests.support.redis_servers import own_server, wait_for
from tests.support.text_models import published, small_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.redis_servers import Server

TENANTS: Final = ("lefts", "rights")
"""Marks: every name of a tenant begins with its own."""
MODEL: Final = "m"
TEXT: Final = "The quick brown fox jumps over the lazy dog. " * 4
SHARED: Final[list[int]] = list(small_tokenizer().encode(TEXT).ids)
OWN: Final = {
    mark: list(range(first, first + 8 * BLOCK)) for mark, first in zip(TENANTS, (100_000, 200_000), strict=True)
}
HELD: Final = {"lefts-flagged:8000": 2, "lefts-posted:8000": 4, "rights-flagged:8000": 3, "rights-posted:8000": 6}
"""Blocks of the shared prompt. Whoever posted holds all of its tenant's own prompt, too."""
FIRST_HASH: Final = dict(zip(HELD, (1_000, 2_000, 3_000, 4_000), strict=True))
"""The engines' own hashes count from here, those of a tenant's own prompt 100 further on."""
VOLATILE: Final = ("took_us", "lag_ms", "event_age_ms", "request_id", "nearest_model")
"""The last one is the nearest of the caller's own, which is another for another name."""
DEADLINE_S: Final = 30.0
ASKED_AGAIN: Final = 3


def _other(mark: str) -> str:
    return TENANTS[1 - TENANTS.index(mark)]


def _pods(mark: str) -> list[str]:
    return [pod for pod in HELD if pod.startswith(mark)]


def _names(mark: str) -> list[str]:
    """All by which its sources can be named, and one by which nobody is."""
    return [*_pods(mark), f"{mark}-alias", f"{mark}-none"]


class Caller(NamedTuple):
    """A tenant's token at one replica; `mark` None shows none."""

    mark: str | None
    service: RunningService

    def rest(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        """Any request, with a JSON body if one is given."""
        shown = {} if self.mark is None else {"authorization": bearer(self.mark)}
        content = None if body is None else json.dumps(body).encode()
        kind = {"content-type": "application/json"}
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.service._client.request(method, path, content=content, headers={**kind, **shown, **told})

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        """To its gRPC port."""
        found = re.search(r"grpc://([0-9.:]+)", self.service.banner)
        assert found
        with grpc.insecure_channel(found[1], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            yield channel

    def metadata(self) -> list[tuple[str, str]]:
        """With each call."""
        return [] if self.mark is None else [("authorization", bearer(self.mark))]

    def matched(self, tokens: Sequence[int], **more: object) -> dict[str, int]:
        """By pod, blocks that are held."""
        answer = self.rest("POST", "/v1/lookup", {"token_ids": tokens, "model": MODEL, **more})
        assert 200 == answer.status_code, answer.text
        return {entry["pod"]: entry["matched_tokens"] // BLOCK for entry in answer.json()["pods"]}


class Engines:
    """One for each source, without replay: after a restart nobody but the store tells what they hold."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.of = {pod: stack.enter_context(EngineSimulator(replay_endpoint=None)) for pod in HELD}

    @property
    def flags(self) -> list[str]:
        """Of those that every replica is started with."""
        return [
            f"{mark}-flagged:8000={self.of[f'{mark}-flagged:8000'].endpoint},model={MODEL},tenant={mark}-tenant"
            for mark in TENANTS
        ]

    def posted(self, mark: str) -> dict[str, Any]:
        """What that tenant registers; its token says whose it is."""
        pod = f"{mark}-posted:8000"
        return {
            "pod": pod,
            "endpoint": self.of[pod].endpoint,
            "model": MODEL,
            "aliases": [f"{mark}-alias"],
            "labels": {f"{mark}-label": f"{mark}-value"},
        }

    def publish(self) -> None:
        """All that is ever said."""
        for pod, engine in self.of.items():
            engine.wait_subscribers()
            first, blocks, mark = FIRST_HASH[pod], HELD[pod], pod.partition("-")[0]
            events = [stored(range(first, first + blocks), SHARED[: blocks * BLOCK])]
            if "posted" in pod:
                own = OWN[mark]
                events.append(stored(range(first + 100, first + 108), own))
                events.append(stored([first + 200], range(BLOCK), lora_name=f"{mark}-lora"))
            engine.publish(payload(*events))


class Deployment:
    """Both tenants on one store, and the replicas that are started."""

    def __init__(self, folder: Path, store: Server, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._store = store
        self.engines = Engines(stack)
        bound = [(mark, EVERY, f"{mark}-tenant") for mark in TENANTS]
        self._settings = {
            **TIMES,
            "auth__tokens_file": str(write_tokens(folder / "tokens.json", *bound, ("ops", EVERY, None))),
            "auth__endpoints": '["127.0.0.0/8"]',
            "compat__anonymous": "true",
            "models__tokenizer": str(published(folder / "model")),
            "redis__url": store.url,
        }

    def start(self, name: str) -> RunningService:
        """One replica."""
        return self._stack.enter_context(RunningService(self.engines.flags, redis__replica=name, **self._settings))

    def wait_right(self, *services: RunningService) -> None:
        """Until each knows of each tenant's engines what they hold."""
        for service in services:
            for mark in TENANTS:
                caller = Caller(mark, service)
                wait_for(lambda caller=caller: _is_right(caller), f"{mark} to be known at {service.url}")


def _is_right(caller: Caller) -> bool:
    mark = str(caller.mark)
    own = {f"{mark}-flagged:8000": 0, f"{mark}-posted:8000": 8}
    shared = {pod: HELD[pod] for pod in _pods(mark)}
    return caller.matched(SHARED) == shared and caller.matched(OWN[mark]) == own


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """All ends with the module."""
    folder = tmp_path_factory.mktemp("tenants")
    with own_server(folder) as store, contextlib.ExitStack() as stack:
        yield Deployment(folder, store, stack)


def test_neither_is_there_for_the_other(deployment: Deployment) -> None:
    """At the replica that they registered with, at one that follows, and at one that has all from the store."""
    first = deployment.start("first")
    for mark in TENANTS:
        registered = Caller(mark, first).rest("POST", "/v1/sources", deployment.engines.posted(mark))
        assert registered.status_code in {201, 202}, registered.text
    deployment.engines.publish()
    second = deployment.start("second")
    deployment.wait_right(first, second)
    _assert_apart(first)
    _assert_apart(second)
    for pod in HELD:
        wait_for(
            lambda pod=pod: 1 == sum(_tells_of_blocks(each, pod) for each in (first, second)), f"one owner of {pod}"
        )

    first.kill()
    second.kill()
    again = deployment.start("first")
    deployment.wait_right(again)
    _assert_apart(again)


def _tells_of_blocks(service: RunningService, pod: str) -> bool:
    """Its owner alone does, by the engine's own hash of one. Whoever takes it over says so until it can tell."""
    told = Caller(pod.partition("-")[0], service).rest("GET", f"/v1/sources/{pod}/blocks/{FIRST_HASH[pod]:x}")
    assert told.status_code == 200 or told.json()["code"] in {"source.elsewhere", "source.syncing"}, told.text
    return told.status_code == 200


def _assert_apart(service: RunningService) -> None:
    """All that a caller of either tenant can ask, and all that a caller without a token can."""
    for mark in TENANTS:
        caller = Caller(mark, service)
        for what, content in (*_told_over_rest(caller), *_told_over_grpc(caller)):
            assert _other(mark).encode() not in content, (what, content)
        _assert_not_there(caller)
        _assert_no_command_reaches(caller)
        assert _is_right(caller)
        assert {0} == set(caller.matched(OWN[_other(mark)]).values())
    _assert_no_text_of_the_other_is_known(service)
    everything = Caller("ops", service).rest("GET", "/v1/sources").text
    assert all(pod in everything for pod in HELD)  # else the search above would prove nothing
    nobody = Caller(None, service)
    for what, content in (*_told_to_anybody(nobody),):
        for mark in TENANTS:
            assert mark.encode() not in content, (what, content)
    _assert_metrics_name_no_tenant(nobody)
    for said in (service.log(), nobody.rest("GET", "/metrics").text):
        assert [] == [mark for mark in (*TENANTS, "ops") if token_of(mark) in said]


def _questions(mark: str) -> Iterator[dict[str, Any]]:
    """Lookups that tell of something, and such as name what is the other's."""
    theirs = _other(mark)
    for tokens in (SHARED, OWN[mark], OWN[theirs], list(range(BLOCK))):
        yield {"token_ids": tokens}
        yield {"token_ids": tokens, "model": MODEL}
        yield {"token_ids": tokens, "model": MODEL, "group": "pod", "pods": _names(mark)}
    yield {"token_ids": list(range(BLOCK)), "model": f"{mark}-lora"}
    yield {"token_ids": SHARED, "model": f"{mark}-lor"}  # whose nearest name is told
    yield {"token_ids": SHARED, "model": f"{theirs[:-1]}-lora"}
    yield {"prompt": TEXT, "model": MODEL}


def _told_over_rest(caller: Caller) -> Iterator[tuple[str, bytes]]:
    yield from _told_of_sources(caller)
    yield from _told_of_picks(caller)
    questions = list(_questions(str(caller.mark)))
    for question in questions:
        yield f"lookup {question}", _ok(caller.rest("POST", "/v1/lookup", question))
        yield f"explain {question}", _ok(caller.rest("POST", "/v1/explain", question))
        yield f"recommend {question}", _ok(caller.rest("POST", "/v1/recommend", question))
    yield "batch", _ok(caller.rest("POST", "/v1/lookup/batch", {"items": questions}))
    for path in ("/v1/partitions", "/v1/config"):
        refused = caller.rest("GET", path)
        assert 403 == refused.status_code
        yield path, refused.content
    for path in ("/v1/version", "/openapi.json"):
        yield path, _ok(caller.rest("GET", path))


def _told_of_sources(caller: Caller) -> Iterator[tuple[str, bytes]]:
    mark = str(caller.mark)
    for path in ("/v1/sources", "/v1/sources?limit=1", f"/v1/sources?model={MODEL}", "/v1/sources?state=live"):
        yield path, _ok(caller.rest("GET", path))
    for pod in _names(mark)[:-1]:
        yield f"history of {pod}", _ok(caller.rest("GET", f"/v1/sources/{pod}/history"))
        for number, further in product(FIRST_HASH.values(), (0, 100)):
            block = f"/v1/sources/{pod}/blocks/{number + further:x}"
            yield block, caller.rest("GET", block).content


def _told_of_picks(caller: Caller) -> Iterator[tuple[str, bytes]]:
    mark = str(caller.mark)
    for prompt, path in product((TEXT, SHARED, OWN[_other(mark)]), ("/v1/pick", "/v1/pick/v1/completions")):
        body = {"model": MODEL, "prompt": prompt}
        picked = caller.rest("POST", path, body, x_kvindexer_timeout_ms="20000")
        assert _pods(mark) == _destinations(picked)  # who holds it first, or the less busy of them
        yield f"{path} {prompt}", _whole(picked)


def _destinations(picked: httpx.Response) -> list[str]:
    """Whom a pick names, by name. In which order says who was picked before."""
    return sorted(picked.headers["x-gateway-destination-endpoint"].split(","))


def _told_over_grpc(caller: Caller) -> Iterator[tuple[str, bytes]]:
    mark, shown = str(caller.mark), {"metadata": caller.metadata(), "timeout": DEADLINE_S}
    with caller.channel() as channel:
        stub = KvIndexerStub(channel)
        questions = [pb.LookupRequest(**question) for question in _questions(mark)]
        for question in questions:
            yield f"Lookup {question}", stub.Lookup(question, **shown).SerializeToString()
        yield "LookupBatch", stub.LookupBatch(pb.LookupBatchRequest(items=questions), **shown).SerializeToString()
        for told in stub.LookupStream(iter(questions), **shown):
            yield "LookupStream", told.SerializeToString()
        listed = stub.ListSources(pb.ListSourcesRequest(), **shown)
        assert _pods(mark) == [source.pod for source in listed.sources]
        yield "ListSources", listed.SerializeToString()
        page = stub.ListSources(pb.ListSourcesRequest(limit=1), **shown)
        yield "ListSources, the first", page.SerializeToString()
        watching = stub.WatchSources(pb.WatchSourcesRequest(), **shown)
        yield "WatchSources", next(watching).SerializeToString()
        watching.cancel()


def _told_to_anybody(nobody: Caller) -> Iterator[tuple[str, bytes]]:
    """Who shows no token is of the tenant without a name, which has no engines here."""
    for path in ("/v1/lookup", "/v1/lookup/batch", "/v1/pick", "/v1/sources"):
        refused = nobody.rest("POST", path, {"model": MODEL, "prompt": TEXT})
        assert 401 == refused.status_code
        yield path, refused.content
    yield "/workers", _ok(nobody.rest("GET", "/workers"))
    for tenant in ({}, {"tenant_id": "default"}):
        for model in ("model_name", "model"):
            body = {model: MODEL, "token_ids": SHARED, **tenant}
            if model == "model":
                body["block_size"] = BLOCK
            yield f"/query {body}", _ok(nobody.rest("POST", "/query", body))
    yield "/lookup", _whole(nobody.rest("POST", "/lookup", {"model": MODEL, "prompt": TEXT}))
    with nobody.channel() as channel:
        stub = IndexerServiceStub(channel)
        for pods in ((), list(HELD)):
            told = stub.GetPodScores(
                GetPodScoresRequest(prompt=TEXT, model_name=MODEL, pod_identifiers=pods), timeout=DEADLINE_S
            )
            yield "GetPodScores", told.SerializeToString()
    for mark in TENANTS:
        named = {"model_name": MODEL, "token_ids": SHARED, "tenant_id": f"{mark}-tenant"}
        assert nobody.rest("POST", "/query", named).status_code in {403, 422}
    yield "/openapi.json", nobody.rest("GET", "/openapi.json").content


def _assert_not_there(caller: Caller) -> None:
    """What names something of the other's is answered as if nobody had it."""
    mark = str(caller.mark)
    theirs, nobodys = _other(mark), "nobodys"[: len(_other(mark))]

    def same(method: str, path: str, body: object = None, **headers: str) -> None:
        for once_more in reversed(range(ASKED_AGAIN)):  # a state may change between the two, and that is no difference
            told = [
                _plain(caller.rest(method, *_renamed(theirs, name, path, body), **_headers(headers, theirs, name)))
                for name in (theirs, nobodys)
            ]
            alike = _without(told[0], theirs) == _without(told[1], nobodys)
            assert alike or once_more, (method, path, body, *told)
            if alike:
                return

    for number, name in zip(cycle(FIRST_HASH.values()), _names(theirs), strict=False):
        same("GET", f"/v1/sources/{name}/history")
        same("GET", f"/v1/sources/{name}/blocks/{number:x}")
        same("DELETE", f"/v1/sources/{name}")
        same("PATCH", f"/v1/sources/{name}", {"cordoned": True})
        same("POST", f"/v1/sources/{name}/clear")
        same("POST", "/v1/lookup", {"token_ids": SHARED, "pods": [name]})
        same("POST", "/v1/explain", {"token_ids": SHARED, "pod": name})
        same(
            "POST",
            "/v1/recommend",
            {"token_ids": SHARED, "pods": [name, *_pods(mark)], "loads": {name: {"running": 1}}},
        )
        same("POST", "/v1/lookup", {"token_ids": SHARED, "model": MODEL, "pods": [name, *_pods(mark)]})
        same("POST", "/v1/lookup", {"token_ids": SHARED, "min_sequence": {name: 0}, "timeout_ms": 1})
        same("POST", "/v1/pick", {"model": MODEL, "prompt": TEXT}, x_kvindexer_pods=name)
    for model in (f"{theirs}-lora", f"{theirs}-tenant"):
        same("POST", "/v1/lookup", {"token_ids": list(range(BLOCK)), "model": model})
        for unknown in (model, model.replace(theirs, nobodys)):  # by load, as each pick changes it
            assert _pods(mark) == _destinations(caller.rest("POST", "/v1/pick", {"model": unknown, "prompt": TEXT}))
    same("POST", "/v1/lookup", {"token_ids": SHARED, "lora_name": f"{theirs}-lora", "model": MODEL})
    same("POST", "/v1/lookup", {"token_ids": SHARED, "tenant": f"{theirs}-tenant"})
    same("GET", f"/v1/sources?after={theirs}-flagged:8000")
    with caller.channel() as channel:
        call = KvIndexerStub(channel).Lookup
        for name in _names(theirs):
            question = pb.LookupRequest(token_ids=SHARED, pods=[name])
            (entry,) = call(question, metadata=caller.metadata(), timeout=DEADLINE_S).pods
            assert (name, 0, "pod_unknown") == (entry.pod, entry.matched_tokens, entry.reason)


def _renamed(theirs: str, name: str, path: str, body: object) -> tuple[str, object]:
    return path.replace(theirs, name), json.loads(json.dumps(body).replace(theirs, name))


def _headers(headers: dict[str, str], theirs: str, name: str) -> dict[str, str]:
    return {key: value.replace(theirs, name) for key, value in headers.items()}


def _assert_no_text_of_the_other_is_known(service: RunningService) -> None:
    """Its tokens may be at hand; who asks for the first time is told nothing of it."""
    text = f"A text that was asked at {service.url}"
    known = [
        Caller(mark, service).rest("POST", "/v1/lookup", {"prompt": text, "model": MODEL}).json()["tokenizer"]["cached"]
        for mark in (TENANTS[0], TENANTS[0], TENANTS[1], TENANTS[1])
    ]
    assert [False, True, False, True] == known


def _assert_no_command_reaches(caller: Caller) -> None:
    """A list of one's own that is put anew, names that are taken: the other's stand, and nothing is said of them."""
    mark = str(caller.mark)
    theirs = Caller(_other(mark), caller.service)
    listed = [source["pod"] for source in theirs.rest("GET", "/v1/sources").json()["sources"]]
    posted = next(s for s in caller.rest("GET", "/v1/sources").json()["sources"] if "posted" in s["pod"])
    kept = {key: posted[key] for key in ("pod", "endpoint", "model", "aliases", "labels")}
    replaced = caller.rest("PUT", "/v1/sources", [kept])
    assert 200 == replaced.status_code, replaced.text
    for taken in (*_names(_other(mark))[:-1],):
        refused = caller.rest("POST", "/v1/sources", {"pod": taken, "endpoint": "tcp://127.0.0.1:1"})
        assert 409 == refused.status_code
        assert _other(mark) not in refused.text.replace(taken, "")
    assert listed == [source["pod"] for source in theirs.rest("GET", "/v1/sources").json()["sources"]]
    assert _is_right(theirs)


def _assert_metrics_name_no_tenant(nobody: Caller) -> None:
    """Pods stand there, for whoever reaches the port; tenants, adapters, aliases and names of tokens do not."""
    text = nobody.rest("GET", "/metrics").text
    shown = set(re.findall(rf"\b(?:{'|'.join(TENANTS)})[\w:-]*", text))
    assert shown <= set(HELD), shown
    assert "ops" not in re.findall(r'"([^"]*)"', text)


def _ok(answer: httpx.Response) -> bytes:
    assert 200 == answer.status_code, answer.text
    return answer.content


def _whole(answer: httpx.Response) -> bytes:
    """Headers, too."""
    head = "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
    return head.encode() + answer.content


def _plain(answer: httpx.Response) -> str:
    """Status and what was said, without what differs from one moment to the next."""
    text = answer.text
    if answer.headers.get("content-type", "").startswith("application/"):
        text = json.dumps(_settled(answer.json()), sort_keys=True)
    shown = {name: value for name, value in answer.headers.items() if name.startswith("x-") and "request" not in name}
    return f"{answer.status_code} {shown} {text}"


def _settled(value: Any) -> Any:  # noqa: ANN401  whatever JSON can say
    if isinstance(value, dict):
        return {key: _settled(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return sorted(map(_settled, value), key=str)  # equal scores are in an order that follows from what was asked
    return value


def _without(told: str, name: str) -> str:
    return told.replace(name, "NAME")
