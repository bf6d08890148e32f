"""A prompt told as text: which fields tell it, what goes together, and the `TextPrompt` they make. Pure.

Names and defaults are those of the engines' own chat requests, so that a router passes on what it has. A chat template
of the caller's own is no field: the model's is used, as the engine will.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from indexer.errors import BadRequestError, FieldIssue
from schemas.lookup import TextPrompt
from schemas.rest import PromptTexts

_MESSAGES: Final = frozenset({"messages"})
_EITHER: Final = frozenset({"messages", "prompt"})
ONLY_WITH_TEXT: Final[Mapping[str, frozenset[str]]] = {
    "tools": _MESSAGES,
    "documents": _MESSAGES,
    "chat_template_kwargs": _MESSAGES,
    "add_generation_prompt": _MESSAGES,
    "continue_final_message": _MESSAGES,
    "add_special_tokens": _EITHER,
}
"""Beside which field each of the others may stand."""
TEXT_FIELDS: Final = (*sorted(_EITHER, reverse=True), *ONLY_WITH_TEXT)
RESERVED: Final = frozenset({"chat_template", "conversation", "messages", "tokenize", "tools"})
"""Of `chat_template_kwargs`: what would not be a variable for the template, or stands elsewhere."""


def text_of(body: PromptTexts) -> TextPrompt | None:
    """The text of a decoded body; None where the prompt is told otherwise. Raises `BadRequestError`."""
    if body.prompt is None and body.messages is None:
        return None
    return TextPrompt(
        prompt=body.prompt,
        messages=body.messages,
        tools=body.tools,
        template_args=_template_args(body),
        add_special_tokens=body.add_special_tokens,
    )


def _template_args(body: PromptTexts) -> dict[str, object]:
    """Variables of the template; those of `chat_template_kwargs` count, as with the engines."""
    variables = body.chat_template_kwargs or {}
    for name in variables:
        if name in RESERVED:
            issue = FieldIssue("chat_template_kwargs", f"without {name}: the model's own template is used")
            raise BadRequestError("chat_template_kwargs.not_allowed", [issue])
    told = {
        "documents": body.documents,
        "add_generation_prompt": body.add_generation_prompt,
        "continue_final_message": body.continue_final_message,
    }
    args = {name: value for name, value in told.items() if value is not None} | variables
    if args.get("add_generation_prompt") and args.get("continue_final_message"):
        rule = "either the last message goes on, or a new one begins"
        issue = FieldIssue("continue_final_message", rule, hint="send add_generation_prompt false")
        raise BadRequestError("continue_final_message.not_allowed", [issue])
    return args
