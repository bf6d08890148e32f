"""A model's published files: what they are read as, and what is told of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from indexer.errors import BadRequestError, SettingsError
from indexer.settings.sections import Models, TokenizerEntry
from indexer.texts.choice import read_tokenizers
from indexer.texts.engines import EngineTokenizer
from indexer.texts.files import read_tokenizer
from indexer.texts.local import LocalTokenizer, TextLimits
from schemas.lookup import TextPrompt
from tests.support.core import ManualClock
from tests.support.text_models import published, published_tokenizer, small_tokenizer

LIMITS = TextLimits(100_000, 100_000)
USER: list[dict[str, object]] = [{"role": "user", "content": "fox"}]


def _read(file: Path, template: Path | None = None) -> LocalTokenizer:
    return read_tokenizer("models.tokenizer", str(file), None if template is None else str(template), ManualClock())


def _said(tokenizer: LocalTokenizer, text: TextPrompt) -> str:
    image = tokenizer.tokens(text, LIMITS, lambda: False)
    return str(small_tokenizer().decode(np.frombuffer(image, "<u4").tolist(), skip_special_tokens=False))


def test_a_folder_as_models_are_published(tmp_path: Path) -> None:
    """The template is in the configuration; special tokens are its variables, written in either way."""
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"
    tokenizer = _read(published(tmp_path, template=source))

    assert "<s>fox</s>" == _said(tokenizer, TextPrompt(messages=USER))


def test_a_template_file_counts_before_the_configuration(tmp_path: Path) -> None:
    """And one that the setting names before both; further ones lie in a folder of their own."""
    folder = published(tmp_path / "m", template="config")
    (folder / "chat_template.jinja").write_text("file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    (tmp_path / "own.jinja").write_text("own")
    tool: list[dict[str, object]] = [{"type": "function", "function": {"name": "f"}}]

    assert "file" == _said(_read(folder), TextPrompt(messages=USER))
    assert "tools" == _said(_read(folder), TextPrompt(messages=USER, tools=tool))
    assert "own" == _said(_read(folder, tmp_path / "own.jinja"), TextPrompt(messages=USER, tools=tool))


def test_named_templates(tmp_path: Path) -> None:
    """One for requests with tools."""
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    tokenizer = _read(published(tmp_path, template=named))

    assert "plain" == _said(tokenizer, TextPrompt(messages=USER))
    assert "tools" == _said(tokenizer, TextPrompt(messages=USER, tools=[]))


def test_a_file_alone(tmp_path: Path) -> None:
    """What lies beside it is read, too; where nothing does, messages are refused."""
    assert "fox" in _said(_read(published(tmp_path / "m") / "tokenizer.json"), TextPrompt(messages=USER))
    alone = tmp_path / "alone" / "t.json"
    alone.parent.mkdir()
    small_tokenizer().save(str(alone))
    with pytest.raises(BadRequestError) as caught:
        _said(_read(alone), TextPrompt(messages=USER))

    assert "messages.no_template" == caught.value.code
    assert "<s>fox" == _said(_read(alone), TextPrompt(prompt="fox"))


def test_what_a_file_says_of_cutting_and_filling_is_not_for_us(tmp_path: Path) -> None:
    """It was for training."""
    tokenizer = small_tokenizer()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    assert "<s>the quick brown fox" == _said(_read(tmp_path), TextPrompt(prompt="the quick brown fox"))


def _broken(folder: Path, name: str, content: bytes) -> Path:
    published(folder)
    (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("tokenizer.json", b"{}", "no tokenizer.json of the tokenizers library"),
        ("tokenizer.json", b"\xff\x00", "no tokenizer.json of the tokenizers library"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json: not read"),
        ("tokenizer_config.json", b'{"chat_template": 5}', "tokenizer_config.json: not read"),
        ("chat_template.jinja", b"{% for %}", "chat template default, line 1"),
        ("chat_template.jinja", b"\xff", "text in UTF-8 wanted"),
        ("chat_template.jinja", b"x" * (2**20 + 1), "at most 1048576 bytes"),
    ],
)
def test_a_wrong_file_stops_the_start(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    """Named by its setting and its place."""
    with pytest.raises(SettingsError, match=told) as caught:
        _read(_broken(tmp_path, name, content))

    assert "models.tokenizer" == caught.value.key


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    """The key says which setting named it."""
    published(tmp_path / "m")
    for entry, key in (
        (TokenizerEntry(file=str(tmp_path / "none")), "models.tokenizers.m.file"),
        (TokenizerEntry(file=str(tmp_path / "m"), template=str(tmp_path / "none")), "models.tokenizers.m.template"),
        (TokenizerEntry(), "models.tokenizers.m"),
        (TokenizerEntry(file=str(tmp_path / "m"), engine=True), "models.tokenizers.m"),
        (TokenizerEntry(engine="ftp://h"), "models.tokenizers.m.engine"),
        (TokenizerEntry(engine="http://u:p@h:1"), "models.tokenizers.m.engine"),
        (TokenizerEntry(engine="http://h:1/"), "models.tokenizers.m.engine"),
        (TokenizerEntry(engine=True, template=str(tmp_path / "m")), "models.tokenizers.m.template"),
    ):
        with pytest.raises(SettingsError) as caught:
            read_tokenizers(Models(tokenizers={"m": entry}), ManualClock())
        assert key == caught.value.key


def test_a_model_has_its_own_tokenizer_or_that_for_all(tmp_path: Path) -> None:
    """A file that two models name is read once."""
    entry = TokenizerEntry(file=str(published(tmp_path)))
    models = Models(tokenizer="engine", tokenizers={"a": entry, "b": entry, "c": TokenizerEntry(engine="http://h:1")})
    tokenizers = read_tokenizers(models, ManualClock())
    a, b, c, other = (tokenizers.of(name) for name in ("a", "b", "c", None))

    assert a is not None
    assert b is not None
    assert c is not None
    assert other is not None
    assert ("a", "b", "c", "default") == (a.name, b.name, c.name, other.name)
    assert a.maker is b.maker
    assert isinstance(c.maker, EngineTokenizer)
    assert ("http://h:1", None) == (c.maker.url, other.maker.url)  # type: ignore[union-attr]
    assert read_tokenizers(Models(), ManualClock()).of("a") is None


def test_the_tokenizer_of_a_real_model() -> None:
    """Words that are in its vocabulary become these entries of it."""
    tokenizer = _read(published_tokenizer())
    vocabulary = json.loads(published_tokenizer().read_bytes())["model"]["vocab"]
    image = tokenizer.tokens(TextPrompt(prompt="Hello, world!"), LIMITS, lambda: False)

    assert [vocabulary[word] for word in ("Hello", ",", "Ġworld", "!")] == np.frombuffer(image, "<u4").tolist()
