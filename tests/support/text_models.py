"""Tokenizers for tests: a real one out of a wheel, and a small one made here, laid out as models are published."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, START, END = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
CHATML = (
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n"
)
_CORPUS = ("The quick brown fox jumps over the lazy dog. " * 4, "kv cache prefix block token engine router " * 4)


def published_tokenizer() -> Path:
    """The `tokenizer.json` of a real model, in a wheel of which nothing is imported."""
    inside = Path("litellm", "litellm_core_utils", "tokenizers", "anthropic_tokenizer.json")
    found = [Path(folder) / inside for folder in sys.path if (Path(folder) / inside).is_file()]
    assert found, "make setup installs the wheel that brings it"
    return found[0]


def small_tokenizer() -> Tokenizer:
    """Byte-level BPE that begins a prompt with `<s>`, as Llama's does; any text comes back out of its tokens."""
    return Tokenizer.from_str(_small())


@cache
def _small() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(token, special=True) for token in (BOS, EOS, START, END)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, 0)]
    )
    return str(tokenizer.to_str())


def published(folder: Path, *, template: object = CHATML, **config: object) -> Path:
    """That tokenizer's folder; `template` None leaves it without."""
    folder.mkdir(parents=True, exist_ok=True)
    small_tokenizer().save(str(folder / "tokenizer.json"))
    told = {"bos_token": BOS, "eos_token": {"content": EOS, "special": True}, "pad_token": None, **config}
    if template is not None:
        told["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder
