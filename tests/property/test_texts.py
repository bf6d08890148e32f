"""Texts of any kind: their tokens, or an error of the caller's; nothing else comes of them."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.rest.lookup_request import LookupRequests
from api.rest.prompt_text import RESERVED, text_of
from indexer.errors import BadRequestError, IndexerError
from indexer.texts.local import LocalTokenizer, TextLimits
from indexer.texts.template import ChatTemplate
from schemas.lookup import TextPrompt
from schemas.rest import LookupBody
from tests.support.core import ManualClock
from tests.support.text_models import CHATML, small_tokenizer

_PARTS = (
    "{% for m in messages %}{{ m.role }}{% for p in m.content %}{{ p.text }}{% endfor %}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    "{{ tools | tojson if tools }}{{ documents | tojson(indent=2) if documents }}{{ thinking }}"
)
_TEMPLATES = [ChatTemplate(source, {"bos_token": "<s>"}, ManualClock()) for source in (CHATML, _PARTS)]
_LIMITS = TextLimits(20_000, 20_000)

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_part = st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=8)}) | _json
_call = st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": st.just("f"), "arguments": _json})}) | _json
_message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": st.lists(_part, max_size=2) | _json},
    optional={"tool_calls": st.lists(_call, max_size=2) | _json, "name": _json, "tool_call_id": _json},
)
_tool = st.fixed_dictionaries({"type": st.just("function"), "function": st.fixed_dictionaries({"name": st.text()})})
_names = st.text(string.ascii_lowercase + "_", min_size=1, max_size=6) | st.sampled_from(
    [*RESERVED, "thinking", "bos_token", "raise_exception", "range", "loop", "self", "context", "environment"]
)


@given(st.text())
@example("<s><|im_start|>user\n")
def test_a_prompt_has_the_tokens_of_its_tokenizer(prompt: str) -> None:
    """Whatever it is made of; and they are the prompt again."""
    tokenizer = LocalTokenizer(small_tokenizer(), {})
    image = tokenizer.tokens(TextPrompt(prompt=prompt, add_special_tokens=False), _LIMITS, lambda: False)
    ids = [int.from_bytes(image[i : i + 4], "little") for i in range(0, len(image), 4)]

    assert ids == small_tokenizer().encode(prompt, add_special_tokens=False).ids
    assert prompt == small_tokenizer().decode(ids, skip_special_tokens=False)


@given(
    st.sampled_from(_TEMPLATES),
    st.lists(_message | st.dictionaries(st.text(max_size=4), _json, max_size=2), max_size=3),
    st.none() | st.lists(_tool | st.dictionaries(st.text(max_size=4), _json, max_size=2), max_size=2),
    st.dictionaries(_names, _json, max_size=2),
    st.booleans(),
)
def test_any_messages_are_a_prompt_or_refused(
    template: ChatTemplate,
    messages: list[dict[str, object]],
    tools: list[dict[str, object]] | None,
    args: dict[str, object],
    goes_on: bool,
) -> None:
    """With any variables that a caller may name."""
    given_args = args | ({"continue_final_message": True} if goes_on else {})
    try:
        outcome: object = template.render(messages, tools, given_args, over=lambda: False, chars_max=20_000)
    except BadRequestError as error:
        outcome = " ".join(issue.rule for issue in error.issues)
    assert isinstance(outcome, str)


@given(
    st.dictionaries(
        st.sampled_from([*LookupBody.__struct_fields__]), _json | st.lists(_message, max_size=2), min_size=1, max_size=5
    )
)
def test_any_fields_are_a_question_or_refused(fields: dict[str, object]) -> None:
    """In JSON and in MessagePack alike."""
    outcomes = []
    for form, encode in (("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode)):
        try:
            body = encode(fields)
        except OverflowError:
            return  # no MessagePack holds that number
        try:
            query = LookupRequests(1_000).parse(form, body, b"", {}).query  # type: ignore[arg-type]
            outcomes.append("text" if query.text is not None else "tokens" if query.tokens is not None else "hashes")
        except IndexerError as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == outcomes[1]


@given(st.dictionaries(_names, st.none() | st.integers(0, 3), max_size=3))
def test_no_variable_of_a_callers_replaces_the_template(variables: dict[str, object]) -> None:
    """Nor what the other fields say."""
    body = LookupBody(messages=[], chat_template_kwargs=variables)
    if not RESERVED.isdisjoint(variables):
        with pytest.raises(BadRequestError, match="chat_template_kwargs"):
            text_of(body)
        return
    text = text_of(body)
    assert text is not None
    assert variables == text.template_args
