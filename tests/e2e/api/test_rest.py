"""The REST face from outside: real server, real socket, a double behind it."""

import gzip
import http.client
import json
import re
import struct
from collections.abc import Callable, Iterator
from urllib.parse import quote

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from api.rest.limits import RestLimits
from api.server import ServerSettings
from indexer.model import Descriptor, SourceId
from indexer.store.failures import StoreFailure
from schemas.lookup import LookupAnswer, LookupQuery, TokenizerUsed
from schemas.rest import BlockList, Effect, HashAnswer, PartitionList, PartitionView, Problem, ReplicaView, SourceList
from tests.support.fake_node import HELD_HASH, REFUSED, FakeNode
from tests.support.serving import exchange, request, served_in_thread

BODY_MAX = 300_000
JSON = "application/json"
PACKED = "application/msgpack"
Address = tuple[str, int]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeNode, Address]]:
    """One server for all, and the double behind it."""
    node = FakeNode()
    limits = RestLimits(body_bytes=BODY_MAX, tokens=50_000)
    with served_in_thread(node, ServerSettings(port=0, limits=limits)) as address:
        yield node, address


@pytest.fixture
def node(served: tuple[FakeNode, Address]) -> FakeNode:
    """The double, as new."""
    node = served[0]
    node.__init__()  # type: ignore[misc]
    return node


@pytest.fixture
def http_client(served: tuple[FakeNode, Address], node: FakeNode) -> Iterator[http.client.HTTPConnection]:
    """A connection to the server, whose double is as new."""
    connection = http.client.HTTPConnection(*served[1], timeout=20)
    yield connection
    connection.close()


def _image(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def _problem(answer: tuple[int, dict[str, str], bytes]) -> Problem:
    """The problem in an answer that must be one."""
    status, headers, body = answer
    problem = msgspec.json.decode(body, type=Problem)
    assert "application/problem+json" == headers["content-type"]
    assert status == problem.status
    assert problem.code
    assert problem.title
    assert problem.request_id
    return problem


# --- lookups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "query", "body"),
    [
        (JSON, "", b'{"token_ids":[1,2],"model":"m"}'),
        (PACKED, "", msgspec.msgpack.encode({"token_ids": _image(1, 2), "model": "m"})),
        ("application/octet-stream", "?model=m", _image(1, 2)),
    ],
)
def test_a_lookup_is_answered_as_it_came(
    http_client: http.client.HTTPConnection, node: FakeNode, content_type: str, query: str, body: bytes
) -> None:
    """Three forms, one question; MessagePack is answered in MessagePack."""
    status, headers, content = request(http_client, "POST", "/v1/lookup" + query, body, content_type=content_type)
    answered_in = PACKED if content_type == PACKED else JSON
    decode = msgspec.msgpack.decode if content_type == PACKED else msgspec.json.decode
    answer = decode(content, type=LookupAnswer)

    assert (200, answered_in) == (status, headers["content-type"])
    assert LookupQuery(tokens=_image(1, 2), model="m", request_id=answer.request_id) == node.queries[-1]
    assert (2, "exact") == (answer.prompt_tokens, answer.state)
    assert answer.took_us > 0


@pytest.mark.parametrize("packed", [False, True])
def test_a_text_is_tokenized_and_then_asked_for(
    http_client: http.client.HTTPConnection, node: FakeNode, packed: bool
) -> None:
    """The core never sees it; it is asked for the tokens."""
    encode = msgspec.msgpack.encode if packed else msgspec.json.encode
    body = encode({"prompt": "ab", "model": "m", "request_id": "r"})
    status, _, _ = request(http_client, "POST", "/v1/lookup", body, content_type=PACKED if packed else JSON)
    used = TokenizerUsed(source="file", name="bytes", tokens=2, cached=False)

    assert 200 == status
    assert [LookupQuery(tokens=_image(97, 98), model="m", request_id="r", tokenizer=used)] == node.queries
    assert "text" == node.observed[0]["input"]


def test_a_text_is_hashed(http_client: http.client.HTTPConnection) -> None:
    """The answer says by which tokenizer."""
    body = b'{"prompt":"abcde","block_size":2}'
    answer = json.loads(request(http_client, "POST", "/v1/hash", body, content_type=JSON)[2])

    assert (5, 2) == (answer["prompt_tokens"], len(answer["hashes"]))
    assert {"source": "file", "name": "bytes", "tokens": 5, "cached": False} == answer["tokenizer"]


def test_a_lookup_answers_as_asked_by_accept(http_client: http.client.HTTPConnection) -> None:
    """JSON in, MessagePack out."""
    _, headers, content = request(
        http_client, "POST", "/v1/lookup", b'{"token_ids":[1]}', content_type=JSON, accept=PACKED
    )

    assert PACKED == headers["content-type"]
    assert 1 == msgspec.msgpack.decode(content)["prompt_tokens"]


@pytest.mark.parametrize("body", [b'{"token_ids":[1],"request_id":"mine"}', b'{"token_ids":[1]}'])
def test_a_request_id_is_repeated(http_client: http.client.HTTPConnection, body: bytes) -> None:
    """The body's before the header's."""
    _, _, content = request(http_client, "POST", "/v1/lookup", body, content_type=JSON, x_request_id="theirs")

    assert ("mine" if b"mine" in body else "theirs") == json.loads(content)["request_id"]


def test_a_lookup_that_waits_is_given_its_time(http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """`min_sequence` waits as long as the smallest deadline says, or a second."""
    body = b'{"token_ids":[1],"min_sequence":{"p":4}}'
    request(http_client, "POST", "/v1/lookup", body, content_type=JSON)
    request(http_client, "POST", "/v1/lookup", body, content_type=JSON, x_kvindexer_timeout_ms="20")

    assert [1.0, 0.02] == node.waited


def test_every_lookup_is_counted(http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """By form, code and state; what was refused has no state."""
    request(http_client, "POST", "/v1/lookup", b'{"token_ids":[1]}', content_type=JSON)
    request(http_client, "POST", "/v1/lookup", b"{", content_type=JSON)
    request(http_client, "GET", "/v1/lookup")

    assert [("json", 200, "exact"), ("unknown", 400, ""), ("unknown", 405, "")] == [
        (o["input"], o["code"], o["state"]) for o in node.observed
    ]


def test_what_only_the_core_can_judge_is_explained(http_client: http.client.HTTPConnection) -> None:
    """Its refusals come out like those of the bodies."""
    body = b'{"block_hashes":[1],"block_size":13,"scheme":"dynamo"}'
    problem = _problem(request(http_client, "POST", "/v1/lookup", body, content_type=JSON))

    assert (422, "block_size.unusable", "13") == (problem.status, problem.code, problem.errors[0].got)


@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/hash", "/readyz"])
def test_a_fault_of_ours_is_a_problem(http_client: http.client.HTTPConnection, node: FakeNode, path: str) -> None:
    """500 without a word of what went wrong, and the next request is served."""
    node.fault = ValueError("a secret")
    body = b'{"token_ids":[1],"block_size":16}' if path == "/v1/hash" else b'{"token_ids":[1]}'
    method, content = ("GET", None) if path == "/readyz" else ("POST", body)
    answer = request(http_client, method, path, content, content_type=JSON)
    node.fault = None

    assert "internal" == _problem(answer).code
    assert b"secret" not in answer[2]
    assert 200 == request(http_client, "GET", "/healthz")[0]


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/hash", "/v1/sources"])
def test_a_body_beyond_the_limit_is_413(http_client: http.client.HTTPConnection, path: str) -> None:
    """Whole in its length, grown in chunks, or unpacked from gzip; each time the next request is served."""
    big = b" " * (BODY_MAX + 1)
    announced = request(http_client, "POST", path, big, content_type=JSON)
    http_client.request("POST", path, iter([big[:1], big[1:]]), {"content-type": JSON}, encode_chunked=True)
    response = http_client.getresponse()
    chunked = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    packed = request(http_client, "POST", path, gzip.compress(big), content_type=JSON, content_encoding="gzip")

    assert ["body.too_large"] * 3 == [_problem(answer).code for answer in (announced, chunked, packed)]
    assert 200 == request(http_client, "GET", "/healthz")[0]


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_compressed_bodies_are_read(
    http_client: http.client.HTTPConnection, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    """By lookups and by the rest."""
    body = compress(b'{"token_ids":[1],"block_size":1}')
    hashed = request(http_client, "POST", "/v1/hash", body, content_type=JSON, content_encoding=coding)
    body = compress(b'{"token_ids":[1]}')
    asked = request(http_client, "POST", "/v1/lookup", body, content_type=JSON, content_encoding=coding)

    assert (200, 200) == (hashed[0], asked[0])


def test_an_unknown_coding_is_told_the_known_ones(http_client: http.client.HTTPConnection) -> None:
    """In the header made for it."""
    status, headers, _ = request(http_client, "POST", "/v1/lookup", b"{}", content_encoding="br")

    assert (415, "gzip, zstd, identity") == (status, headers["accept-encoding"])


# --- hash, sources, service -----------------------------------------------------------------------------------------


def test_hash_gives_one_hash_a_whole_block(http_client: http.client.HTTPConnection) -> None:
    """16 digits, leading zeros kept."""
    body = json.dumps({"token_ids": list(range(33)), "block_size": 16}).encode()
    status, _, content = request(http_client, "POST", "/v1/hash", body, content_type=JSON)

    assert 200 == status
    assert HashAnswer(
        scheme="kvi1", block_size=16, hashes=["00f3c0de00000001", "00f3c0de00000002"], prompt_tokens=33
    ) == msgspec.json.decode(content, type=HashAnswer)


def _register(client: http.client.HTTPConnection, **members: object) -> int:
    body = json.dumps({"pod": "p", "endpoint": "tcp://10.0.0.1:5557"} | members).encode()
    return request(client, "POST", "/v1/sources", body, content_type=JSON)[0]


def _sources(client: http.client.HTTPConnection, query: str = "") -> SourceList:
    return msgspec.json.decode(request(client, "GET", "/v1/sources" + query)[2], type=SourceList)


def test_a_registration_is_new_the_same_or_another(http_client: http.client.HTTPConnection) -> None:
    """201, 200, 409."""
    assert 201 == _register(http_client, model="m")
    assert 200 == _register(http_client, model="m")
    assert 409 == _register(http_client, model="other")
    assert ["m"] == [source.model for source in _sources(http_client).sources]


COMMANDS = [
    ("POST", "/v1/sources", b'{"pod":"a","endpoint":"tcp://127.0.0.1:1"}'),
    ("POST", "/v1/sources", b'{"pod":"b","endpoint":"tcp://127.0.0.1:1"}'),
    ("PATCH", "/v1/sources/a", b'{"cordoned":true}'),
    ("POST", "/v1/sources/a/clear", None),
    ("PUT", "/v1/sources", b'[{"pod":"a","endpoint":"tcp://127.0.0.1:2"}]'),
    ("DELETE", "/v1/sources/a", None),
]


@pytest.mark.parametrize(
    ("effect", "statuses", "told"),
    [("done", [200, 201, 200, 200, 200, 200], None), ("accepted", [202] * len(COMMANDS), "accepted")],
)
def test_a_command_that_is_not_in_force_yet_is_accepted(
    http_client: http.client.HTTPConnection, node: FakeNode, effect: Effect, statuses: list[int], told: str | None
) -> None:
    """202 and a body that says so, whatever the command; else 200 or 201."""
    node.sources = {SourceId("a", 0): Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", origin="api")}
    node.effect = effect
    answers = [request(http_client, method, path, body) for method, path, body in COMMANDS]

    assert statuses == [status for status, _, _ in answers]
    assert {told} == {json.loads(body).get("effect") for _, _, body in answers}


@pytest.mark.parametrize(("method", "path", "body"), COMMANDS)
def test_a_command_that_the_store_did_not_take_is_503(
    http_client: http.client.HTTPConnection, node: FakeNode, method: str, path: str, body: bytes | None
) -> None:
    """Try again in a second: nothing of the store's address is told."""
    node.fault = StoreFailure("unreachable")
    answer = request(http_client, method, path, body)

    assert (503, "store.unavailable") == (answer[0], _problem(answer).code)
    assert "1" == answer[1]["retry-after"]
    assert "the store: no connection, or it broke" == _problem(answer).detail


@pytest.mark.parametrize("pod", ["10.0.0.1:8000", "http://[::1]:8000/v1", "a b%2Fc?d#e", "..", "ü"])
def test_a_pod_of_any_name_is_reached_by_its_path(http_client: http.client.HTTPConnection, pod: str) -> None:
    """Percent-encoded, it stands for itself in every command."""
    path = "/v1/sources/" + quote(pod, safe="").replace(".", "%2E")
    _register(http_client, pod=pod)
    _register(http_client, pod=pod, dp_rank=1)

    assert 200 == request(http_client, "PATCH", path + "?dp_rank=1", b'{"cordoned":true}', content_type=JSON)[0]
    assert [False, True] == [source.cordoned for source in _sources(http_client).sources]
    cleared = request(http_client, "POST", path + "/clear")
    assert {"pod": pod, "sources": 2} == json.loads(cleared[2])
    assert {"pod": pod, "sources": 2} == json.loads(request(http_client, "DELETE", path)[2])
    assert [] == _sources(http_client).sources


def test_a_block_is_found_by_either_hash(http_client: http.client.HTTPConnection) -> None:
    """One that nobody holds is a 404, one that is no hash a 422."""
    _register(http_client)
    _, _, content = request(http_client, "GET", f"/v1/sources/p/blocks/{HELD_HASH:x}")

    assert [f"{HELD_HASH:016x}"] == [block.engine_hash for block in msgspec.json.decode(content, type=BlockList).blocks]
    assert "block.unknown" == _problem(request(http_client, "GET", "/v1/sources/p/blocks/0")).code
    assert "source.unknown" == _problem(request(http_client, "GET", "/v1/sources/q/blocks/0")).code
    assert "hash.not_hex" == _problem(request(http_client, "GET", "/v1/sources/p/blocks/-1")).code


def test_the_whole_set_is_declared(http_client: http.client.HTTPConnection) -> None:
    """As an array, or under its name; what is not in it goes."""
    _register(http_client, pod="old")
    kept = {"pod": "old", "endpoint": "tcp://10.0.0.1:5557"}
    new = {"pod": "new", "endpoint": "tcp://10.0.0.2:5557"}

    def put(body: object) -> object:
        return json.loads(request(http_client, "PUT", "/v1/sources", json.dumps(body).encode(), content_type=JSON)[2])

    assert {"added": 1, "kept": 1, "removed": 0} == put([kept, new])
    assert {"added": 0, "kept": 1, "removed": 1} == put({"sources": [new]})
    assert ["new"] == [source.pod for source in _sources(http_client).sources]


def test_a_number_beyond_everything_is_told_where_it_stands(http_client: http.client.HTTPConnection) -> None:
    """In every body, not in a lookup's alone."""
    body = b'[{"pod":"p","endpoint":"tcp://10.0.0.1:1","dp_rank":' + b"9" * 5_000 + b"}]"
    problem = _problem(request(http_client, "PUT", "/v1/sources", body, content_type=JSON))

    assert (422, "[0].dp_rank") == (problem.status, problem.errors[0].field)


def test_a_list_that_forgets_too_much_is_refused_with_the_way_to_mean_it(
    http_client: http.client.HTTPConnection,
) -> None:
    """409: waiting would not help."""
    problem = _problem(request(http_client, "PUT", f"/v1/sources?max_removals={REFUSED}", b"[]", content_type=JSON))
    misspelt = _problem(request(http_client, "PUT", "/v1/sources?max_removal=7", b"[]", content_type=JSON))

    assert (409, "sources.removals") == (problem.status, problem.code)
    assert (f"at most {REFUSED} sources go", str(REFUSED + 1)) == (problem.errors[0].rule, problem.errors[0].got)
    assert f"max_removals={REFUSED + 1}" in (problem.errors[0].hint or "")
    assert (422, "did you mean max_removals?") == (misspelt.status, misspelt.errors[0].hint)


def test_sources_come_in_pages(http_client: http.client.HTTPConnection) -> None:
    """`next` leads on, rank by rank, until nothing is left."""
    for pod in ("a", "b#1", "c"):
        for rank in range(2):
            _register(http_client, pod=pod, dp_rank=rank)
    seen, after = [], ""
    while True:
        page = _sources(http_client, f"?limit=2{after}")
        seen += [(source.pod, source.dp_rank) for source in page.sources]
        if page.next is None:
            break
        after = "&after=" + quote(page.next)

    assert [(pod, rank) for pod in ("a", "b#1", "c") for rank in range(2)] == seen
    assert [] == _sources(http_client, "?state=live").sources
    assert "state.not_allowed" == _problem(request(http_client, "GET", "/v1/sources?state=dead")).code


def test_a_source_of_a_flag_stays(http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """409 says where it has to be removed."""
    _register(http_client)
    node.sources = {key: msgspec.structs.replace(known, origin="flag") for key, known in node.sources.items()}
    problem = _problem(request(http_client, "DELETE", "/v1/sources/p"))

    assert (409, "source.conflict") == (problem.status, problem.code)
    assert "flag" in problem.detail


def test_only_this_machine_changes_sources(http_client: http.client.HTTPConnection) -> None:
    """A request that came through a proxy is not of this machine; listing is open."""
    _register(http_client)
    for method, path in (
        ("POST", "/v1/sources"),
        ("PUT", "/v1/sources"),
        ("PATCH", "/v1/sources/p"),
        ("DELETE", "/v1/sources/p"),
        ("POST", "/v1/sources/p/clear"),
        ("GET", "/v1/sources/p/blocks/1"),
    ):
        answer = request(http_client, method, path, b"{}", content_type=JSON, x_forwarded_for="10.0.0.9")
        assert "caller.not_local" == _problem(answer).code
    assert 200 == request(http_client, "GET", "/v1/sources", x_forwarded_for="10.0.0.9")[0]


def test_readiness_is_not_health(http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """503 with the progress until ready; alive all the while."""
    node.ready = False
    status, _, content = request(http_client, "GET", "/readyz")
    assert (503, {"ready": False, "detail": {"sources": 0, "syncing": 0}}) == (status, json.loads(content))
    assert 200 == request(http_client, "GET", "/healthz")[0]

    node.ready = True
    assert 200 == request(http_client, "GET", "/readyz?verbose")[0]


def test_partitions_are_listed(http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """None without a store, which is said."""
    status, _, body = request(http_client, "GET", "/v1/partitions")
    assert (200, {"mode": "memory", "trouble": None, "partitions": [], "replicas": []}) == (status, json.loads(body))

    node.stored = [
        PartitionView(partition=0, role="owner", state="live", owner="a", epoch=7, position="7-1", sources=2)
    ]
    node.others = [replica("a", owned=1)]
    told = msgspec.json.decode(request(http_client, "GET", "/v1/partitions")[2], type=PartitionList)
    assert PartitionList(mode="redis", partitions=node.stored, replicas=node.others) == told


def replica(name: str, owned: int = 0) -> ReplicaView:
    """One that is there."""
    return ReplicaView(name=name, address="", state="live", owned=owned, standby=0, age_ms=3, me=False)


@pytest.mark.parametrize(("owned", "status", "effect"), [(0, 200, "done"), (3, 202, "accepted")])
def test_a_replica_is_drained(
    owned: int, status: int, effect: str, http_client: http.client.HTTPConnection, node: FakeNode
) -> None:
    """200 once it owns nothing, 202 before; and taken back."""
    node.others = [replica("a b", owned)]

    drained = request(http_client, "POST", "/v1/replicas/a%20b/drain")
    assert (status, {"name": "a b", "draining": True, "owned": owned, "effect": effect}) == (
        drained[0],
        json.loads(drained[2]),
    )
    back = request(http_client, "DELETE", "/v1/replicas/a%20b/drain")
    assert (200, {"name": "a b", "draining": False, "owned": owned, "effect": "done"}) == (
        back[0],
        json.loads(back[2]),
    )


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_drain_that_cannot_be(method: str, http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """Without a store, or nobody else, 409; an unknown replica is 404 with the nearest known name."""
    alone = _problem(request(http_client, method, "/v1/replicas/a/drain"))
    assert (409, "replica.conflict", "there is one replica") == (alone.status, alone.code, alone.detail)

    node.others = [replica("a-8080")]
    unknown = _problem(request(http_client, method, "/v1/replicas/a-8081/drain"))
    assert (404, "replica.unknown", "no replica is known as 'a-8081'") == (
        unknown.status,
        unknown.code,
        unknown.detail,
    )
    assert [("name", "a-8081", "a-8080")] == [(item.field, item.got, item.hint) for item in unknown.errors]
    assert (404, "replica.unknown") == (
        (not_text := _problem(request(http_client, method, "/v1/replicas/%FF/drain"))).status,
        not_text.code,
    )
    refused = _problem(request(http_client, method, "/v1/replicas/a-8080/drain", x_forwarded_for="10.0.0.1"))
    assert (403, "caller.not_local") == (refused.status, refused.code)


def test_metrics_and_version(http_client: http.client.HTTPConnection) -> None:
    """Text for Prometheus, JSON for the curious."""
    _, headers, text = request(http_client, "GET", "/metrics")
    assert headers["content-type"].startswith("text/plain; version=")
    assert b"kvindexer_up 1.0" in text
    _, _, version = request(http_client, "GET", "/v1/version")
    assert {"version": "0.1.0", "hash_scheme": "kvi1", "layout": "memory"} == json.loads(version)
    assert "3.1.0" == json.loads(request(http_client, "GET", "/openapi.json")[2])["openapi"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/version", "/v1/sources", "/openapi.json"])
def test_head_is_answered_where_get_is(http_client: http.client.HTTPConnection, path: str) -> None:
    """With the same headers and no body."""
    got, head = request(http_client, "GET", path), request(http_client, "HEAD", path)

    assert (got[0], b"") == (head[0], head[2])
    assert got[1]["content-length"] == head[1]["content-length"]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/reports", "/dump", "/peers", "/global_view", "/services"),
        *("/", "/v1", "/v1/lookup/", "/v1/sources/", "/v1/sources/a/b", "/docs", "/%ff", "//v1/lookup"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_not_there_is_404(http_client: http.client.HTTPConnection, method: str, path: str) -> None:
    """Paths of later versions are not half there."""
    assert "path.unknown" == _problem(request(http_client, method, path, b"{}", content_type=JSON)).code


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/lookup", "POST"),
        ("OPTIONS", "/v1/lookup", "POST"),
        ("DELETE", "/v1/sources", "GET, HEAD, POST, PUT"),
        ("GET", "/v1/sources/p", "DELETE, PATCH"),
        ("POST", "/healthz", "GET, HEAD"),
        ("TRACE", "/v1/hash", "POST"),
    ],
)
def test_another_method_is_405(http_client: http.client.HTTPConnection, method: str, path: str, allowed: str) -> None:
    """With all that the path takes."""
    answer = request(http_client, method, path)

    assert (405, allowed) == (_problem(answer).status, answer[1]["allow"])


@pytest.mark.parametrize("path", ["/v1/lookup", "/v1/hash", "/v1/sources"])
def test_another_content_type_is_415(http_client: http.client.HTTPConnection, path: str) -> None:
    """As `curl -d` sends it, for one."""
    answer = request(http_client, "POST", path, b"{}", content_type="application/x-www-form-urlencoded")

    assert (415, "content_type.unsupported") == (_problem(answer).status, _problem(answer).code)
    assert JSON in answer[1]["accept-post"]


# --- histories -------------------------------------------------------------------------------------------------------


def test_a_history_is_given_as_it_was_asked_for(http_client: http.client.HTTPConnection, node: FakeNode) -> None:
    """Rank, number and place; 100 items where no number is named. What an item does not have is left out."""
    _register(http_client)
    _register(http_client, dp_rank=1)
    path = "/v1/sources/p/history"
    status, _, body = request(http_client, "GET", path)
    _, _, narrowed = request(http_client, "GET", f"{path}?dp_rank=1&limit=1&after=1764450000000-17-3")

    assert 200 == status
    assert [0, 1] == [item["dp_rank"] for item in json.loads(body)["items"]]
    item = {
        "at": "2026-01-02T03:04:05.678+00:00",
        "dp_rank": 1,
        "what": "gap",
        "cause": "kept",
        "count": 1,
        "numbers": {"first": 5, "last": 6, "lost": 2, "sequence": 4, "generation": "5f3a"},
        "replica": None,
    }
    assert {"pod": "p", "items": [item], "next": None, "complete": True} == json.loads(narrowed)
    assert [(None, 100, None), (1, 1, (1_764_450_000_000, 17, 3))] == node.histories


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("after=1764450000000-0", "after"),
        ("after=%2B", "after"),
        ("after=1-2-3%0A", "after"),
        ("dp_rank=-1", "dp_rank"),
        ("rank=1", "rank"),
    ],
)
def test_a_history_that_is_asked_for_wrongly_is_422(
    http_client: http.client.HTTPConnection, query: str, field: str
) -> None:
    """With the parameter that is wrong."""
    _register(http_client)
    problem = _problem(request(http_client, "GET", f"/v1/sources/p/history?{query}"))

    assert (422, field) == (problem.status, problem.errors[0].field)


def test_a_history_of_nobody_is_404(http_client: http.client.HTTPConnection) -> None:
    """As everything of a pod that is not known."""
    problem = _problem(request(http_client, "GET", "/v1/sources/nobody/history"))

    assert (404, "source.unknown") == (problem.status, problem.code)


# --- any bytes -------------------------------------------------------------------------------------------------------

_PATHS = st.sampled_from(["/v1/lookup", "/v1/hash", "/v1/sources", "/v1/sources/p/clear", "/v1/sources/p"])
_METHODS = st.sampled_from(["POST", "PUT", "PATCH", "DELETE"])
_TYPES = st.sampled_from(
    [JSON, PACKED, "application/octet-stream", "application/json; charset=utf-8", "text/plain", "x"]
)
_BODIES = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["token_ids", "block_hashes", "pod", "endpoint", "sources"]) | st.text(max_size=4),
                inner,
                max_size=3,
            )
        ),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()),
)
_HEADERS = st.dictionaries(
    st.sampled_from(
        ["accept", "x-request-id", "x-kvindexer-timeout-ms", "x-kvindexer-cache-salt", "content-encoding", "origin"]
    ),
    st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=12).map(
        str.strip
    ),
    max_size=3,
)


@settings(max_examples=300)
@given(_METHODS, _PATHS, _TYPES, _BODIES, _HEADERS, st.binary(max_size=12))
def test_any_bytes_get_an_answer_or_a_problem(
    served: tuple[FakeNode, Address],
    method: str,
    path: str,
    content_type: str,
    body: bytes,
    headers: dict[str, str],
    query: bytes,
) -> None:
    """Never a fault of ours, never a malformed answer, whatever comes."""
    served[
        0
    ].fault = None  # another test's, perhaps: a fixture that is made for each test is made once for all examples
    client = http.client.HTTPConnection(*served[1], timeout=20)
    url = path + ("?" + quote(query, safe="&=%") if query else "")
    answer = request(client, method, url, body, content_type=content_type, **headers)
    client.close()

    assert answer[0] < 500
    if answer[0] >= 400:
        _problem(answer)
    else:
        assert answer[1]["content-type"] in {JSON, PACKED}


@settings(max_examples=200)
@given(st.binary(max_size=120), st.lists(st.integers(0, 120), max_size=3))
def test_any_bytes_on_the_socket_leave_the_server_alive(
    served: tuple[FakeNode, Address], tail: bytes, cuts: list[int]
) -> None:
    """What is no HTTP ends its connection and no other."""
    sent = tail + b"\r\n\r\n\x00"
    received = exchange(served[1], sent, pieces=sorted(min(cut, len(sent)) for cut in cuts), half_close=True)
    client = http.client.HTTPConnection(*served[1], timeout=20)
    alive = request(client, "GET", "/healthz")[0]
    client.close()

    assert 200 == alive
    assert received == b"" or re.match(rb"HTTP/1\.1 ([24]\d\d|501) ", received)
