"""Texts of load tests have the tokens of their prompts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from loadtest.content import VOCABULARY, Document
from loadtest.texts import PROMPTS, write_tokenizer
from loadtest.traffic import Prompt


def test_a_text_has_the_tokens_of_its_prompt(tmp_path: Path) -> None:
    """Whatever they are."""
    tokens = np.concatenate((Document(3, 40).tokens(), np.array([0, VOCABULARY - 1], np.uint32)))
    text = json.loads(PROMPTS.body(Prompt(tokens, {})))["prompt"]

    assert tokens.tolist() == Tokenizer.from_file(str(write_tokenizer(tmp_path))).encode(text).ids
