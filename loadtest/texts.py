"""Prompts told as text, for load tests: a tokenizer whose words are the numbers of its tokens.

So a text has exactly the tokens of its prompt, and an answer can be judged as one to ids. It takes about as long as the
real ones. With `limits.text_cache_bytes: 0` every text is tokenized; else each but the first time is one that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from tokenizers import Tokenizer, models, pre_tokenizers

from loadtest.content import VOCABULARY
from loadtest.questions import Form
from loadtest.service import MODEL

if TYPE_CHECKING:
    from pathlib import Path

    from loadtest.traffic import Prompt


def write_tokenizer(folder: Path) -> Path:
    """The file that `models.tokenizer` is to name."""
    words = Tokenizer(models.WordLevel({str(token): token for token in range(VOCABULARY)}, unk_token="0"))  # noqa: S106 - a token of text
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = folder / "tokenizer.json"
    words.save(str(path), pretty=False)
    return path


def _as_text(prompt: Prompt) -> bytes:
    return msgspec.json.encode({"model": MODEL, "prompt": " ".join(map(str, prompt.tokens.tolist()))})


PROMPTS: Final = Form("prompt", "/v1/lookup", "application/json", _as_text)
"""Needs a service whose model has that tokenizer."""
