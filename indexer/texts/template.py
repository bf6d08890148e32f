"""A model's chat template: foreign code that makes one prompt of messages. No I/O; time comes from the Clock.

Runs in jinja's immutable sandbox with what templates are written for (trimmed blocks, loop controls, `raise_exception`,
`strftime_now`, a `tojson` that leaves characters as they are), within a time and a size. A template that refuses, fails
or runs away is the caller's error or an overdue text, never ours, and nothing that it says is repeated: it may quote
the messages.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from indexer.errors import BadRequestError, FieldIssue
from indexer.ports import Clock
from indexer.texts.chat import Json, prepared, prepared_tools
from indexer.texts.late import OutOfTime

REPEATED_MAX: Final = 100_000
"""Of what `*` makes of a string or a list in a template, in items; as the sandbox bounds `range`."""
_DATES: Final = "strftime_now"


class _Refused(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}` marks what a model wrote, for training; here it only holds its body."""

    tags = {"generation"}  # noqa: RUF012 - as the base declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, in a scope of its own."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Looks at every attribute, item and call whether its time is over: loops that do anything meet one."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, clock: Clock) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _Generation])
        self._clock = clock
        self.turn = threading.local()
        """`over` of the render that runs in this thread."""
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise
        self.globals[_DATES] = self._now

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - the base's signature
        self._look()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401 - the base's signature
        self._look()
        return super().getitem(obj, argument)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the base's signature
        self._look()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - the base's signature
        """Multiply and raise, unless the result would be huge."""
        self._look()
        for many, count in ((left, right), (right, left)):
            if hasattr(many, "__len__") and isinstance(count, int) and len(many) * count > REPEATED_MAX:
                raise SecurityError("too long")
        if operator == "**" and isinstance(right, int) and right > REPEATED_MAX.bit_length():
            raise SecurityError("too large")
        return super().call_binop(context, operator, left, right)

    def _look(self) -> None:
        if self.turn.over():
            raise OutOfTime

    def _now(self, form: str) -> str:
        """The local time, as engines tell it."""
        return datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC).astimezone().strftime(form)


class ChatTemplate:
    """Compiled once, rendered by many threads. `source` as the model brings it. Raises `jinja2.TemplateSyntaxError`.

    `variables`: what every render is given, such as `bos_token`.
    """

    def __init__(self, source: str, variables: Mapping[str, object], clock: Clock) -> None:
        self._sandbox = _Sandbox(clock)
        self._template = self._sandbox.from_string(source)
        self._variables = dict(variables)
        self._parts = _goes_through_parts(self._sandbox.parse(source))
        self.tells_time = _DATES in source
        """Whether the same messages make another prompt at another time."""

    def render(
        self,
        messages: list[Json],
        tools: list[Json] | None,
        args: Mapping[str, object],
        *,
        over: Callable[[], bool],
        chars_max: int,
    ) -> str:
        """The prompt. Raises `BadRequestError`, and `OutOfTime` once `over` says so."""
        given = dict(args)
        goes_on = bool(given.pop("continue_final_message", False))
        given.setdefault("add_generation_prompt", not goes_on)
        given.setdefault("documents", None)
        chat = prepared(messages, parts=self._parts)
        given = {**self._variables, **given, "messages": chat, "tools": prepared_tools(tools)}
        self._sandbox.turn.over = over
        try:
            text = self._bounded(given, chars_max)
        except (OutOfTime, BadRequestError):
            raise
        except Exception as error:  # noqa: BLE001 - foreign code fails as it likes
            raise _template_error(error) from None
        return _cut_behind(text, chat) if goes_on else text

    def _bounded(self, given: Mapping[str, object], chars_max: int) -> str:
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(given):
            size += len(piece)
            if size > chars_max:
                rule = "messages of which the chat template makes a prompt within limits.text_bytes"
                raise BadRequestError("messages.too_long", [FieldIssue("messages", rule)])
            pieces.append(piece)
        return "".join(pieces)


def _template_error(error: Exception) -> BadRequestError:
    """In our own words: the template's may quote a message."""
    rule = "messages that the model's chat template takes"
    why = "it refuses these" if isinstance(error, _Refused) else f"it fails on these ({type(error).__name__})"
    return BadRequestError("messages.template", [FieldIssue("messages", rule, hint=why)])


def _cut_behind(text: str, chat: list[Json]) -> str:
    """The prompt up to the end of its last message, which is to go on."""
    last = chat[-1]["content"] if chat else ""
    if isinstance(last, list):
        last = last[-1]["text"] if last else ""
    assert isinstance(last, str)  # noqa: S101 - prepared
    core = last.strip()
    begin = text.rfind(core)
    if not core or begin < 0:
        issue = FieldIssue("continue_final_message", "only where the last message is in the prompt")
        raise BadRequestError("continue_final_message.not_allowed", [issue])
    spaced = last.lstrip()
    return text[: begin + len(spaced if text.startswith(spaced, begin) else core)]


def _goes_through_parts(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content: then it is given parts, else strings.

    vLLM's rule, and its newer versions' for macros, by the variable's name: what it does not notice is given strings.
    """
    return any(_is_content(loop.iter) for loop in tree.find_all(nodes.For))


def _is_content(node: nodes.Node | None) -> bool:
    while isinstance(node, nodes.Filter) or (isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)):
        node = node.node
    if isinstance(node, nodes.Name):
        return node.name == "content"
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "content"


def _raise(message: object = "") -> str:  # noqa: ARG001 - it may quote a message
    raise _Refused


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - called so by templates
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - as above
) -> str:
    """Plain JSON: the engine's filter leaves out jinja's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
