"""The short way for JSON lookups: what it takes, what it leaves, and that it never differs from the strict way."""

import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.rest import plain_json
from api.rest.lookup_request import LookupRequests
from api.rest.plain_json import PlainJson
from indexer.errors import IndexerError
from indexer.hashing.texts import TextMemo
from schemas.lookup import LookupQuery

TOKENS_MAX = 1_000


def _read(body: bytes | str) -> LookupQuery | None:
    return PlainJson(TOKENS_MAX, TextMemo()).read(body.encode() if isinstance(body, str) else body)


def _image(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"token_ids":[1,2,3]}', LookupQuery(tokens=_image(1, 2, 3))),
        ('{"token_ids":[]}', LookupQuery(tokens=b"")),
        ('{"token_ids":[0,4294967295]}', LookupQuery(tokens=_image(0, 2**32 - 1))),
        ('{ "model" : "m" ,\n"token_ids" : [ 7 ] }', LookupQuery(tokens=_image(7), model="m")),
        ('{"token_ids":[1],"model":null}', LookupQuery(tokens=_image(1))),
        ('{"token_ids":[1],"limit":2,"partial":true}', LookupQuery(tokens=_image(1), limit=2, partial=True)),
        ('{"token_ids":[1],"pods":["a","b"]}', LookupQuery(tokens=_image(1), pods=("a", "b"))),
        ('{"token_ids":[1],"pods":["[::1]:8000"]}', LookupQuery(tokens=_image(1), pods=("[::1]:8000",))),
        ('{"token_ids":[1],"model":"a[b"}', LookupQuery(tokens=_image(1), model="a[b")),
        ('{"token_ids":[1],"model":"\\u005b"}', LookupQuery(tokens=_image(1), model="[")),
    ],
)
def test_takes_the_plain_body(body: str, expected: LookupQuery) -> None:
    """Token ids and options of one level, and nothing that could hide an array inside the ids."""
    assert expected == _read(body)


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "{", "[]", "1", "null", '"x"', '{"token_ids":[1]} x', '{"token_ids":[1,]}', '{"token_ids":[NaN]}'),
        *('{"token_ids":[-1]}', '{"token_ids":[1.0]}', '{"token_ids":[1,2.5]}', '{"token_ids":[1e2]}'),
        *('{"token_ids":[4294967296]}', '{"token_ids":[18446744073709551616]}', '{"token_ids":["1"]}'),
        *('{"token_ids":[true]}', '{"token_ids":[null]}', '{"token_ids":null}', '{"token_ids":1}', '{"token_ids":{}}'),
        *('{"token_ids":[[1],[2]]}', '{"token_ids":[1,[2]]}', '{"token_ids":[[]]}', '{"token_ids":[{"a":1}]}'),
        *('{"token_ids":[1],"token_ids":[2]}', '{"model":"a","token_ids":[1],"model":"b"}'),
        *('{"token_ids":[1],"modle":"m"}', '{"token_ids":[1],"mm_items":[]}', '{"token_ids":[1],"min_sequence":{}}'),
        *('{"token_ids":[1],"limit":-1}', '{"token_ids":[1],"limit":1.0}', '{"token_ids":[1],"partial":1}'),
        *('{"token_ids":[1],"pods":[1]}', '{"token_ids":[1],"pods":{}}', '{"token_ids":[1],"model":{}}'),
        *('{"token_ids":[1],"block_size":16}', '{"block_hashes":[1],"block_size":16}', "{}"),
        '\ufeff{"token_ids":[1]}',
        '{"model":"\\ud800","token_ids":[1]}',
        '{"token_ids":' + "[" * 3_000,
        '{"token_ids":[[1]],"model":"\\u005b["}',
        json.dumps({"token_ids": [1] * (TOKENS_MAX + 1)}),
    ],
)
def test_leaves_everything_else(body: str) -> None:
    """Wrong, unusual or ambiguous: not its business, and the next body is read as ever."""
    plain = PlainJson(TOKENS_MAX, TextMemo())

    assert plain.read(body.encode()) is None
    assert LookupQuery(tokens=_image(5)) == plain.read(b'{"token_ids":[5]}')


@pytest.mark.parametrize("body", [b'{"token_ids":[1],"model":"\xff"}', b'{"token_ids":[1]}\x00', b"\xff\xfe"])
def test_leaves_what_is_no_text(body: bytes) -> None:
    """Bytes that are no UTF-8, or follow the document."""
    assert _read(body) is None


_IDS = st.lists(
    st.one_of(
        st.integers(0, 2**32 - 1),
        st.sampled_from([-1, 2**32, 2**63, 2**64, 1.0, 0.5, True, None, "1", [1], [], {}]),
    ),
    max_size=6,
)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**65),
    st.floats(allow_nan=False),
    st.text(alphabet='ab[]{}\\"é\ud7ff', max_size=5),
    st.lists(
        st.one_of(st.text(alphabet="ab[", max_size=3), st.integers(0, 3), st.lists(st.none(), max_size=1)), max_size=3
    ),
    st.sampled_from(["rank", "pod", "prefill", ["prefill", "decode"], {"a": 1}, {}]),
)
_KEYS = st.sampled_from(
    [
        "model",
        "pods",
        "pod_roles",
        "limit",
        "partial",
        "group",
        "timeout_ms",
        "request_id",
        "block_size",
        "min_sequence",
        "x",
    ]
)


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    """Documents near the plain form: members in any order, maybe twice, characters maybe escaped."""
    members = [("token_ids", draw(_IDS))] * draw(st.integers(0, 2)) + draw(
        st.lists(st.tuples(_KEYS, _VALUES), max_size=3)
    )
    escape = draw(st.booleans())
    texts = [
        f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=escape)}" for key, value in draw(st.permutations(members))
    ]
    text = "{" + ",".join(texts) + "}"
    if draw(st.booleans()):
        text = text.replace("[", "\\u005b", draw(st.integers(0, 1)))
    return text.encode("utf-8", "surrogatepass")


@given(_bodies())
@example(b'{"token_ids":[[1]],"model":"\\u005b"}')
def test_agrees_with_the_strict_way(body: bytes) -> None:
    """Where it answers at all, the strict decoder gives the same question."""
    plain = PlainJson(TOKENS_MAX, TextMemo()).read(body)
    try:
        strict = LookupRequests(TOKENS_MAX).parse_strictly("json", body, b"", {}).query
    except IndexerError:
        strict = None

    assert plain is None or plain == strict


def _in_slices(body: bytes, tokens_max: int = TOKENS_MAX) -> tuple[LookupQuery | None, int]:
    """The question, and how often others had their turn."""
    steps, turns = PlainJson(tokens_max, TextMemo()).in_slices(body), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, turns
        turns += 1


@given(body=_bodies())
@example(body=b'{"token_ids":[1,2,],"model":"m"}')
@example(body=b'{"token_ids":[1,,2]}')
@example(body=b'{"token_ids":[ 1 ,\n2, 3 ] , "model" : "m"}')
@example(body=b'{"token_ids":[],"model":"m"}')
@example(body=b'{"token_ids":["]",1]}')
@example(body=b'{"token_ids":[1.5,1]}')
@example(body=b'{"token_ids":[1,2')
@example(body=b'{"model":"a","token_ids":[1,2],"token_ids":[3]}')
@pytest.mark.parametrize("slice_bytes", [1, 2, 3, 7, 2**16])
def test_slices_agree_with_the_strict_way(body: bytes, slice_bytes: int) -> None:
    """Wherever the list is cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_json, "SLICE_BYTES", slice_bytes)
        plain, _ = _in_slices(body)
    try:
        strict = LookupRequests(TOKENS_MAX).parse_strictly("json", body, b"", {}).query
    except IndexerError:
        strict = None

    assert plain is None or plain == strict


def test_a_long_list_is_read_in_slices() -> None:
    """And is the one that was sent; one too many is left to be refused."""
    ids = list(range(200_000))
    body = json.dumps({"model": "m", "token_ids": ids}).encode()
    query, turns = _in_slices(body, len(ids))

    assert query is not None
    assert (ids, "m") == (list(struct.unpack(f"<{len(ids)}I", query.tokens or b"")), query.model)
    assert len(body) // plain_json.SLICE_BYTES <= turns
    assert None is _in_slices(body, len(ids) - 1)[0]


@given(st.binary(max_size=40))
def test_takes_any_bytes(body: bytes) -> None:
    """No bytes at all make it raise."""
    assert _read(body) is None
