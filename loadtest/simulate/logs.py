"""A gateway's own log as a trace. Reads one file; see `FORMAT`."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime
from itertools import count
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from loadtest.simulate.sessions import Numbers, Sessions
from loadtest.simulate.traces import MooncakeLine
from loadtest.simulate.workload import Asked, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from loadtest.simulate.segments import Ids

FORMAT: Final = """\
A log has one request a line, JSON objects or CSV with a line of names, either may be gzipped (.gz):

  timestamp      when it arrived: seconds, or ISO 8601 (2026-11-30T12:00:00.250Z)
  input_tokens   of the prompt
  output_tokens  that were said (optional)
  session        any name: a conversation, a user, an API key (optional)
  block_ids      one id for each block of the prompt, which stands for it and all before it: numbers or words,
                 in CSV with blanks between them (optional). POST /v1/hash gives them: "hashes", "block_size".
  head           name of what the prompt begins with and others share, such as its system prompt (optional)
  head_tokens    how long that is

  {"timestamp": 12.5, "input_tokens": 4210, "output_tokens": 180, "session": "c81",
   "head": "assistant-3", "head_tokens": 1800}                            (on one line)

Without block_ids a prompt is taken to be its head and then its session's: all that the session's request before
had, if it is no shorter, and otherwise a session that begins anew. Without a session, block_ids tell which request
goes on another; without either it shares nothing but its head. Lines of the Mooncake traces (timestamp in
milliseconds, input_length, output_length, hash_ids) are read as well: --block-size 512.
"""
REQUESTS_MAX: Final = 2_000_000
TOKENS_MAX: Final = 16_000_000
"""Of one prompt."""
BLOCKS_MAX: Final = 200_000_000
"""Named by the ids of all requests together, 8 bytes each."""
CELL_CHARACTERS_MAX: Final = 16 * 2**20
"""Of CSV."""
_SPAN: Final = TOKENS_MAX
"""Apart are the first ids of what shares nothing."""


class LogError(Exception):
    """What is wrong with which line."""


class Line(msgspec.Struct):
    """One request as it was logged."""

    timestamp: float | str
    input_tokens: int
    output_tokens: int = 0
    session: str | int | None = None
    block_ids: list[int | str] | str | None = None
    head: str | None = None
    head_tokens: int = 0


class _Entry(msgspec.Struct):
    """A line, understood."""

    at_s: float
    line: Line
    ids: Ids | None


def read_log(path: Path, block_size: int) -> Trace:
    """All of it, in the order of its times. Raises LogError."""
    entries = sorted(_entries(path), key=attrgetter("at_s"))
    if not entries:
        raise LogError(f"{path.name} has no request")
    return Trace(path.name, block_size, _Reading(block_size).asked(entries))


class _Reading:
    """What the requests of a log have in common."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._sessions = Sessions()
        self._alone = count()
        self._firsts: dict[tuple[str, str | int, int], int] = {}
        self._turns: dict[str | int, tuple[int, int]] = {}
        """By session: how often it began anew, and how long it was last."""

    def asked(self, entries: Iterable[_Entry]) -> Iterator[Asked]:
        """In their order."""
        for at_s, line, ids in ((entry.at_s, entry.line, entry.ids) for entry in entries):
            session = line.session
            if session is None and ids is not None:
                session = self._sessions.of(ids.tolist(), line.input_tokens // self._size)
            elif session is None:
                session = f"\0alone {next(self._alone)}"
            chosen = self._of_session(session, line) if ids is None else ids
            yield Asked(at_s, 0.0, line.input_tokens, line.output_tokens, session, chosen)

    def _of_session(self, session: str | int, line: Line) -> Ids:
        begun, before = self._turns.get(session, (0, 0))
        begun += line.input_tokens < before
        self._turns[session] = begun, line.input_tokens
        blocks = line.input_tokens // self._size
        shared = min(line.head_tokens // self._size, blocks) if line.head is not None else 0
        head = self._ids("head", line.head or "", 0, 0, shared)
        return np.concatenate((head, self._ids("session", session, begun, shared, blocks)))

    def _ids(self, kind: str, name: str | int, begun: int, first: int, stop: int) -> Ids:
        base = self._firsts.setdefault((kind, name, begun), len(self._firsts)) * _SPAN
        return np.arange(base + first, base + stop, dtype=np.int64)


def _entries(path: Path) -> Iterator[_Entry]:
    numbers, named = Numbers(), 0
    for place, record in enumerate(_records(path), start=1):
        where = f"{path.name}: request {place}"
        if place > REQUESTS_MAX:
            raise LogError(f"{path.name} has more than {REQUESTS_MAX:,} requests: cut it")
        line = _line(record, where)
        words = line.block_ids.split() if isinstance(line.block_ids, str) else line.block_ids
        ids = None if words is None else np.array(numbers.of(words), np.int64)
        named += 0 if ids is None else len(ids)
        if named > BLOCKS_MAX:
            raise LogError(f"{path.name} names more than {BLOCKS_MAX:,} blocks: cut it")
        yield _Entry(_seconds(line.timestamp, where), line, ids)


def _line(record: Mapping[str, Any], where: str) -> Line:
    told = {name: value for name, value in record.items() if name and value not in (None, "")}
    try:
        if "hash_ids" in told:
            mooncake = msgspec.convert(told, MooncakeLine)
            ids: list[int | str] = [*mooncake.hash_ids]
            line = Line(mooncake.timestamp / 1e3, mooncake.input_length, mooncake.output_length, block_ids=ids)
        else:
            line = msgspec.convert(told, Line, strict=False)
    except msgspec.ValidationError as error:
        raise LogError(f"{where}: {error}") from None
    if not 0 <= line.input_tokens <= TOKENS_MAX or line.output_tokens < 0 or line.head_tokens < 0:
        raise LogError(f"{where}: tokens must be 0 to {TOKENS_MAX:,}")
    return line


def _seconds(timestamp: float | str, where: str) -> float:
    for seconds in (float, _of_iso):
        try:
            told = seconds(timestamp)
        except (ValueError, OverflowError):
            continue
        if isfinite(told):
            return told
    raise LogError(f"{where}: timestamp is neither seconds nor ISO 8601")


def _of_iso(timestamp: float | str) -> float:
    return datetime.fromisoformat(str(timestamp)).timestamp()


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            names = path.name.removesuffix(".gz")
            if names.endswith(".csv"):
                csv.field_size_limit(CELL_CHARACTERS_MAX)
                yield from csv.DictReader(lines)
            else:
                for place, line in enumerate(filter(str.strip, lines), start=1):
                    yield _json(line, f"{path.name}: request {place}")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise LogError(f"{path.name} cannot be read: {error}") from None


def _json(line: str, where: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise LogError(f"{where}: {error}") from None
