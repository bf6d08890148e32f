"""A tokenizer read from files. Its work is done in threads: it takes about a microsecond a token, without the GIL."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from indexer.errors import BadRequestError, FieldIssue
from indexer.texts.late import OutOfTime
from schemas.lookup import TextPrompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from indexer.texts.template import ChatTemplate

# The threads are ours and bounded; read by the library at each call.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

TOOL_TEMPLATE: Final = "tool_use"
DEFAULT_TEMPLATE: Final = "default"


class TextLimits(NamedTuple):
    """Of one text: bytes that came or that a template makes of it, and tokens."""

    bytes: int
    tokens: int


class LocalTokenizer:
    """One model's. `templates` by name: `default`, and `tool_use` where the model has one for requests with tools."""

    source: Literal["file"] = "file"

    def __init__(self, tokenizer: Tokenizer, templates: Mapping[str, ChatTemplate]) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._templates = dict(templates)

    def tells_time(self, text: TextPrompt) -> bool:
        """Whether the same text makes other tokens at another time."""
        template = self._template(text)
        return text.messages is not None and template is not None and template.tells_time

    def tokens(self, text: TextPrompt, limits: TextLimits, over: Callable[[], bool]) -> bytes:
        """The little-endian u32 image of its tokens. Blocks. Raises `BadRequestError`, `OutOfTime`."""
        if over():
            raise OutOfTime
        prompt, special = text.prompt, text.add_special_tokens
        if prompt is None:
            prompt = self._rendered(text, limits, over)
        if special is None:
            special = text.prompt is not None  # a template writes the special tokens itself
        # As `encode`, without keeping where in the text each token is: a quarter faster.
        (encoding,) = self._tokenizer.encode_batch_fast([prompt], add_special_tokens=special)
        ids = encoding.ids
        if len(ids) > limits.tokens:
            raise too_many_tokens(text, limits.tokens)
        return image_of(ids)

    def _rendered(self, text: TextPrompt, limits: TextLimits, over: Callable[[], bool]) -> str:
        template = self._template(text)
        if template is None:
            rule = "not for this model: its tokenizer has no chat template"
            issue = FieldIssue("messages", rule, hint="send prompt, or token_ids")
            raise BadRequestError("messages.no_template", [issue])
        messages = text.messages or []
        return template.render(messages, text.tools, text.template_args, over=over, chars_max=limits.bytes)

    def _template(self, text: TextPrompt) -> ChatTemplate | None:
        default = self._templates.get(DEFAULT_TEMPLATE)
        return self._templates.get(TOOL_TEMPLATE, default) if text.tools is not None else default


def image_of(ids: Sequence[int]) -> bytes:
    """The little-endian u32 image. Three times as fast as by way of an array: the loop waits for it."""
    return struct.pack(f"<{len(ids)}I", *ids)


def too_many_tokens(text: TextPrompt, tokens_max: int) -> BadRequestError:
    """A prompt that is longer than any that may be asked about."""
    field = "messages" if text.prompt is None else "prompt"
    issue = FieldIssue(field, f"a prompt of at most {tokens_max} tokens (limits.tokens)")
    return BadRequestError(f"{field}.too_many_tokens", [issue])
