"""Messages and tools as engines hand them to a template."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.errors import BadRequestError
from indexer.texts.chat import prepared, prepared_tools

_PARTS = [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]


@pytest.mark.parametrize(
    ("content", "text", "parts"),
    [
        ("a", "a", ["a"]),
        (_PARTS, "a\nb\nc", ["a", "b", "c"]),
        ([], "", []),
        ([{"type": "refusal", "refusal": "no"}, {"type": "thinking", "thinking": "hm"}], "no\nhm", ["no", "hm"]),
    ],
)
def test_content_is_one_string_or_parts(content: object, text: str, parts: list[str]) -> None:
    """As the template wants it; parts are joined by line ends."""
    (joined,) = prepared([{"role": "user", "content": content}], parts=False)
    (apart,) = prepared([{"role": "user", "content": content}], parts=True)

    assert {"role": "user", "content": text} == joined
    assert [{"type": "text", "text": part} for part in parts] == apart["content"]


def test_arguments_of_tool_calls_become_objects() -> None:
    """OpenAI has them as text; templates write them as they like. Empty ones are an empty object."""
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": told}} for told in ('{"a":1}', "")]
    (message,) = prepared([{"role": "assistant", "content": None, "tool_calls": calls}], parts=False)

    assert [{"a": 1}, {}] == [call["function"]["arguments"] for call in message["tool_calls"]]  # type: ignore[attr-defined]
    assert '{"a":1}' == calls[0]["function"]["arguments"], "the caller's are left alone"  # type: ignore[index]


@pytest.mark.parametrize("name", ["tool_calls", "function_call", "refusal", "reasoning", "reasoning_content"])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_what_stands_for_a_content(name: str, content: dict[str, object]) -> None:
    """In an assistant's message alone."""
    value: object = [{"function": {"name": "f"}}] if name == "tool_calls" else "x"
    (message,) = prepared([{"role": "assistant", name: value, **content}], parts=False)

    assert "" == message["content"]


def test_no_tool_calls_are_none() -> None:
    """A template asks whether there are any."""
    assert [{"role": "assistant", "content": "x"}] == prepared(
        [{"role": "assistant", "content": "x", "tool_calls": []}], parts=False
    )


def test_what_a_template_is_given_besides() -> None:
    """Names, what a tool answers to, reasoning under both its names; nothing else."""
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "a", "name": "Ann", "tool_call_id": "1", "cache": True},
        {"role": "tool", "content": "b", "tool_call_id": "1"},
        {"role": "assistant", "content": "c", "reasoning_content": "r"},
    ]

    assert [
        {"role": "user", "content": "a", "name": "Ann"},
        {"role": "tool", "content": "b", "tool_call_id": "1"},
        {"role": "assistant", "content": "c", "reasoning": "r", "reasoning_content": "r"},
    ] == prepared(messages, parts=False)


def test_tools_have_all_keys_of_their_type_in_its_order() -> None:
    """The engine reads them into objects and writes these: a template that writes JSON shows it."""
    tools: list[dict[str, object]] = [
        {"function": {"strict": True, "parameters": {"b": 1, "a": 2}, "name": "f"}, "type": "function"}
    ]
    (tool,) = prepared_tools(tools) or []
    function: Any = tool["function"]

    assert ["type", "function"] == list(tool)
    assert ["name", "description", "parameters", "strict"] == list(function)
    assert function["description"] is None
    assert ["b", "a"] == list(function["parameters"])
    assert prepared_tools(None) is None


@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        ({"content": "secret"}, "messages.wrong_type", "messages[0].role"),
        ({"role": "user", "content": 5}, "messages.wrong_type", "messages[0].content"),
        *(
            ({"role": role, **more}, "messages.wrong_type", "messages[0].content")
            for role in ("user", "system", "developer", "tool", "assistant", "critic")
            for more in ({}, {"content": None}, {"tool_calls": []}, {"reasoning": None})
        ),
        ({"role": "user", "tool_calls": [{"function": {}}]}, "messages.wrong_type", "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages.wrong_type", "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages.not_text", "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": ["x"]}]}, "messages.not_text", "messages[0].content[0]"),
        ({"role": "user", "content": [7]}, "messages.not_text", "messages[0].content[0]"),
        (
            {"role": "assistant", "tool_calls": [{"id": "1"}]},
            "messages.wrong_type",
            "messages[0].tool_calls[0].function",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{secret"}}]},
            "messages.wrong_type",
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_what_is_no_chat_is_told_by_its_place(message: dict[str, object], code: str, field: str) -> None:
    """Never by what it says."""
    with pytest.raises(BadRequestError) as caught:
        prepared([message], parts=False)

    assert (code, field) == (caught.value.code, caught.value.issues[0].field)
    assert "secret" not in f"{caught.value} {caught.value.issues}"


def test_a_tool_has_a_name() -> None:
    """By which the model calls it."""
    with pytest.raises(BadRequestError) as caught:
        prepared_tools([{"type": "function", "function": {}}])

    assert ("tools.wrong_type", "tools[0].function.name") == (caught.value.code, caught.value.issues[0].field)
