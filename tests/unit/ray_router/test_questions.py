"""What the router for Ray Serve asks of a call, and what order it takes from an answer."""

from __future__ import annotations

import array
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kvindexer_ray import URL_MAX, Ranked, _asked, _Failed, _json, _place, _ranked, question_of

MESSAGES = [{"role": "user", "content": "Once"}]


@dataclass
class ChatRequest:
    """As Serve's own ingress hands it to a replica: an object with the fields of an OpenAI request."""

    messages: list[dict[str, str]]
    model: str = "llama"
    tools: list[Any] | None = None
    cache_salt: str | None = None
    temperature: float = 0.0
    prompt: None = field(default=None, init=False)


class Tool:
    def model_dump(self) -> dict[str, str]:
        return {"type": "function"}


@pytest.mark.parametrize(
    ("args", "kwargs", "question"),
    [
        ([{"token_ids": [1, 2], "model": "m", "top_p": 1}], {}, {"token_ids": [1, 2], "model": "m"}),
        ([], {"token_ids": [1, 2]}, {"token_ids": [1, 2]}),
        ([{"prompt_token_ids": [1]}], {}, {"token_ids": [1]}),
        ([{"prompt": [1, 2], "model": "m"}], {}, {"token_ids": [1, 2], "model": "m"}),
        ([{"prompt": [[1, 2]]}], {}, {"token_ids": [1, 2]}),
        ([{"prompt": "Once"}], {}, {"prompt": "Once"}),
        ([{"prompt": ["Once"], "add_special_tokens": False}], {}, {"prompt": "Once", "add_special_tokens": False}),
        ([ChatRequest(MESSAGES)], {}, {"messages": MESSAGES, "model": "llama"}),
        ([ChatRequest(MESSAGES, cache_salt="s")], {}, {"messages": MESSAGES, "model": "llama", "cache_salt": "s"}),
        (["generate", {"prompt": "Once"}], {"prompt": "Twice"}, {"prompt": "Twice"}),
    ],
)
def test_the_prompt_of_a_call_is_asked_of(args: list[Any], kwargs: dict[str, Any], question: dict[str, Any]) -> None:
    """Token ids, text and messages; of dicts, objects and arguments; with what changes a prompt's tokens or blocks."""
    assert question == question_of(args, kwargs)


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["Once"],
        [b"Once"],
        [None, 7],
        [{"prompt": ""}],
        [{"prompt": []}],
        [{"prompt": ["Once", "Twice"]}],
        [{"prompt": [[1], [2]]}],
        [{"messages": []}],
    ],
)
def test_a_call_without_one_prompt_is_not_asked_of(args: list[Any]) -> None:
    """Nor one that holds several, which are more than one place could be right for."""
    assert question_of(args, {}) is None


def test_salts_go_with_token_ids_too() -> None:
    """Blocks of another salt are other blocks."""
    asked = question_of([{"token_ids": [1], "cache_salt": "s", "tools": [], "add_special_tokens": True}], {})

    assert {"token_ids": [1], "cache_salt": "s"} == asked


def test_fields_and_arrays_become_json_and_nothing_is_read_up() -> None:
    """What can be read only once is left for the engine."""
    once = iter(MESSAGES)

    assert b'{"tools":[{"type":"function"}],"token_ids":[1,2]}' == _json(
        {"tools": [Tool()], "token_ids": np.array([1, 2])}
    )
    with pytest.raises(TypeError):
        _json({"messages": once})
    assert MESSAGES == list(once)


@pytest.mark.parametrize("ids", [[1, 70_000], (1, 70_000), np.array([1, 70_000]), array.array("I", [1, 70_000])])
def test_token_ids_go_as_bytes_and_the_rest_behind_the_url(ids: Any) -> None:  # noqa: ANN401 - any container
    """The salt is in no URL."""
    question = {"model": "a b", "token_ids": ids, "pods": ["a", "b"], "loads": {"a": {"running": 1}}, "limit": 4}
    asked = _asked("/p", {**question, "cache_salt": "s", "tenant": None})

    assert b"\x01\0\0\0\x70\x11\x01\0" == asked.body
    assert ("application/octet-stream", "s") == (asked.content_type, asked.salt)
    assert "/p?model=a+b&pods=a&pods=b&loads=%7B%22a%22%3A%7B%22running%22%3A1%7D%7D&limit=4" == asked.path


@pytest.mark.parametrize(
    "beside", [{"pods": ["a" * 100] * (URL_MAX // 100)}, {"cache_salt": "a b"}, {"cache_salt": "ß"}]
)
def test_what_fits_no_url_or_header_goes_as_json(beside: dict[str, Any]) -> None:
    """Many replicas, and salts that no header can carry."""
    asked = _asked("/p", {"token_ids": np.array([1, 2]), **beside})

    assert ("/p", "application/json", "") == (asked.path, asked.content_type, asked.salt)
    assert {"token_ids": [1, 2], **beside} == json.loads(asked.body)


@pytest.mark.parametrize("question", [{"token_ids": [-1]}, {"token_ids": ["Geheim"]}, {"prompt": "Geheim\ud800"}])
def test_what_has_no_form_is_not_sent(question: dict[str, Any]) -> None:
    """And nothing of it is told."""
    with pytest.raises(_Failed, match="no form for a request") as caught:
        _asked("/p", question)
    assert "nobody" == caught.value.because_of
    assert "eheim" not in str(caught.value)


def _answer(*pods: str, state: str = "exact", **members: object) -> dict[str, Any]:
    return {"request_id": "r", "state": state, "picks": [{"pod": pod, "total": 0.5} for pod in pods], **members}


def test_the_order_of_the_answer_is_taken() -> None:
    """Of several ranks of a pod the best one counts."""
    assert (Ranked(["b", "a"], "r"), True) == _ranked(_answer("b", "a", "b", load={"source": "none"}))


def test_an_answer_that_knows_nothing_gives_no_order() -> None:
    """Serve balances as if there were none; where the request goes is told all the same."""
    assert (Ranked([], "r"), False) == _ranked(_answer("a", "b", state="no_signal"))


@pytest.mark.parametrize(
    "raw",
    [
        [],
        None,
        {},
        {"state": "exact", "request_id": "r"},
        {"picks": [], "request_id": "r"},
        {"state": "exact", "picks": []},
        _answer(picks={}),
        _answer(picks=[3]),
        _answer(picks=[{"pod": 3}]),
        _answer(picks=[{}]),
        _answer("a", request_id=None),
    ],
)
def test_what_is_no_answer_is_a_failure(raw: Any) -> None:  # noqa: ANN401 - anything
    """Of the index: the next question would fare the same."""
    with pytest.raises(_Failed) as caught:
        _ranked(raw)
    assert "index" == caught.value.because_of


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://a", "http://", "http://u:p@a:1", "unix:relative"])
def test_what_is_no_place_is_refused_at_the_start(url: str) -> None:
    """Before any request."""
    with pytest.raises(ValueError, match="wanted"):
        _place(url)
