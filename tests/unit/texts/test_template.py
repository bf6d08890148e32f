"""Chat templates: what is known to be right, and what foreign code may do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import jinja2
import pytest

from indexer.errors import BadRequestError
from indexer.texts.template import ChatTemplate, OutOfTime
from tests.support.core import ManualClock
from tests.support.text_models import CHATML

CHAT: list[dict[str, object]] = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": "Hällo <b> 😀"},
    {"role": "assistant", "content": " Hi"},
    {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
]
LLAMA3 = (
    "{% set all = messages %}{% for message in all %}"
    "{% set piece = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim "
    "+ '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set piece = bos_token + piece %}{% endif %}{{ piece }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
TOOLS = (
    "{%- if tools %}\n"
    "    {{- '<tools>' }}\n"
    "    {%- for tool in tools %}\n"
    "        {{- '\\n' }}\n"
    "        {{- tool | tojson }}\n"
    "    {%- endfor %}\n"
    "    {{- '\\n</tools>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'tool' %}\n"
    "        {{- '<result>' + message.content + '</result>\\n' }}\n"
    "        {%- continue %}\n"
    "    {%- endif %}\n"
    "    {%- if message.tool_calls %}\n"
    "        {%- for call in message.tool_calls %}\n"
    "            {%- if call.function %}{% set call = call.function %}{% endif %}\n"
    '            {{- \'<call>{"name": "\' + call.name + \'", "arguments": \' }}\n'
    "            {{- call.arguments | tojson }}\n"
    "            {{- '}</call>\\n' }}\n"
    "        {%- endfor %}\n"
    "    {%- else %}\n"
    "        {{- message.role + ': ' + message.content + '\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
)


def _render(
    source: str,
    messages: list[dict[str, object]] | None = None,
    tools: list[dict[str, object]] | None = None,
    *,
    over: Callable[[], bool] = lambda: False,
    chars_max: int = 100_000,
    clock: ManualClock | None = None,
    **args: object,
) -> str:
    template = ChatTemplate(source, {"bos_token": "<|begin|>"}, clock or ManualClock())
    return template.render(CHAT if messages is None else messages, tools, args, over=over, chars_max=chars_max)


def test_chatml() -> None:
    """As Qwen and many others write it; the beginning of an answer ends it unless told otherwise."""
    expected = (
        "<|im_start|>system\nBe brief. <|im_end|>\n"
        "<|im_start|>user\nHällo <b> 😀<|im_end|>\n"
        "<|im_start|>assistant\n Hi<|im_end|>\n"
        "<|im_start|>user\none\ntwo<|im_end|>\n"
    )

    assert expected + "<|im_start|>assistant\n" == _render(CHATML)
    assert expected == _render(CHATML, add_generation_prompt=False)


def test_llama_3() -> None:
    """Special tokens come from the tokenizer's configuration; contents are trimmed."""
    assert (
        "<|begin|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHällo <b> 😀<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\none\ntwo<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ) == _render(LLAMA3)


def test_tools_and_their_calls() -> None:
    """JSON keeps characters as they are, and is not escaped for HTML; loops may go on with the next turn."""
    tools: list[dict[str, object]] = [
        {"type": "function", "function": {"name": "w", "description": "é < 5", "parameters": {"type": "object"}}}
    ]
    chat: list[dict[str, object]] = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "w", "arguments": '{"at":"Zürich"}'}}]},
        {"role": "tool", "content": "5 > 4", "tool_call_id": "1"},
    ]

    assert (
        '<tools>\n{"type": "function", "function": {"name": "w", "description": "é < 5", "parameters": '
        '{"type": "object"}}}\n</tools>\n'
        'user: ?\n<call>{"name": "w", "arguments": {"at": "Zürich"}}</call>\n<result>5 > 4</result>\n'
    ) == _render(TOOLS, chat, tools)


def test_a_template_that_goes_through_parts_is_given_parts() -> None:
    """As the engine notices it: by how it is reached, or by its usual name."""
    show = "[{{ p['text'] }}]{% endfor %}"
    for source in (
        "{% for m in messages %}{% for p in m['content'] %}" + show + "{% endfor %}",
        "{% for m in messages %}{% for p in m.content[0:] | list %}" + show + "{% endfor %}",
        "{% macro all(content) %}{% for p in content %}" + show + "{% endmacro %}"
        "{% for m in messages %}{{ all(m.content) }}{% endfor %}",
    ):
        assert "[Be brief. ][Hällo <b> 😀][ Hi][one][two]" == _render(source)
    hidden = "{% for m in messages %}{% set c = m.content %}{{ c is string }} {% for p in c %}{% endfor %}{% endfor %}"
    assert "True " * 4 == _render(hidden)


def test_a_last_message_goes_on() -> None:
    """The prompt ends where it does, and no answer is begun."""
    chat: list[dict[str, object]] = [
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": "one, "},
    ]
    begun = "<|im_start|>user\ncount<|im_end|>\n<|im_start|>assistant\none, "

    assert begun == _render(CHATML, chat, continue_final_message=True)
    assert _render(LLAMA3, chat, continue_final_message=True).endswith("<|end_header_id|>\n\none,")
    for nothing in ([], [{"role": "assistant", "content": " "}]):
        with pytest.raises(BadRequestError) as caught:
            _render(CHATML, nothing, continue_final_message=True)
        assert "continue_final_message.not_allowed" == caught.value.code


def test_further_variables_and_documents() -> None:
    """By name; what nobody gave is not there."""
    source = "{{ enable_thinking }}|{{ documents[0].title if documents else '-' }}|{{ nobody }}|{{ tools is none }}"

    assert "False|-||True" == _render(source, enable_thinking=False)
    assert "|D||True" == _render(source, documents=[{"title": "D"}])


def test_the_date_is_the_clocks() -> None:
    """And who tells it says so."""
    source = "{{ strftime_now('%Y') }}"

    assert "2023" == _render(source, clock=ManualClock(at=0.0))
    assert ChatTemplate(source, {}, ManualClock()).tells_time
    assert not ChatTemplate(CHATML, {}, ManualClock()).tells_time


def test_generation_marks_are_no_more_than_their_body() -> None:
    """They are for training."""
    assert "ab" == _render("a{% generation %}b{% endgeneration %}")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("{{ raise_exception('secret ' + messages[0].content) }}", "it refuses these"),
        ("{{ messages[0].content.nothing.at_all }}", "it fails on these (UndefinedError)"),
        ("{{ messages[0].content / 2 }}", "it fails on these (TypeError)"),
        ("{{ messages[99]['content'] + 'x' }}", "it fails on these (UndefinedError)"),
        ("{{ messages.append(1) }}", "it fails on these (SecurityError)"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "it fails on these (SecurityError)"),
        ("{{ messages[0].content.format.__globals__ }}x{{ cycler.__init__.__globals__.os.system('x') }}", None),
        ("{{ range(1000000) | list }}", "it fails on these (OverflowError)"),
        ("{{ 'x' * 10000000 }}", "it fails on these (SecurityError)"),
        ("{{ 9 ** 10000000 }}", "it fails on these (SecurityError)"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "it fails on these (RecursionError)"),
        ("{{ messages | tojson(indent='x', separators=5) }}", "it fails on these (TypeError)"),
    ],
)
def test_a_template_that_fails_is_the_callers_error(source: str, hint: str | None) -> None:
    """In our own words: its own may quote the messages."""
    with pytest.raises(BadRequestError) as caught:
        _render(source, [{"role": "user", "content": "planted"}])

    assert "messages.template" == caught.value.code
    assert hint is None or hint == caught.value.issues[0].hint
    assert "planted" not in f"{caught.value} {caught.value.issues}"
    assert "secret" not in f"{caught.value} {caught.value.issues}"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ messages[0].role }}{% endfor %}",
        "{% for a in range(99999) %}{% set b = a * 7 %}{% endfor %}",
    ],
)
def test_a_template_that_runs_away_is_stopped(source: str) -> None:
    """As soon as nobody waits for it any more: whatever it does, it does by attributes, items, calls or sums."""
    turns = count()
    with pytest.raises(OutOfTime):
        _render(source, over=lambda: next(turns) > 50)

    assert next(turns) < 60


def test_a_template_that_writes_too_much_is_stopped() -> None:
    """By the size of what it makes, not of what it is given."""
    with pytest.raises(BadRequestError) as caught:
        _render("{% for a in range(99999) %}{{ messages[0].content }}{% endfor %}", chars_max=1_000)

    assert "messages.too_long" == caught.value.code


def test_a_template_of_wrong_form_is_refused_at_once() -> None:
    """When it is read, not when it is used."""
    with pytest.raises(jinja2.TemplateSyntaxError):
        ChatTemplate("{% for %}", {}, ManualClock())
