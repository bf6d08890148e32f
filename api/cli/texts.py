"""A prompt as people type it or keep it in files: text, or the messages of a chat request."""

from __future__ import annotations

from typing import Final

import msgspec

from api.cli.bounded_file import read_bounded
from api.cli.client import UNREADABLE, CommandFailed

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
CHAT_FIELDS: Final = (
    *("messages", "tools", "documents", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
"""Of a chat request that is given whole: what decides its tokens. `model` is taken where no flag names one."""


def read_prompt(told: str) -> str:
    """The text that a flag tells, or the file behind `@` (`@-`: standard input). Raises `CommandFailed`."""
    if told.startswith("@"):
        raw = read_bounded(told[1:], "--prompt", FILE_BYTES_MAX)
    else:
        raw = told.encode(errors="surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(f"--prompt: text in UTF-8 wanted, byte {error.start} is none", 2) from None


def read_messages(told: str) -> dict[str, object]:
    """Fields of a question, from a file with an array of messages or a whole chat request. Raises `CommandFailed`."""
    if not told.startswith("@"):
        raise CommandFailed("--messages: @FILE wanted, or @- for standard input", 2)
    try:
        given = msgspec.json.decode(read_bounded(told[1:], "--messages", FILE_BYTES_MAX))
    except UNREADABLE:
        raise CommandFailed("--messages: JSON wanted", 2) from None
    if isinstance(given, list):
        return {"messages": given}
    if not isinstance(given, dict) or "messages" not in given:
        raise CommandFailed("--messages: an array of messages, or an object with one, wanted", 2)
    return {name: given[name] for name in (*CHAT_FIELDS, "model") if name in given}
