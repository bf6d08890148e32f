"""Messages and tools as engines prepare them for a chat template. Pure.

vLLM's rules, so that the same request gives the same tokens here: text parts are joined by line ends unless the
template goes through them itself, arguments of tool calls become objects, and tools get all keys of their type in its
order.
"""

from __future__ import annotations

from typing import Final

import msgspec

from indexer.errors import BadRequestError, FieldIssue

Json = dict[str, object]

_TEXT_PARTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""By type of a part: where its text stands."""
_KEPT: Final = {"assistant": ("tool_calls",), "tool": ("tool_call_id",), "developer": ("tools",)}
"""By role: what a template is given of a message besides role, content and name."""
_FOR_CONTENT: Final = ("tool_calls", "function_call", "refusal", "reasoning", "reasoning_content")
"""With one of these an assistant's message needs no content: OpenAI's rule, and of reasoning vLLM's."""
_FUNCTION: Final = ("name", "description", "parameters")


def prepared(messages: list[Json], *, parts: bool) -> list[Json]:
    """The messages; with `parts` their contents as lists of text parts, else as strings. Raises `BadRequestError`."""
    return [_message(index, message, parts=parts) for index, message in enumerate(messages)]


def _message(index: int, message: Json, *, parts: bool) -> Json:
    where = f"messages[{index}]"
    role = message.get("role")
    if not isinstance(role, str):
        raise _wrong(f"{where}.role", "required: string")
    texts = _texts(f"{where}.content", message.get("content"), missing=_stands_for_content(message))
    content: object = [{"type": "text", "text": text} for text in texts] if parts else "\n".join(texts)
    out: Json = {"role": role, "content": content}
    for name in _KEPT.get(role, ()):
        if message.get(name) is not None:
            out[name] = message[name]
    if role == "assistant":
        _add_of_assistant(where, message, out)
    if isinstance(message.get("name"), str):
        out["name"] = message["name"]
    return out


def _stands_for_content(message: Json) -> bool:
    """Whether the message says something without a content."""
    return message.get("role") == "assistant" and any(message.get(name) for name in _FOR_CONTENT)


def _add_of_assistant(where: str, message: Json, out: Json) -> None:
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if isinstance(reasoning, str):
        out["reasoning"] = out["reasoning_content"] = reasoning
    calls = out.pop("tool_calls", None)
    if isinstance(calls, list) and calls:
        out["tool_calls"] = [_call(f"{where}.tool_calls[{i}]", call) for i, call in enumerate(calls)]


def _texts(where: str, content: object, *, missing: bool) -> list[str]:
    if content is None:
        if not missing:
            raise _wrong(where, "required: string, or array of text parts; only an assistant's tool_calls do without")
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise _wrong(where, "string, or array of text parts")
    return [_part(f"{where}[{i}]", part) for i, part in enumerate(content)]


def _part(where: str, part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        hint = "ask with token_ids and mm_items where there are images, sounds or videos"
        raise BadRequestError("messages.not_text", [FieldIssue(where, "a text part", hint=hint)])
    assert isinstance(part, dict)  # noqa: S101 - it has a type
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise _wrong(f"{where}.{_TEXT_PARTS[kind]}", "required: string")
    return text


def _call(where: str, call: object) -> Json:
    """A tool call whose arguments are an object: OpenAI has them as text."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise _wrong(f"{where}.function", "required: object")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments) if arguments else {}
        except (msgspec.DecodeError, RecursionError):
            raise _wrong(f"{where}.function.arguments", "an object, or one as JSON text") from None
    return {**call, "function": {**function, "arguments": arguments or {}}}


def prepared_tools(tools: list[Json] | None) -> list[Json] | None:
    """The tools; None where there are none. Raises `BadRequestError`."""
    if tools is None:
        return None
    return [_tool(f"tools[{index}]", tool) for index, tool in enumerate(tools)]


def _tool(where: str, tool: Json) -> Json:
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _wrong(f"{where}.function.name", "required: string", "tools")
    ordered = {name: function.get(name) for name in _FUNCTION}
    rest = {name: value for name, value in tool.items() if name not in {"type", "function"}}
    return {"type": tool.get("type", "function"), "function": {**ordered, **function}, **rest}


def _wrong(where: str, rule: str, field: str = "messages") -> BadRequestError:
    return BadRequestError(f"{field}.wrong_type", [FieldIssue(where, rule)])
