"""What the client sends: the cheapest form that can carry the question, and nothing that a URL must not show."""

from __future__ import annotations

import array
import ast
import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvindexer_client
from kvindexer_client import (
    Answer,
    BadAnswer,
    Client,
    PodEntry,
    _question,
    _ranking_by,
    _recommendation,
    token_bytes,
)

IDS = [0, 1, 65_536, 2**32 - 1]
IMAGE = struct.pack("<4I", *IDS)


@pytest.mark.parametrize(
    "tokens",
    [
        IDS,
        tuple(IDS),
        IMAGE,
        bytearray(IMAGE),
        memoryview(IMAGE),
        array.array("I", IDS),
        array.array("Q", IDS),
        np.array(IDS, dtype=np.uint32),
        np.array(IDS, dtype=np.int64),
        np.array(IDS, dtype=">u4"),
        np.array([id_ for each in IDS for id_ in (each, 7)], dtype=np.uint32)[::2],
    ],
    ids=lambda tokens: f"{type(tokens).__name__}-{getattr(tokens, 'dtype', getattr(tokens, 'typecode', ''))}",
)
def test_token_ids_in_any_container_are_the_same_bytes(tokens: Any) -> None:  # noqa: ANN401 - any container
    """Lists, arrays of 4 or 8 bytes in either order, with steps, and what is bytes already."""
    assert IMAGE == token_bytes(tokens)


@pytest.mark.parametrize(
    "tokens", [[-1], [2**32], [1.5], ["a"], [None], b"abc", np.array([-1]), np.array([1.5]), 7, "text"]
)
def test_what_is_no_token_id_is_told_before_it_is_sent(tokens: Any) -> None:  # noqa: ANN401 - any container
    """By one class of error, whose text has nothing of the prompt."""
    with pytest.raises(ValueError, match="token ids") as caught:
        token_bytes(tokens)
    assert "1.5" not in str(caught.value)


def test_token_ids_go_as_bytes_and_the_rest_beside_them() -> None:
    """Lists by repeating the key, objects as JSON, what is None not at all."""
    call = _question(
        "/v1/lookup",
        IDS,
        {
            "model": "a b",
            "pods": ["10.0.0.1:8000", "b"],
            "partial": True,
            "limit": 0,
            "min_sequence": {"b": 3},
            "mm_items": [{"hash": "f", "offset": 0, "length": 2}],
            "tenant": None,
        },
    )

    assert ("POST", IMAGE) == (call.method, call.body)
    assert (("content-type", "application/octet-stream"),) == call.headers
    assert call.path == (
        "/v1/lookup?model=a+b&pods=10.0.0.1%3A8000&pods=b&partial=true&limit=0&min_sequence=%7B%22b%22%3A3%7D"
        "&mm_items=%7B%22hash%22%3A%22f%22%2C%22offset%22%3A0%2C%22length%22%3A2%7D"
    )


def test_loads_go_beside_bare_ids_and_a_session_does_not() -> None:
    """It may be somebody's name, and URLs are logged: then ids go as JSON."""
    beside = _question("/v1/recommend", [1], {"loads": {"a": {"running": 3}}, "exclude": ["b"], "strategy": None})
    session = _question("/v1/recommend", [1], {"session": "s"})

    assert "/v1/recommend?loads=%7B%22a%22%3A%7B%22running%22%3A3%7D%7D&exclude=b" == beside.path
    assert (4, "/v1/recommend") == (len(beside.body or b""), session.path)
    assert {"session": "s", "token_ids": [1]} == json.loads(session.body or b"")


TERMS = {"prefix": 0.5, "load": 0.25, "speculative": 0.0, "penalty": 0.0}
PICK = {"pod": "b", "dp_rank": 1, "total": 0.75, "terms": TERMS}
RECOMMENDED = {
    "request_id": "r",
    "state": "exact",
    "picks": [PICK],
    "load": {"source": "metrics", "age_ms": 7},
    "decode": None,
}


def test_a_recommendation_is_read_term_by_term() -> None:
    """And what is none of one is told apart."""
    found = _recommendation(RECOMMENDED)

    assert [("b", 1, 0.75, 0.5, 0.25, 0.0, 0.0)] == found.picks
    assert ("exact", "r", "metrics", 7, None) == (
        found.state,
        found.request_id,
        found.loads,
        found.loads_age_ms,
        found.decode,
    )
    assert [] == (_recommendation({**RECOMMENDED, "decode": []}).decode)
    wrong: tuple[Any, ...] = (
        None,
        [],
        {},
        {"state": "exact", "pods": []},
        {**RECOMMENDED, "picks": [{}]},
        {**RECOMMENDED, "picks": [{**PICK, "total": "best"}]},
        {**RECOMMENDED, "picks": [{**PICK, "pod": 1}]},
        {**RECOMMENDED, "load": "none"},
    )
    for each in wrong:
        with pytest.raises(BadAnswer):
            _recommendation(each)


def test_pods_that_are_not_recommended_come_last() -> None:
    """In the order given; who was not given is not named, and without picks nothing is changed."""
    found = _recommendation({**RECOMMENDED, "picks": [PICK, {**PICK, "pod": "x"}, {**PICK, "dp_rank": 0}]})
    nobody = _ranking_by(["a", "b"], _recommendation({**RECOMMENDED, "state": "no_signal", "picks": []}))

    assert (["b", "a", "c"], None, "exact") == (
        (ranked := _ranking_by(["a", "b", "c"], found)).pods,
        ranked.failure,
        ranked.state,
    )
    assert (["a", "b"], "no_signal: nobody is recommended") == (nobody.pods, nobody.failure)
    by_load = _ranking_by(["a", "b", "c"], _recommendation({**RECOMMENDED, "state": "no_signal"}))
    assert (ranked.pods, "no_signal: by load alone; `lookup` says why") == (by_load.pods, by_load.failure)


def test_a_salt_is_never_in_a_url() -> None:
    """In a header, and where it does not fit into one, in a JSON body."""
    plain = _question("/v1/lookup", IDS, {"cache_salt": "hush"})
    odd = _question("/v1/lookup", IDS, {"cache_salt": "hüsh\n"})

    assert ("/v1/lookup", ("x-kvindexer-cache-salt", "hush")) == (plain.path, plain.headers[-1])
    assert odd.path == "/v1/lookup"
    assert json.loads(odd.body or b"") == {"cache_salt": "hüsh\n", "token_ids": IDS}


@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        (None, {"prompt": "Once"}),
        (None, {"messages": [{"role": "user", "content": "Once"}], "tools": []}),
        (None, {"block_hashes": ["9f3c"], "block_size": 16}),
        (IDS, {"pods": [f"10.0.{n}.1:8000" for n in range(1_000)]}),
    ],
)
def test_what_does_not_fit_beside_bytes_goes_as_json(tokens: object, options: dict[str, Any]) -> None:
    """Text, hashes, and more options than a URL should hold."""
    call = _question("/v1/lookup", tokens, options)

    assert call.path == "/v1/lookup"
    assert json.loads(call.body or b"") == {**options, **({} if tokens is None else {"token_ids": tokens})}


def test_what_it_is_written_in_is_understood_by_older_interpreters() -> None:
    """As far as the grammar goes; and its imports are those it promises."""
    tree = ast.parse(Path(kvindexer_client.__file__).read_text(), feature_version=(3, 9))
    imported = {
        name.split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }

    assert {"httpx"} == imported - sys.stdlib_module_names


def test_scores_that_differ_by_how_they_were_summed_are_equal() -> None:
    """The caller's order decides there, and nowhere else; whom it does not name comes behind its own of that score."""
    held = [
        PodEntry("x", score=0.3),
        PodEntry("b", score=0.1 + 0.2),
        PodEntry("c", score=0.3),
        PodEntry("d", score=0.4),
    ]
    answer = Answer("exact", [*held, PodEntry("e"), PodEntry("c", 1, score=0.2)], {})

    assert ["d", "c", "b", "x", "e", "a"] == answer.pods_or(["e", "c", "b", "a", "d"])


def test_of_equal_scores_those_come_first_where_more_was_routed() -> None:
    """Nothing that is expected outranks what is held; then the caller's order. A pod is as good as its best rank."""
    entries = [
        PodEntry("held", score=0.1),
        PodEntry("a", speculative_tokens=16),
        PodEntry("b", speculative_tokens=64),
        PodEntry("a", 1, speculative_tokens=32),
        PodEntry("unasked", speculative_tokens=32),
        PodEntry("half", score=0.1, speculative_tokens=16),
    ]
    answer = Answer("exact", entries, {})

    assert ["half", "held", "b", "a", "unasked", "d", "c"] == answer.pods_or(["d", "c", "held", "a", "b", "half"])


@pytest.mark.parametrize(
    ("reports", "problem"),
    [
        ([5], "reports[0]: a mapping wanted"),
        (None, "reports: one mapping or a list of them wanted, got NoneType"),
        ("p", "reports: one mapping or a list of them wanted, got str"),
        ([{"pod": "p", "of": b"x"}], "reports[0].of: bytes are token ids only"),
        ([{"pod": "p"}, {5: 6}], "reports[1]: its fields have names"),
    ],
)
def test_what_is_no_report_is_refused_before_it_is_sent(reports: object, problem: str) -> None:
    """As a ValueError that says which one and why, like token ids that are none."""
    index: Any = Client("http://127.0.0.1:1")
    with index:
        for send in (index.routed, index.feedback):
            with pytest.raises(ValueError, match=re.escape(problem)):
                send(reports)
