"""One question from every form it may come in."""

import json
import struct
from array import array
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.problems import RequestRefused
from api.rest.lookup_request import HASH_BLOCKS_MAX, QUERY_HASHES_MAX, LookupRequests
from api.rest.media import BodyForm
from api.rest.prompt_text import TEXT_FIELDS
from api.rest.why_not import EXPLAINED_BYTES_MAX
from indexer.errors import BadRequestError
from schemas.lookup import LookupQuery, MmItem, TextPrompt
from schemas.rest import LookupBody

TOKENS_MAX = 1_000


def _parse(
    form: BodyForm, body: bytes, query: str = "", headers: Mapping[bytes, bytes] | None = None, *, hashing: bool = False
) -> LookupQuery:
    return LookupRequests(TOKENS_MAX).parse(form, body, query.encode(), headers or {}, hashing=hashing).query


def _image(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def _json(**members: object) -> bytes:
    return json.dumps(members).encode()


def _refusal(form: BodyForm, body: bytes, query: str = "", *, hashing: bool = False) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        _parse(form, body, query, hashing=hashing)
    return caught.value


@pytest.mark.parametrize(
    ("form", "body", "label"),
    [
        ("json", b'{"token_ids":[7,4294967295]}', "json"),
        ("json", b'{"token_ids":[7,4294967295],"mm_items":[]}', "json"),
        ("msgpack", msgspec.msgpack.encode({"token_ids": [7, 2**32 - 1]}), "msgpack"),
        ("msgpack", msgspec.msgpack.encode({"token_ids": _image(7, 2**32 - 1)}), "msgpack"),
        ("ids", _image(7, 2**32 - 1), "bytes"),
    ],
)
def test_every_form_gives_the_same_question(form: BodyForm, body: bytes, label: str) -> None:
    """Ids arrive as one little-endian u32 image."""
    request = LookupRequests(TOKENS_MAX).parse(form, body, b"", {})

    assert (LookupQuery(tokens=_image(7, 2**32 - 1)), label) == request


@pytest.mark.parametrize(("form", "body"), [("json", b'{"token_ids":[]}'), ("ids", b"")])
def test_no_tokens_are_a_question(form: BodyForm, body: bytes) -> None:
    """An empty prompt is answered, not refused."""
    assert LookupQuery(tokens=b"") == _parse(form, body)


def test_options_come_by_body_or_by_query_string() -> None:
    """Every option that the body carries has its place in the query string of bare token bytes."""
    options: dict[str, object] = {
        "model": "m",
        "lora_name": "a",
        "tenant": "t",
        "pods": ["10.0.0.1:8000", "http://[::1]:8000/"],
        "pod_roles": ["prefill", "both"],
        "max_lag_ms": 5,
        "partial": True,
        "limit": 3,
        "group": "pod",
        "request_id": "r",
        "timeout_ms": 20,
    }
    nested = {"mm_items": [{"hash": "h", "offset": 1, "length": 2}], "min_sequence": {"p": 4}}
    in_url = options | {"partial": "true"} | {name: json.dumps(value) for name, value in nested.items()}
    expected = LookupQuery(
        tokens=_image(9),
        model="m",
        lora_name="a",
        tenant="t",
        pods=("10.0.0.1:8000", "http://[::1]:8000/"),
        pod_roles=("prefill", "both"),
        max_lag_ms=5,
        partial=True,
        limit=3,
        group="pod",
        request_id="r",
        timeout_ms=20,
        mm_items=(MmItem("h", 1, 2),),
        min_sequence={"p": 4},
    )

    assert expected == _parse("json", _json(token_ids=[9], **options, **nested))
    assert expected == _parse("ids", _image(9), urlencode(in_url, doseq=True))


def test_the_body_counts_before_the_query_string() -> None:
    """Given twice, the body's is meant; what it leaves open is filled."""
    query = _parse("json", _json(token_ids=[1], limit=1, model=None), "limit=2&model=m")

    assert (1, "m") == (query.limit, query.model)


def test_items_may_also_repeat_their_key() -> None:
    """Lists by repeating the key holds for lists of objects, too."""
    items = [{"hash": "h", "offset": offset, "length": 2} for offset in (1, 3)]
    query = urlencode([("mm_items", json.dumps(item)) for item in items])

    assert (MmItem("h", 1, 2), MmItem("h", 3, 2)) == _parse("ids", b"", query).mm_items


@pytest.mark.parametrize("second", [(4, 5), (0, 1), (0, 6), (1, 0)])
def test_items_lie_side_by_side(second: tuple[int, int]) -> None:
    """In every form, whatever is known of the engines; in which order they stand does not matter."""
    items = [{"hash": "h", "offset": offset, "length": length} for offset, length in ((0, 5), second)]
    in_query = urlencode({"mm_items": json.dumps(items)})
    for refused in (
        _refusal("json", _json(token_ids=[1], mm_items=items)),
        _refusal("json", _json(token_ids=[1], mm_items=items[::-1])),
        _refusal("msgpack", msgspec.msgpack.encode({"token_ids": [1], "mm_items": items})),
        _refusal("json", _json(token_ids=[1], mm_items=items, block_size=1), hashing=True),
        _refusal("ids", _image(1), in_query),
    ):
        assert ("mm_items.overlap", "mm_items") == (refused.code, refused.issues[0].field)


def test_items_may_touch_in_any_order() -> None:
    """The end of one is where the next begins."""
    items = [{"hash": "h", "offset": offset, "length": length} for offset, length in ((5, 2), (0, 5), (7, 0))]

    assert (MmItem("h", 5, 2), MmItem("h", 0, 5), MmItem("h", 7, 0)) == _parse(
        "json", _json(token_ids=[1], mm_items=items)
    ).mm_items


@pytest.mark.parametrize(
    ("hashes", "expected"),
    [
        ([], []),
        (["00f3c0de00000001", "ffffffffffffffff"], [0xF3C0DE00000001, 2**64 - 1]),
        (["9F3C", "0x10", "1"], [0x9F3C, 16, 1]),
        ([5, -1, "0000000000000010"], [5, 2**64 - 1, 16]),
        (["0x00000000000001"], [1]),
    ],
)
def test_hashes_are_hex_or_integers(hashes: list[object], expected: list[int]) -> None:
    """One u64 each, however it is written."""
    query = _parse("json", _json(block_hashes=hashes, block_size=16, prompt_tokens=55, scheme="dynamo"))

    assert LookupQuery(block_hashes=array("Q", expected), block_size=16, prompt_tokens=55, scheme="dynamo") == query


@pytest.mark.parametrize(
    "wrong", ["", "xyz", " 1", "1_0", "+5", "0x", "12345678901234567", "1\n", "٣", 2**64, -(2**63) - 1]
)
def test_other_hashes_are_refused(wrong: object) -> None:
    """Whatever Python's own number parsing would take besides."""
    error = _refusal("json", _json(block_hashes=["0000000000000001", wrong], block_size=16))

    assert ("block_hashes.not_allowed", "block_hashes[1]") == (error.code, error.issues[0].field)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_hashes_come_back_as_they_were_handed_out(values: list[int]) -> None:
    """16 digits, leading zeros kept."""
    body = _json(block_hashes=[f"{value:016x}" for value in values], block_size=1)

    assert values == list(_parse("json", body).block_hashes or ())


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "prompt.exactly_one", "token_ids"),
        ({"token_ids": None}, "prompt.exactly_one", "token_ids"),
        ({"token_ids": [1], "block_hashes": [1], "block_size": 16}, "prompt.exactly_one", "token_ids"),
        ({"block_hashes": [1]}, "block_size.missing", "block_size"),
        ({"token_ids": [1], "block_size": 16}, "block_size.not_allowed", "block_size"),
        ({"token_ids": [1], "prompt_tokens": 1}, "prompt_tokens.not_allowed", "prompt_tokens"),
        ({"token_ids": [1], "scheme": "kvi1"}, "scheme.not_allowed", "scheme"),
        ({"block_hashes": [1], "block_size": 0}, "block_size.not_allowed", "block_size"),
        ({"block_hashes": [1, 2], "block_size": 16, "prompt_tokens": 31}, "prompt_tokens.not_allowed", "prompt_tokens"),
        ({"token_ids": [1] * (TOKENS_MAX + 1)}, "token_ids.too_many", "token_ids"),
        ({"prompt": "text", "token_ids": [1]}, "prompt.exactly_one", "token_ids"),
        ({"prompt": "text", "messages": []}, "prompt.exactly_one", "token_ids"),
        ({"prompt": ["text"]}, "prompt.wrong_type", "prompt"),
        ({"messages": "text"}, "messages.wrong_type", "messages"),
        ({"messages": ["text"]}, "messages.wrong_type", "messages[0]"),
        ({"prompt": "text", "tools": []}, "tools.not_allowed", "tools"),
        ({"token_ids": [1], "tools": []}, "tools.not_allowed", "tools"),
        ({"token_ids": [1], "add_special_tokens": True}, "add_special_tokens.not_allowed", "add_special_tokens"),
        ({"prompt": "text", "block_size": 16}, "block_size.not_allowed", "block_size"),
        ({"messages": [], "chat_template": "t"}, "unknown_field", "chat_template"),
        (
            {"messages": [], "chat_template_kwargs": {"chat_template": "t"}},
            "chat_template_kwargs.not_allowed",
            "chat_template_kwargs",
        ),
        (
            {"messages": [], "add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message.not_allowed",
            "continue_final_message",
        ),
    ],
)
def test_one_prompt_in_one_form(body: dict[str, object], code: str, field: str) -> None:
    """Exactly one of ids, hashes and texts, hashes with their block size, and each option beside its own."""
    error = _refusal("json", json.dumps(body).encode())

    assert (code, field) == (error.code, error.issues[0].field)


@pytest.mark.parametrize("number", ["9" * 5_000, "-" + "9" * 5_000, "1e400"])
@pytest.mark.parametrize(
    ("body", "code", "field"),
    [('{"token_ids":[1,%s]}', "token_ids.not_u32", "token_ids[1]"), ('{"limit":%s}', "limit.invalid", "limit")],
)
def test_a_number_beyond_everything_is_told_where_it_stands(number: str, body: str, code: str, field: str) -> None:
    """It is JSON; no machine number holds it."""
    error = _refusal("json", (body % number).encode())

    assert (code, field) == (error.code, error.issues[0].field)


_MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "héllo 😀"}]}]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_text_stays_one(form: BodyForm) -> None:
    """Who makes tokens of it is told all that decides which."""
    encode = json.dumps if form == "json" else msgspec.msgpack.encode

    def told(**members: object) -> LookupQuery:
        body = encode(members)
        return _parse(form, body if isinstance(body, bytes) else body.encode())

    assert LookupQuery(text=TextPrompt(prompt=""), model="m") == told(prompt="", model="m")
    assert LookupQuery(text=TextPrompt(prompt="é", add_special_tokens=False)) == told(
        prompt="é", add_special_tokens=False
    )
    tools = [{"type": "function", "function": {"name": "f"}}]
    args = {"documents": [{"title": "t"}], "add_generation_prompt": False, "enable_thinking": True}
    assert LookupQuery(text=TextPrompt(messages=_MESSAGES, tools=tools, template_args=args)) == told(
        messages=_MESSAGES,
        tools=tools,
        documents=[{"title": "t"}],
        add_generation_prompt=False,
        chat_template_kwargs={"enable_thinking": True},
    )


def test_a_text_has_its_label() -> None:
    """In the metrics of lookups."""
    assert "text" == LookupRequests(TOKENS_MAX).parse("json", b'{"prompt":"t"}', b"", {}).input


@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_a_text_is_never_in_a_url(name: str) -> None:
    """Which is logged."""
    error = _refusal("ids", _image(1), f"{name}=text")

    assert (f"{name}.not_available", "send it as JSON") == (error.code, error.issues[0].hint)


def test_a_lone_surrogate_is_no_text() -> None:
    """Half a character has no bytes."""
    with pytest.raises(RequestRefused) as caught:
        _parse("json", b'{"prompt":"\\ud800"}')
    assert 400 == caught.value.status


_WRONG = ["a secret prompt", ["a secret prompt"], {"a secret prompt": "a secret prompt"}, "a secret prompt " * 100]


@pytest.mark.parametrize("field", [*LookupBody.__struct_fields__, "prompt", "a secret prompt", "mode"])
@pytest.mark.parametrize("wrong", _WRONG, ids=["text", "list", "map", "long"])
@pytest.mark.parametrize("padding", [0, EXPLAINED_BYTES_MAX], ids=["short", "large"])
def test_a_prompt_in_the_wrong_place_is_never_repeated(field: str, wrong: object, padding: int) -> None:
    """Whichever field it is put in, whatever the decoder says of it; names are taken, and then nothing is refused."""
    body = json.dumps({"token_ids": [-1], field: wrong}).encode() + b" " * padding
    error = _refusal("json", body)

    assert "secret" not in f"{error} {error.issues}"


def test_null_is_the_same_as_nothing() -> None:
    """Clients that write out every field are welcome."""
    nothing = dict.fromkeys(
        ["block_hashes", "block_size", "scheme", "model", "pods", "limit", "partial", "group", "mm_items"]
    )

    assert LookupQuery(tokens=_image(1)) == _parse("json", _json(token_ids=[1], **nothing))


@pytest.mark.parametrize(
    ("form", "body"), [("ids", b"12345"), ("msgpack", msgspec.msgpack.encode({"token_ids": b"12345"}))]
)
def test_token_bytes_come_in_fours(form: BodyForm, body: bytes) -> None:
    """The length is shown, the bytes are not."""
    error = _refusal(form, body)

    assert ("token_ids.bad_length", "5 bytes") == (error.code, error.issues[0].got)


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ("cache_salt=s", "cache_salt.not_available", "send the header x-kvindexer-cache-salt"),
        ("limits=3", "unknown_field", "did you mean limit?"),
        ("block_size=16", "unknown_field", None),
        ("limit=3&limit=4", "limit.repeated", None),
        ("limit=x", "limit.wrong_type", None),
        ("limit=", "limit.wrong_type", None),
        ("partial=yes", "partial.wrong_type", None),
        ("min_sequence=5", "min_sequence.wrong_type", None),
        ("mm_items=x", "mm_items.wrong_type", None),
        ("group=node", "group.not_allowed", None),
        ("token_ids=1", "token_ids.not_available", "the body carries the ids"),
    ],
)
def test_a_wrong_query_string_is_explained(query: str, code: str, hint: str | None) -> None:
    """As a wrong body is."""
    error = _refusal("ids", _image(1), query)

    assert (code, hint) == (error.code, error.issues[0].hint)


@pytest.mark.parametrize("query", ["model=%ff", "é=1"])
def test_a_query_string_that_is_none_is_400(query: str) -> None:
    """Percent-encoded UTF-8 or nothing."""
    with pytest.raises(RequestRefused) as caught:
        _parse("ids", b"", query)

    assert ("query.malformed", 400) == (caught.value.code, caught.value.status)


def test_headers_add_what_the_body_leaves_open() -> None:
    """In every form."""
    headers = {b"x-kvindexer-cache-salt": b"s", b"x-kvindexer-timeout-ms": b"40"}
    expected = LookupQuery(tokens=_image(1), cache_salt="s", timeout_ms=40)

    assert expected == _parse("json", b'{"token_ids":[1],"timeout_ms":50}', "", headers)
    assert expected == _parse("json", b'{"token_ids":[1],"mm_items":[]}', "", headers)
    assert expected == _parse("ids", _image(1), "timeout_ms=60", headers)


@given(
    st.binary(max_size=12), st.sampled_from(["", "model=m&pods=a", "limit=x", "min_sequence={}", "a=" + "b" * 2_000])
)
def test_bare_bytes_agree_with_the_strict_way(body: bytes, query: str) -> None:
    """Options that are kept from one request to the next make no difference."""

    def outcome(strictly: bool) -> object:
        requests = LookupRequests(2)
        parse = requests.parse_strictly if strictly else requests.parse
        try:
            return parse("ids", body, query.encode(), {})
        except BadRequestError as error:
            return error.code

    assert outcome(strictly=True) == outcome(strictly=False)


def test_hashing_wants_ids_and_a_block_size() -> None:
    """`/v1/hash` takes what a lookup takes, and the size."""
    expected = LookupQuery(tokens=_image(1, 2), block_size=2, lora_name="a")

    assert expected == _parse("json", _json(token_ids=[1, 2], block_size=2, lora_name="a"), hashing=True)
    assert expected == _parse("ids", _image(1, 2), "block_size=2&lora_name=a", hashing=True)
    text = LookupQuery(text=TextPrompt(prompt="t"), block_size=2)
    assert text == _parse("json", _json(prompt="t", block_size=2), hashing=True)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"token_ids": [1]}, "block_size.missing"),
        ({"block_size": 16}, "token_ids.missing"),
        ({"block_hashes": [1], "block_size": 16}, "token_ids.missing"),
        ({"token_ids": [1], "block_size": 16, "scheme": "kvi1"}, "scheme.not_allowed"),
        ({"token_ids": [1], "prompt": "t", "block_size": 16}, "prompt.exactly_one"),
        ({"prompt": "t", "tools": [], "block_size": 16}, "tools.not_allowed"),
    ],
)
def test_hashing_refuses_the_rest(body: dict[str, object], code: str) -> None:
    """Nothing to hash, or no size to hash at."""
    assert code == _refusal("json", json.dumps(body).encode(), hashing=True).code


def test_a_question_has_so_many_hashes_at_most() -> None:
    """However many tokens a prompt may have: each is an object that has to be read."""
    requests = LookupRequests(100 * QUERY_HASHES_MAX)
    for count in (QUERY_HASHES_MAX, QUERY_HASHES_MAX + 1):
        body = json.dumps({"block_hashes": [1] * count, "block_size": 16}).encode()
        if count == QUERY_HASHES_MAX:
            assert count == len(requests.parse("json", body, b"", {}).query.block_hashes or ())
            continue
        with pytest.raises(BadRequestError) as caught:
            requests.parse("json", body, b"", {})
        assert ("block_hashes.too_many", "131073") == (caught.value.code, caught.value.issues[0].got)


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("field", "count", "code"),
    [
        ("token_ids", 1_000_000, "token_ids.too_many"),
        ("block_hashes", 1_000_000, "block_hashes.too_many"),
    ],
)
def test_far_too_many_numbers_are_refused_unread(form: str, field: str, count: int, code: str) -> None:
    """As a few too many are: by the same rule. JSON hashes are decoded where they might as well be token ids."""
    encode = json.dumps if form == "json" else msgspec.msgpack.encode
    body = encode({field: [1] * count, "block_size": 16} if field == "block_hashes" else {field: [1] * count})
    body = body.encode() if isinstance(body, str) else body
    with pytest.raises(BadRequestError) as caught:
        LookupRequests(900_000 if field == "token_ids" else 2_000_000).parse(form, body, b"", {})  # type: ignore[arg-type]
    assert code == caught.value.code


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_long_body_that_is_wrong_elsewhere_is_explained_as_ever(form: str) -> None:
    """Looking it over says nothing of it."""
    encode = json.dumps if form == "json" else msgspec.msgpack.encode
    body = encode({"token_ids": [1] * 600_000, "limit": -1})
    body = body.encode() if isinstance(body, str) else body
    with pytest.raises(BadRequestError) as caught:
        LookupRequests(900_000).parse(form, body, b"", {})  # type: ignore[arg-type]
    assert "limit" in caught.value.code or "body" in caught.value.code
    for wrong in (b"\xc1" * 2**21, b"{" * 2**21):
        with pytest.raises((RequestRefused, BadRequestError)):
            LookupRequests(900_000).parse(form, wrong, b"", {})  # type: ignore[arg-type]


def test_hashing_has_an_end() -> None:
    """So many blocks at most: each is an object in the answer. The prompt itself may be longer."""
    requests = LookupRequests(2 * HASH_BLOCKS_MAX + 2)
    whole, longer = bytes(8 * HASH_BLOCKS_MAX + 4), bytes(8 * HASH_BLOCKS_MAX + 8)

    assert whole == requests.parse("ids", whole, b"block_size=2", {}, hashing=True).query.tokens
    with pytest.raises(BadRequestError) as caught:
        requests.parse("ids", longer, b"block_size=2", {}, hashing=True)
    assert "block_size.too_many_blocks" == caught.value.code
    assert "262144" in caught.value.issues[0].rule


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"min_sequence": {f"p{number}": 1 for number in range(65)}}, "min_sequence.not_allowed"),
        ({"pods": [f"p{number}" for number in range(4_097)]}, "pods.not_allowed"),
        ({"pods": ["p" * 513]}, "pods.not_allowed"),
    ],
)
def test_names_are_bounded_in_number(members: dict[str, object], code: str) -> None:
    """Each costs a look at the sources, `min_sequence` again and again."""
    assert code == _refusal("json", _json(token_ids=[1], **members)).code


def test_as_many_names_as_are_allowed() -> None:
    """Are."""
    waits, pods = {f"p{number}": 1 for number in range(64)}, [f"p{number}" for number in range(4_096)]
    query = _parse("json", _json(token_ids=[1], min_sequence=waits, pods=pods))

    assert (waits, tuple(pods)) == (query.min_sequence, query.pods)


@pytest.mark.parametrize(
    ("form", "body", "code"),
    [
        ("json", b"", "body.not_json"),
        ("json", b"{", "body.not_json"),
        ("json", b"\xff", "body.not_json"),
        ("json", b'{"token_ids":[1]} x', "body.not_json"),
        ("json", b"[" * 100_000, "body.not_json"),
        ("json", b'{"x":' * 100_000, "body.not_json"),
        ("msgpack", b"", "body.not_msgpack"),
        ("msgpack", b"\xc1", "body.not_msgpack"),
        ("msgpack", b"\x81\xa1\xff\x01", "body.not_msgpack"),
        ("msgpack", b"\x91" * 100_000, "body.not_msgpack"),
        ("msgpack", b"\x80\x80", "body.not_msgpack"),
    ],
)
def test_what_is_not_its_format_is_400(form: BodyForm, body: bytes, code: str) -> None:
    """Bombs of depth included."""
    with pytest.raises(RequestRefused) as caught:
        _parse(form, body)

    assert (code, 400) == (caught.value.code, caught.value.status)


@given(st.sampled_from(["json", "msgpack", "ids"]), st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_question_or_refused(form: BodyForm, body: bytes, hashing: bool) -> None:
    """Nothing else comes out of any bytes."""
    try:
        query = _parse(form, body, hashing=hashing)
    except (BadRequestError, RequestRefused):
        return
    assert 1 == sum(prompt is not None for prompt in (query.tokens, query.block_hashes, query.text))


@given(
    st.dictionaries(
        st.text(max_size=4) | st.sampled_from(["token_ids", "limit"]), st.none() | st.binary(max_size=9), max_size=3
    )
)
def test_any_map_of_msgpack_is_a_question_or_refused(document: dict[str, bytes | None]) -> None:
    """Well-formed MessagePack that is no question gets an explanation."""
    try:
        issues = len(_parse("msgpack", msgspec.msgpack.encode(document)).tokens or b"") + 1
    except BadRequestError as error:
        issues = len(error.issues)

    assert issues
