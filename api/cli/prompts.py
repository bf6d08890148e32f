"""Prompts as people keep them in files: a list of token ids a line, one list of lists, or those of a recording."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from api.cli.bounded_file import read_bounded
from api.cli.client import UNREADABLE, CommandFailed
from api.demo.trace import TraceError, read_truth
from schemas.rest import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
PROMPTS_MAX: Final = 100_000
DEMO: Final = "demo"
PACKAGED: Final = files("api.demo") / "demo.truth.gz"
TRACE: Final = ".kvt.gz"
TRUTH: Final = ".truth.gz"

Ids = list[Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]]


class _Line(msgspec.Struct):
    """A line that is a request: of what it holds, the ids are taken."""

    token_ids: Ids


_line: Final = msgspec.json.Decoder(Ids | _Line).decode
_whole: Final = msgspec.json.Decoder(list[Ids]).decode


def read_prompts(name: str) -> list[list[int]]:
    """The prompts in a file, `-` for standard input, `demo` or NAME.kvt.gz for a recording's.

    Raises `CommandFailed` that names the line, and never shows what stands there.
    """
    prompts = _recorded(name) if name == DEMO or name.endswith((TRACE, TRUTH)) else _listed(name)
    prompts = [prompt for prompt in prompts if prompt]
    if not prompts:
        raise CommandFailed(f"--prompts: no prompt in {name}", 2)
    if len(prompts) > PROMPTS_MAX:
        raise CommandFailed(f"--prompts: at most {PROMPTS_MAX} of them", 2)
    return prompts


def _recorded(name: str) -> list[list[int]]:
    """Those that the recorded engines were asked about; they stand in the file beside the recording."""
    path: Path | Traversable = PACKAGED if name == DEMO else Path(name.removesuffix(TRACE).removesuffix(TRUTH) + TRUTH)
    try:
        return [list(prompt.tokens) for prompt in read_truth(path).prompts]
    except OSError as error:
        raise CommandFailed(f"--prompts: {path}: {(error.strerror or str(error)).lower()}", 2) from error
    except TraceError as error:
        raise CommandFailed(f"--prompts: {error}", 2) from error


def _listed(name: str) -> list[list[int]]:
    raw = read_bounded(name, "--prompts", FILE_BYTES_MAX)
    try:
        return _whole(raw)
    except UNREADABLE:
        return list(_lines(raw))


def _lines(raw: bytes) -> Iterator[list[int]]:
    for number, line in enumerate(raw.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            said = _line(line)
        except UNREADABLE:
            rule = f"a JSON list of token ids, 0..{U32_MAX}, wanted"
            raise CommandFailed(f"--prompts: line {number}: {rule}", 2) from None
        yield said.token_ids if isinstance(said, _Line) else said
