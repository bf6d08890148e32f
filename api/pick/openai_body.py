"""From an OpenAI request, exactly as a client sent it to an engine, to the question whose prompt it is. Pure.

Both kinds are read, completions and chat completions, by the names that OpenAI and the engines give their members;
members that do not decide the prompt are ignored. Whatever is not understood is None and never an error: the request is
not ours, and the engine will judge it.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from api.pick.cut_json import Cut, Path, complete_part
from api.rest.prompt_text import text_of
from indexer.errors import BadRequestError
from schemas.lookup import LookupQuery
from schemas.rest import PromptTexts

_TEXTS: Final[frozenset[Path]] = frozenset(
    {("prompt",), ("prompt", None), ("messages", None, "content"), ("messages", None, "content", None, "text")}
)
"""Strings whose beginning is the beginning of a prompt."""
_BESIDE_ANY: Final = ("model", "cache_salt", "add_special_tokens")
_BESIDE_MESSAGES: Final = (
    *("tools", "documents", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
_CHANGES_PROMPT: Final = ("chat_template", "prompt_embeds", "truncate_prompt_tokens")
"""What makes another prompt of it than the model's own template and tokenizer would."""
CUT_BYTES_MAX: Final = 512 * 2**10
"""Of a body that was cut: more is cut off here, too, for it is read in one step. A prompt of 100,000 tokens."""
_TEXT_PARTS: Final = ("text", "input_text")
"""Compared, not hashed: what a client says there may be anything."""


class _Unclear(Exception):
    """Not understood."""


def question(body: bytes, *, cut: bool, tokens_max: int) -> LookupQuery | None:
    """The question; None where the body is not understood. `cut`: it may end anywhere, then what is complete counts."""
    try:
        found = complete_part(body[:CUT_BYTES_MAX], _TEXTS) if cut else Cut(msgspec.json.decode(body), None)
        if found is None:
            return None
        return _query(found, tokens_max)
    except (_Unclear, BadRequestError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _query(found: Cut, tokens_max: int) -> LookupQuery:
    document, inside = found
    if not isinstance(document, dict) or any(document.get(name) is not None for name in _CHANGES_PROMPT):
        raise _Unclear
    if inside and inside[0] in {*_BESIDE_ANY, *_BESIDE_MESSAGES}:
        raise _Unclear  # a part of the tools is another prompt
    told = {name: document[name] for name in _BESIDE_ANY if name in document}
    tokens: bytes | None = None
    partial = inside is not None
    if document.get("messages") is not None:
        told |= {name: document[name] for name in _BESIDE_MESSAGES if name in document}
        partial |= _tell_messages(told, document["messages"], inside or ())
    else:
        prompt = _first(document.get("prompt"))
        if isinstance(prompt, str):
            told["prompt"] = prompt
        else:
            tokens = _image(prompt, tokens_max)
            told.pop("add_special_tokens", None)
    texts = msgspec.convert(told, PromptTexts)
    return LookupQuery(
        tokens=tokens, text=text_of(texts), model=texts.model, cache_salt=texts.cache_salt, partial=partial
    )


def _first(prompt: object) -> object:
    """One prompt: of several, which an engine takes as requests of their own, the first."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        return prompt[0]
    return prompt


def _image(ids: object, tokens_max: int) -> bytes:
    if not isinstance(ids, list) or not ids or len(ids) > tokens_max:
        raise _Unclear
    try:
        return struct.pack(f"<{len(ids)}I", *ids)
    except struct.error:
        raise _Unclear from None


def _tell_messages(told: dict[str, Any], messages: object, inside: Path) -> bool:
    """Add the messages, as far as text alone tells the prompt; whether it goes on behind them.

    The last of them may be unfinished: where the body was cut. A message with an image, and what follows it, is left
    out: how many tokens stand for the image and where, only the engine knows.
    """
    if not isinstance(messages, list):
        raise _Unclear
    kept: list[object] = [message for message in messages if isinstance(message, dict)]
    if len(kept) != len(messages):
        raise _Unclear
    goes_on = inside[:1] == ("messages",)
    unfinished = inside[:2] == ("messages", None)
    if unfinished:
        last = _begun(kept.pop())
        unfinished = last is not None
        kept += [] if last is None else [last]
    of_text = next((i for i, message in enumerate(kept) if not _is_text(message)), len(kept))
    if of_text < len(kept):
        del kept[of_text:]
        goes_on, unfinished = True, False
    if not kept:
        raise _Unclear
    told["messages"] = kept
    if goes_on:
        told |= {"add_generation_prompt": False, "continue_final_message": unfinished}
    return goes_on


def _begun(message: Any) -> dict[str, object] | None:  # noqa: ANN401 - whatever JSON can say
    """What a message that was cut says of the prompt's text."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else {"text": part} for part in content]
        if any(part.get("type", "text") not in _TEXT_PARTS for part in parts):
            return None
        content = [{"type": "text", "text": part["text"]} for part in parts if part.get("text")]
    return {"role": role, "content": content} if role and content else None


def _is_text(message: Any) -> bool:  # noqa: ANN401 - as above
    content = message.get("content")
    if not isinstance(content, list):
        return True
    return all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type") in _TEXT_PARTS) for part in content
    )
