"""`/query` and `/query_by_hash` as functions: what the originals' clients send, and what they read."""

import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.access.caller import Caller
from api.faces.doors import face_caller
from api.faces.plain_hashes import PlainHashes
from api.faces.query import QUERY, QUERY_BY_HASH, QueryRoute
from api.faces.questions import Unreadable, by_hashes, by_tokens, plain_options
from api.rest.body import BodyReader
from api.rest.limits import RestLimits
from api.rest.media import BodyForm
from api.rest.plain_json import PlainJson
from indexer.hashing.texts import TextMemo
from schemas.lookup import Holding, LookupQuery
from tests.support.fake_node import FakeNode

JSON = b"application/json"
PACKED = b"application/msgpack"
LIMITS = RestLimits(tokens=1_000, body_bytes=20_000)
ONE = [Holding("7", 0, 32, 48, 80)]
RANKS = [Holding("7", 0, 32, 48, 80), Holding("7", 1, 16, 16, 32), Holding("pod-b", 0, 0, 16, 16)]


class Asked:
    """A route over a double."""

    def __init__(self, path: str = QUERY, held: list[Holding] | None = None, caller: Caller | None = None) -> None:
        self.node = FakeNode()
        self.node.held = ONE if held is None else held
        self.route = QueryRoute(path, self.node, BodyReader(LIMITS), LIMITS, caller or face_caller(controlled=False))

    def send(self, body: bytes, content_type: bytes | None = JSON) -> tuple[int, str, bytes]:
        """Status, content type and body of the answer."""
        headers = {} if content_type is None else {b"content-type": content_type}
        reply = self.route.answer_now(b"", headers, body)
        assert reply is not None
        status, told, content = reply
        assert int(dict(told)[b"content-length"]) == len(content)
        return status, dict(told)[b"content-type"].decode(), content

    def json(self, **members: Any) -> Any:  # noqa: ANN401  whatever JSON can say
        """The answer to that body, which must be taken."""
        status, content_type, content = self.send(json.dumps(members).encode())
        assert (200, "application/json") == (status, content_type), content
        return json.loads(content)

    def refused(self, body: bytes | dict[str, Any], content_type: bytes = JSON) -> tuple[int, str, str]:
        """Status, content type and text of a refusal."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, told, content = self.send(sent, content_type)
        assert status >= 400
        return status, told.partition(";")[0], content.decode()

    @property
    def asked(self) -> LookupQuery:
        return self.node.queries[-1]


def test_dynamo_is_answered_in_its_own_words() -> None:
    """As its service has them: counts in tokens, tiers cumulative, `frequencies` empty."""
    asked = Asked(held=RANKS)

    assert {
        "scores": {"7": {"0": 32, "1": 16}},
        "frequencies": [],
        "instances": {
            "7": {"longest_matched": 80, "gpu": 32, "dp": {"0": 32, "1": 16}, "cpu": 48, "disk": 80},
            "pod-b": {"longest_matched": 16, "gpu": 0, "dp": {"0": 0}, "cpu": 16, "disk": 16},
        },
    } == asked.json(token_ids=[1, 2, 3], model_name="m")
    assert LookupQuery(tokens=struct.pack("<3I", 1, 2, 3), model="m") == asked.asked
    assert [{"api": "dynamo", "input": "json", "code": 200, "state": "exact"}] == asked.node.observed


def test_nobody_holds_anything() -> None:
    """Also what an unknown model looks like: three empty members."""
    assert {"scores": {}, "frequencies": [], "instances": {}} == Asked(held=[]).json(token_ids=[1], model_name="x")


def test_mooncakes_json_has_both_of_its_shapes() -> None:
    """`instances` in small letters, and the older one by tenant, in capitals."""
    asked = Asked(held=RANKS)
    answer = asked.json(token_ids=[1], model="m", block_size=16, tenant_id="acme")

    assert {"instances", "acme"} == set(answer)
    assert answer["instances"] == answer["acme"]
    seven = answer["instances"]["7"]
    assert (80, 32, 48, 80) == tuple(seven[name] for name in ("longest_matched", "gpu", "cpu", "disk"))
    assert (32, 48, 80) == tuple(seven[name] for name in ("GPU", "CPU", "DISK"))
    assert {"0": 32, "1": 16} == seven["dp"]
    assert {"0": 80, "1": 32} == seven["DP"]
    assert {"0": {"gpu": 32, "cpu": 48, "disk": 80}, "1": {"gpu": 16, "cpu": 16, "disk": 32}} == seven["rank_matches"]
    assert "default" in Asked().json(token_ids=[1], model="m", block_size=16)


@pytest.mark.parametrize("ids", [[1, 2, 70_000], struct.pack("<3i", 1, 2, 70_000)])
def test_mooncakes_proxy_sends_messagepack(ids: list[int] | bytes) -> None:
    """Ids as an array, or as one bin of int32; empty strings are no names."""
    asked = Asked()
    body = {"model": "m", "block_size": 16, "token_ids": ids, "tenant_id": "default", "lora_name": "", "cache_salt": ""}
    status, content_type, content = asked.send(msgspec.msgpack.encode(body), PACKED)

    assert (200, "application/msgpack") == (status, content_type)
    assert {
        "instances": {
            "7": {
                "longest_matched": 80,
                "dp": {"0": 32},
                "gpu": 32,
                "cpu": 48,
                "disk": 80,
                "rank_matches": {"0": {"gpu": 32, "cpu": 48, "disk": 80}},
            }
        }
    } == msgspec.msgpack.decode(content)
    assert LookupQuery(tokens=struct.pack("<3I", 1, 2, 70_000), model="m", block_size=16) == asked.asked


def test_what_a_question_may_name() -> None:
    """All of it, and keys that nobody knows."""
    asked = Asked()
    asked.json(
        token_ids=[1], model_name="m", lora_name="ad", cache_salt="s", routing_group="g", tenant_id=None, trace_id=[1]
    )
    assert ("m", "ad", "s", "g", None) == (
        asked.asked.model,
        asked.asked.lora_name,
        asked.asked.cache_salt,
        asked.asked.tenant,
        asked.asked.block_size,
    )
    asked.json(token_ids=[1], model="m", block_size=32, instance_id="pod-b", tenant_id="t", lora_id=None)
    assert ("t", 32, ("pod-b",)) == (asked.asked.tenant, asked.asked.block_size, asked.asked.pods)
    asked.json(token_ids=[1], model="m", block_size=32, instance_id="", tenant_id="")
    assert (None, None) == (asked.asked.tenant, asked.asked.pods)


@pytest.mark.parametrize("path", [QUERY, QUERY_BY_HASH])
@pytest.mark.parametrize("names", [{}, {"model": "a", "model_name": "b"}, {"model": "", "model_name": ""}])
def test_both_names_or_neither_tell_no_protocol(path: str, names: dict[str, str]) -> None:
    """422 in plain text, as Dynamo answers a body that lacks a field."""
    status, content_type, text = Asked(path).refused({"token_ids": [1], "block_hashes": [1], "block_size": 16, **names})
    assert (422, "text/plain") == (status, content_type)
    assert "exactly one of model_name (Dynamo) and model (Mooncake)" in text


@pytest.mark.parametrize(
    ("body", "status", "content_type"),
    [
        (b"", 400, "text/plain"),
        (b"{", 400, "text/plain"),
        (b'{"a":' * 3_000, 400, "text/plain"),
        ({"model_name": "m"}, 422, "text/plain"),
        ({"model_name": "m", "token_ids": "1 2"}, 422, "text/plain"),
        ({"model_name": "m", "token_ids": [-1]}, 422, "text/plain"),
        ({"model_name": "m", "token_ids": [2**32]}, 422, "text/plain"),
        ({"model_name": "m", "token_ids": [1], "lora_name": 5}, 422, "text/plain"),
        ({"model_name": "m", "token_ids": [0] * 1_001}, 422, "text/plain"),
        ({"model_name": "m", "token_ids": [10**9] * 3_000}, 413, "text/plain"),
        ({"model_name": "m", "token_ids": [1], "routing_group": "a", "tenant_id": "b"}, 422, "text/plain"),
        ({"model": "m", "block_size": 16}, 400, "application/json"),
        ({"model": "m", "block_size": 0, "token_ids": [1]}, 400, "application/json"),
        ({"model": "m", "block_size": 16, "token_ids": [-1]}, 400, "application/json"),
        ({"model": "m", "token_ids": [1]}, 400, "application/json"),
    ],
)
def test_refusals_have_the_originals_status_and_form(
    body: bytes | dict[str, Any], status: int, content_type: str
) -> None:
    """Dynamo's are plain text, Mooncake's are JSON that names reason and field."""
    refused = Asked().refused(body)

    assert (status, content_type) == refused[:2]
    if content_type == "application/json":
        said = json.loads(refused[2])
        assert {"error", "reason", "field"} == set(said)
        assert said["field"] in {"token_ids", "token_ids[0]", "block_size"}


def test_other_media_types_are_refused() -> None:
    """415, and MessagePack that is none is Mooncake's to be told of."""
    assert (415, "text/plain") == Asked().refused(b"{}", b"text/plain")[:2]
    status, content_type, text = Asked().refused(b"\xc1", PACKED)
    assert (400, "application/json", "body.not_msgpack") == (status, content_type, json.loads(text)["reason"])
    body = msgspec.msgpack.encode({"model": "m", "block_size": 16, "token_ids": b"\x01\x00\x00"})
    status, _, text = Asked().refused(body, PACKED)
    assert (400, "token_ids") == (status, json.loads(text)["field"])


def test_local_hashes_may_be_signed_or_not() -> None:
    """Dynamo's own function gives u64, its service takes i64 alone: here both name the same block."""
    asked = Asked(QUERY_BY_HASH)
    for hashes in ([2**64 - 1, 0, 2**63], [-1, 0, -(2**63)], [2**64 - 1, 0, -(2**63)]):
        asked.json(block_hashes=hashes, model_name="m")
        assert [2**64 - 1, 0, 2**63] == list(asked.asked.block_hashes or ())
    assert ("dynamo", None) == (asked.asked.scheme, asked.asked.block_size)
    assert 422 == asked.refused({"block_hashes": [2**64], "model_name": "m"})[0]
    assert 422 == asked.refused({"block_hashes": [-(2**63) - 1], "model_name": "m"})[0]
    assert 422 == asked.refused({"block_hashes": ["9f"], "model_name": "m"})[0]
    assert 422 == asked.refused({"model_name": "m"})[0]


def test_a_salt_beside_hashes_is_refused_as_dynamo_does() -> None:
    """400, in JSON."""
    status, content_type, text = Asked(QUERY_BY_HASH).refused(
        {"block_hashes": [], "model_name": "m", "cache_salt": "s"}
    )

    assert (400, "application/json") == (status, content_type)
    assert {"error"} == set(json.loads(text))


@pytest.mark.parametrize("name", ["seq_hashes", "block_hash"])
def test_rolling_hashes_of_another_scheme_are_no_question_for_this_index(name: str) -> None:
    """409: it could only ever answer that nobody holds them."""
    status, content_type, text = Asked(QUERY_BY_HASH).refused({"model": "m", "block_size": 16, name: [1, 2]})

    assert (409, "application/json") == (status, content_type)
    assert "token_ids" in json.loads(text)["error"]
    assert 400 == Asked(QUERY_BY_HASH).refused({"model": "m", "block_size": 16})[0]


def test_hashes_without_the_deployments_secret_are_a_conflict() -> None:
    """409, in Dynamo's form."""
    asked = Asked(QUERY_BY_HASH)
    asked.node.secret = True
    status, content_type, _ = asked.refused({"block_hashes": [1], "model_name": "m"})

    assert (409, "application/json") == (status, content_type)


def test_a_fault_of_ours_is_no_prompt_of_theirs(caplog: pytest.LogCaptureFixture) -> None:
    """500, counted, and nothing of what was asked in log or answer."""
    asked = Asked()
    asked.node.fault = RuntimeError("4711 4712")
    status, _, text = asked.refused({"token_ids": [4711, 4712], "model_name": "m"})

    assert 500 == status
    assert "4711" not in text + caplog.text
    assert [500] == [each["code"] for each in asked.node.observed]


def test_where_others_show_tokens_faces_see_one_tenant() -> None:
    """The one that has no name: nobody knows who asks."""
    asked = Asked(caller=face_caller(controlled=True))

    asked.json(token_ids=[1], model_name="m", tenant_id="default")
    assert "default" == asked.asked.tenant
    assert 403 == asked.refused({"token_ids": [1], "model_name": "m", "tenant_id": "acme"})[0]
    assert 403 == asked.refused({"token_ids": [1], "model": "m", "block_size": 16, "tenant_id": "acme"})[0]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_far_too_many_numbers_are_refused_unread(form: BodyForm) -> None:
    """Before each of them becomes an object."""
    encode = json.dumps if form == "json" else msgspec.msgpack.encode
    sent = encode({"model": "m", "block_size": 16, "token_ids": [7] * 1_200_000, "seq_hashes": [7] * 1_200_000})
    body = sent.encode() if isinstance(sent, str) else sent

    for read in (lambda: by_tokens(form, body, 1_000), lambda: by_hashes(form, body)):
        with pytest.raises(Unreadable) as refused:
            read()
        assert ("mooncake", "body.too_many_numbers") == (refused.value.protocol, refused.value.why.code)  # type: ignore[attr-defined]


_NAMES = st.sampled_from(["m", "", "a[b", 'q"', "é", None, 5, True])
_SIZES = st.sampled_from([16, 0, None, 70_000, True, 1.5, "16"])
_IDS = st.one_of(
    st.lists(st.integers(0, 2**32 - 1), max_size=5), st.sampled_from([[-1], [2**32], [1.5], "x", None, [[1]], [True]])
)
_MEMBERS = st.fixed_dictionaries(
    {"token_ids": _IDS},
    optional={
        "model_name": _NAMES,
        "model": _NAMES,
        "routing_group": _NAMES,
        "tenant_id": _NAMES,
        "lora_name": _NAMES,
        "cache_salt": _NAMES,
        "instance_id": _NAMES,
        "block_size": _SIZES,
        "more": _NAMES,
    },
)


@given(_MEMBERS, st.booleans())
def test_the_short_way_takes_what_the_strict_way_takes(members: dict[str, Any], ids_last: bool) -> None:
    """And makes the same question of it."""
    if ids_last:
        members["token_ids"] = members.pop("token_ids")
    body = json.dumps(members).encode()
    query = PlainJson(LIMITS.tokens, TextMemo(), plain_options).read(body)

    if query is not None:
        assert by_tokens("json", body, LIMITS.tokens) == query


_HASHES = st.one_of(
    st.lists(st.integers(-(2**63), 2**64 - 1), max_size=5),
    st.lists(st.integers(-(2**63), -1), max_size=5),
    st.sampled_from([[2**64], [-(2**63) - 1], [1.0], [True], [None], "x", None, [[1]], ["1"]]),
)


@given(_HASHES, _MEMBERS)
def test_hashes_are_read_alike_by_both_ways(hashes: object, members: dict[str, Any]) -> None:
    """And where the short way takes a body, so does the strict one."""
    del members["token_ids"]
    body = json.dumps({"block_hashes": hashes, **members}).encode()
    query = PlainHashes().read(body)

    if query is not None:
        strict = by_hashes("json", body)
        assert list(strict.block_hashes or ()) == list(query.block_hashes or ())
        assert msgspec.structs.replace(strict, block_hashes=None) == msgspec.structs.replace(query, block_hashes=None)


def test_the_usual_hashes_go_the_short_way() -> None:
    """Signed ones, unsigned ones, and with what may stand beside them."""
    for hashes in ([], [1, 2], [-1, 5], [2**64 - 1]):
        body = json.dumps({"block_hashes": hashes, "model_name": "m", "routing_group": "g"}).encode()
        query = PlainHashes().read(body)
        assert query is not None
        assert ("m", "g", "dynamo") == (query.model, query.tenant, query.scheme)
        assert [each % 2**64 for each in hashes] == list(query.block_hashes or ())
