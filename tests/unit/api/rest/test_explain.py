"""What a caller is told of a body that was refused."""

from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.rest.explain import ISSUES_MAX, explain, vague
from indexer.errors import BadRequestError
from schemas.rest import LookupBody, SourceBody, SourceSet

_REFUSED = msgspec.ValidationError("as the decoder said")
_U32 = "0..4294967295"
_WHOLE = "a whole number, "
_COUNT = "0..9223372036854775807"


def _explained(expected: type, document: object) -> BadRequestError:
    return explain(expected, document, _REFUSED)


@pytest.mark.parametrize(
    ("document", "code", "field", "rule", "got"),
    [
        ({"token_ids": [1, -1]}, "token_ids.not_u32", "token_ids[1]", _U32, "-1"),
        ({"token_ids": [2**32]}, "token_ids.not_u32", "token_ids[0]", _U32, "4294967296"),
        ({"token_ids": [2**70]}, "token_ids.not_u32", "token_ids[0]", _U32, "a number beyond 64 bits"),
        ({"token_ids": [1.5]}, "token_ids.not_u32", "token_ids[0]", _WHOLE + _U32, "1.5"),
        ({"token_ids": [True]}, "token_ids.not_u32", "token_ids[0]", _WHOLE + _U32, "true"),
        ({"token_ids": ["a secret prompt"]}, "token_ids.not_u32", "token_ids[0]", _WHOLE + _U32, "string"),
        ({"token_ids": [[1]]}, "token_ids.not_u32", "token_ids[0]", _WHOLE + _U32, "array"),
        ({"token_ids": "a secret prompt"}, "token_ids.wrong_type", "token_ids", "array of whole numbers", "string"),
        ({"cache_salt": 12345}, "cache_salt.wrong_type", "cache_salt", "string of 1..512 characters", "number"),
        ({"cache_salt": ""}, "cache_salt.not_allowed", "cache_salt", "string of 1..512 characters", "string"),
        ({"model": ["m"]}, "model.wrong_type", "model", "string of 1..512 characters", "array"),
        ({"group": "node"}, "group.not_allowed", "group", "one of pod, rank", "node"),
        ("a secret prompt", "body.wrong_type", "body", "object", "string"),
        ({"pods": "a secret prompt"}, "pods.wrong_type", "pods", "array of at most 4096 entries", "string"),
        ({"limit": "a secret prompt"}, "limit.wrong_type", "limit", _WHOLE + _COUNT, "string"),
        ({"limit": "ten"}, "limit.wrong_type", "limit", _WHOLE + _COUNT, "ten"),
        ({"messages": [7]}, "messages.wrong_type", "messages[0]", "object", "number"),
        ({"prompt": 7}, "prompt.wrong_type", "prompt", None, "number"),
        ({"token_ids": 7}, "token_ids.wrong_type", "token_ids", None, "number"),
        ({"token_ids": [2.0]}, "token_ids.not_u32", "token_ids[0]", _WHOLE + _U32, "number"),
        ({"timeout_ms": "5"}, "timeout_ms.wrong_type", "timeout_ms", _WHOLE + "0..86400000", "5"),
        ({"timeout_ms": 86400001}, "timeout_ms.not_allowed", "timeout_ms", "0..86400000", "86400001"),
        ({"a secret prompt": 1}, "unknown_field", "?", "unknown field", None),
        ({"partial": 1}, "partial.wrong_type", "partial", "true or false", "1"),
        ({"limit": -1}, "limit.not_allowed", "limit", _COUNT, "-1"),
        ({"pods": ["a", 5]}, "pods.wrong_type", "pods[1]", "string of 1..512 characters", "5"),
        ({"pod_roles": ["p"] * 17}, "pod_roles.not_allowed", "pod_roles", "array of at most 16 entries", "array"),
        (
            {"min_sequence": {"a": 1, "b": -2}},
            "min_sequence.not_allowed",
            'min_sequence["b"]',
            _COUNT,
            "-2",
        ),
        (
            {"mm_items": [{"hash": "h", "offset": 0}]},
            "mm_items.length.missing",
            "mm_items[0].length",
            f"required: {_WHOLE}{_U32}",
            None,
        ),
        (
            {"mm_items": [{"hash": "h", "offset": "0", "length": 1}]},
            "mm_items.offset.wrong_type",
            "mm_items[0].offset",
            _WHOLE + _U32,
            "0",
        ),
        (
            {"block_hashes": [1, "xyz", None]},
            "block_hashes.wrong_type",
            "block_hashes[2]",
            _WHOLE + "-2^63..2^64-1 or 1..16 hexadecimal digits",
            "null",
        ),
        ({"request_id": "a b"}, "request_id.not_allowed", "request_id", None, "string"),
        ({"request_id": "a{b"}, "request_id.not_allowed", "request_id", None, "a{b"),
        ({"request_id": "x" * 200}, "request_id.not_allowed", "request_id", None, "x" * 39 + "…"),
        ([], "body.wrong_type", "body", "object", "array"),
        (None, "body.wrong_type", "body", "object", "null"),
    ],
)
def test_names_field_and_rule(document: object, code: str, field: str, rule: str | None, got: str | None) -> None:
    """One thing wrong: where, what would be right, and what came, if it may be shown."""
    error = _explained(LookupBody, document)
    issue = error.issues[0]

    assert (code, field, got) == (error.code, issue.field, issue.got)
    assert rule is None or rule == issue.rule


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        ({"token_ids": "a secret prompt"}, "an array of ids; a text is sent as prompt"),
        ({"token_ids": ["1"]}, "write it without quotation marks"),
        ({"timeout_ms": "5"}, "write it without quotation marks"),
        ({"timeout_ms": "5 s"}, None),
        ({"token_ids": [2.0]}, None),
        ({"model": 5}, None),
    ],
)
def test_says_what_to_do_about_text_in_the_place_of_numbers(document: object, hint: str | None) -> None:
    """Without repeating it."""
    issue = _explained(LookupBody, document).issues[0]

    assert hint == issue.hint
    assert "secret" not in str(issue)


@pytest.mark.parametrize(
    ("document", "field", "hint"),
    [
        ({"modle": "m"}, "modle", "did you mean model?"),
        ({"tokenids": [1]}, "tokenids", "did you mean token_ids?"),
        ({"qqq": 1}, "qqq", None),
        ({"mm_items": [{"hash": "h", "offset": 0, "len": 1, "length": 1}]}, "mm_items[0].len", "did you mean length?"),
        ({"k" * 100: 1}, "k" * 63 + "…", None),
        ({5: 1}, "?", None),
    ],
)
def test_an_unknown_key_gets_the_nearest_known_one(document: object, field: str, hint: str | None) -> None:
    """Typing errors are the common case."""
    error = _explained(LookupBody, document)

    assert ("unknown_field", field, hint) == (error.code, error.issues[0].field, error.issues[0].hint)


def test_shows_several_things_at_once_but_not_all() -> None:
    """A caller mends in one go what can be mended; a thousand wrong ids are not a thousand issues."""
    error = _explained(LookupBody, {"limit": "x", "token_ids": [-1] * 1_000})

    assert [("limit", "x"), ("token_ids[0]", "-1")] == [(i.field, i.got) for i in error.issues[:2]]
    assert len(error.issues) == ISSUES_MAX


@pytest.mark.parametrize(
    ("document", "field", "rule"),
    [
        (
            [{"pod": "a", "endpoint": "tcp://*:1"}],
            "[0].endpoint",
            "tcp://HOST:PORT (IPv6 in brackets) or ipc://PATH, and no wildcard",
        ),
        ({"sources": [{"model": "a"}]}, "sources[0].pod", None),
        (5, "body", "array or object"),
    ],
)
def test_explains_by_the_member_of_a_union_that_was_meant(document: object, field: str, rule: str | None) -> None:
    """A list is judged as a list, an object as an object."""
    issue = _explained(cast("type", list[SourceBody] | SourceSet), document).issues[0]

    assert field == issue.field
    assert rule is None or rule == issue.rule


def test_a_long_list_shows_its_first_wrong_entry() -> None:
    """Without walking it."""
    ids: list[object] = [1] * 100_000
    ids[70_000:70_001] = [-5, 1.5]
    issues = _explained(LookupBody, {"token_ids": ids}).issues

    assert [("token_ids[70000]", _U32, "-5")] == [(i.field, i.rule, i.got) for i in issues]


@pytest.mark.parametrize(
    ("said", "code", "field", "rule"),
    [
        (
            "Expected `int` >= 0 - at `$.token_ids[5]`",
            "token_ids.not_u32",
            "token_ids[5]",
            "Expected a whole number >= 0",
        ),
        ("Expected `str` - at `$.model`", "model.invalid", "model", "Expected text"),
        ("Expected `int` - at `$[3].dp_rank`", "dp_rank.invalid", "[3].dp_rank", "Expected a whole number"),
        ("Object contains unknown field `a`", "body.invalid", "body", "Object contains unknown field `a`"),
        (
            "Object contains unknown field `a secret prompt`",
            "body.invalid",
            "body",
            "Object contains unknown field `?`",
        ),
        ("Invalid enum value 'a secret` - at' - at `$.group`", "group.invalid", "group", "Invalid enum value '?'"),
        ("x" * 500, "body.invalid", "body", "x" * 200),
    ],
)
def test_a_document_too_large_to_walk_still_gets_field_and_rule(said: str, code: str, field: str, rule: str) -> None:
    """In the decoder's words."""
    error = vague(msgspec.ValidationError(said))

    assert (code, field, rule) == (error.code, error.issues[0].field, error.issues[0].rule)


def test_falls_back_to_the_decoder() -> None:
    """Where the walk finds nothing, the decoder's words are better than none."""
    error = _explained(LookupBody, {})

    assert ("body.invalid", "as the decoder said") == (error.code, error.issues[0].rule)


_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*LookupBody.__struct_fields__, "x"]), _ANY, max_size=4))
def test_finds_something_wherever_the_decoder_refuses(document: dict[str, object]) -> None:
    """The walk and the decoder read the same types: neither refuses what the other takes."""
    try:
        msgspec.convert(document, LookupBody)
        refused = False
    except msgspec.ValidationError:
        refused = True

    assert refused == (_explained(LookupBody, document).code != "body.invalid")


@pytest.mark.parametrize(("name", "hint"), [("replay", "replay_endpoint"), ("alias", "aliases"), ("rank", "dp_rank")])
def test_the_words_of_the_flag_lead_to_those_of_the_body(name: str, hint: str) -> None:
    """Whoever knows `--source` writes them."""
    error = _explained(SourceBody, {"pod": "a", "endpoint": "tcp://h:1", name: 1})

    assert [(name, f"did you mean {hint}?")] == [(issue.field, issue.hint) for issue in error.issues]
