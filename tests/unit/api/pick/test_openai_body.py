"""Requests as clients of OpenAI send them, whole and cut, and the prompts they mean."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pick.openai_body import CUT_BYTES_MAX, question
from schemas.lookup import LookupQuery, TextPrompt

TOKENS_MAX = 100
HELLO: dict[str, Any] = {"role": "user", "content": "Hello there"}
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
IMAGE: dict[str, Any] = {
    "role": "user",
    "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
}


def _ask(cut: bool = False, **members: Any) -> LookupQuery | None:  # noqa: ANN401 - whatever JSON can say
    return question(json.dumps(members).encode(), cut=cut, tokens_max=TOKENS_MAX)


def _image(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


@pytest.mark.parametrize(
    ("prompt", "tokens", "text"),
    [
        ("abc", None, "abc"),
        ("", None, ""),
        (["abc", "d"], None, "abc"),
        ([1, 2], _image(1, 2), None),
        ([[1, 2], [3]], _image(1, 2), None),
    ],
)
def test_a_completions_prompt_has_four_forms(prompt: object, tokens: bytes | None, text: str | None) -> None:
    """Of several prompts the first one decides; what does not decide the prompt is ignored."""
    query = _ask(model="m", prompt=prompt, max_tokens=5, stream=True, new_thing={"a": 1}, cache_salt="s")
    expected = LookupQuery(
        model="m", tokens=tokens, text=None if text is None else TextPrompt(prompt=text), cache_salt="s"
    )

    assert expected == query


def test_a_chat_is_its_messages_and_what_the_template_is_given() -> None:
    """By the engines' names."""
    query = _ask(
        model="m",
        messages=[SYSTEM, HELLO],
        tools=[TOOL],
        tool_choice="auto",
        chat_template_kwargs={"enable_thinking": False},
        add_generation_prompt=True,
        temperature=0.5,
        user="u",
    )
    args = {"enable_thinking": False, "add_generation_prompt": True}

    assert query is not None
    assert TextPrompt(messages=[SYSTEM, HELLO], tools=[TOOL], template_args=args) == query.text
    assert ("m", False) == (query.model, query.partial)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"prompt": None},
        {"prompt": 5},
        {"prompt": []},
        {"prompt": [1, "a"]},
        {"prompt": [-1]},
        {"prompt": [1.5]},
        {"prompt": [2**32]},
        {"prompt": [1] * (TOKENS_MAX + 1)},
        {"prompt": "a", "model": 7},
        {"prompt": "a", "cache_salt": 7},
        {"prompt": "a", "truncate_prompt_tokens": 10},
        {"prompt": "a", "prompt_embeds": "AAAA"},
        {"messages": []},
        {"messages": "a"},
        {"messages": ["a"]},
        {"messages": [HELLO], "chat_template": "{{ x }}"},
        {"messages": [HELLO], "tools": 5},
        {"messages": [IMAGE]},
        {"messages": [{"role": "user", "content": [{"type": {}, "text": "a"}]}]},
        {"messages": [{"role": "user", "content": [{"type": ["text"], "text": "a"}]}]},
    ],
)
def test_what_is_not_understood_is_no_question(members: dict[str, Any]) -> None:
    """And no error: the engine will judge it."""
    assert _ask(**members) is None


def test_images_end_what_is_known() -> None:
    """The messages before them are the beginning of the prompt."""
    query = _ask(messages=[SYSTEM, HELLO, IMAGE, HELLO])

    assert query is not None
    args = {"add_generation_prompt": False, "continue_final_message": False}
    assert TextPrompt(messages=[SYSTEM, HELLO], template_args=args) == query.text
    assert query.partial


@pytest.mark.parametrize(
    ("cut_at", "messages", "goes_on"),
    [
        (b"lo there", [SYSTEM, HELLO | {"content": "Hel"}], True),
        (b'"Hello', [SYSTEM], False),
        (b'"user"', [SYSTEM], False),
        (b'"stop"', [SYSTEM, HELLO], None),
    ],
)
def test_a_cut_chat_is_used_as_far_as_it_goes(cut_at: bytes, messages: list[Any], goes_on: bool | None) -> None:
    """The last message goes on where it was cut; one without content is left out."""
    body = json.dumps({"model": "m", "messages": [SYSTEM, HELLO], "stop": ["x", "y"]}).encode()
    query = question(body[: body.index(cut_at)], cut=True, tokens_max=TOKENS_MAX)

    assert query is not None
    assert query.text is not None
    assert (messages, True, "m") == (query.text.messages, query.partial, query.model)
    assert goes_on is query.text.template_args.get("continue_final_message")


def test_a_cut_body_is_not_understood_unless_it_is_said_to_be_cut() -> None:
    """Nor where half of the tools would make another prompt."""
    assert question(b'{"prompt": "ab', cut=False, tokens_max=TOKENS_MAX) is None
    assert question(b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"a', cut=True, tokens_max=9) is None


def test_of_a_long_cut_body_the_beginning_is_enough() -> None:
    """What is read in one step has a bound."""
    body = json.dumps({"prompt": "x" * 2 * CUT_BYTES_MAX}).encode()
    query = question(body[:-9], cut=True, tokens_max=TOKENS_MAX)

    assert query is not None
    assert query.text is not None
    assert "x" * (CUT_BYTES_MAX - body.index(b"x")) == query.text.prompt


@given(
    contents=st.lists(st.text() | st.lists(st.text(min_size=1), min_size=1, max_size=3), min_size=1, max_size=3),
    as_chat=st.booleans(),
)
def test_the_text_of_every_cut_is_a_beginning_of_the_whole_text(contents: list[Any], as_chat: bool) -> None:
    """Message by message: never an exception, never another text."""
    parts = [c if isinstance(c, str) else [{"type": "text", "text": t} for t in c] for c in contents]
    if as_chat:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": part} for part in parts]})
    else:
        body = json.dumps({"model": "m", "prompt": str(contents)}, ensure_ascii=False)
    data = body.encode(errors="replace")
    for end in range(len(data)):
        query = question(data[:end], cut=True, tokens_max=TOKENS_MAX)
        if query is None:
            continue
        assert query.text is not None
        assert query.partial
        if not as_chat:
            assert json.loads(data)["prompt"].startswith(query.text.prompt)
            continue
        whole = json.loads(data)["messages"]
        found = query.text.messages or []
        assert whole[: len(found) - 1] == found[:-1]
        assert _told(whole[len(found) - 1]).startswith(_told(found[-1]))


def _told(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["text", "image_url", "a", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "a"]), inner),
    max_leaves=4,
)


@given(
    parts=st.lists(JSON | st.fixed_dictionaries({"type": JSON, "text": JSON}), max_size=3),
    beside=JSON,
    cut=st.booleans(),
)
def test_whatever_a_message_holds_is_a_question_or_none(parts: list[Any], beside: object, cut: bool) -> None:
    """Whole, and cut at its end."""
    body = json.dumps({"messages": [{"role": "user", "content": parts, "name": beside}, beside]}).encode()
    for end in {len(body), body.rfind(b"]"), body.rfind(b"}"), body.rfind(b", ")}:
        assert isinstance(question(body[:end], cut=cut, tokens_max=TOKENS_MAX), LookupQuery | None)
