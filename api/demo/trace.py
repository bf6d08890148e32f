"""Recorded event streams (kvtrace/1) and the recorded engines' own answers, read from gzip files.

A trace is what one SUB socket a pod received from a real engine, byte for byte; the truth beside it says how many
tokens of a prompt each engine would have taken from its cache at given positions of the stream. Reading is streaming:
one record in memory at a time. Does file I/O, nothing else.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

MAGIC: Final = b"KVTRACE1"
FORMAT: Final = "kvtrace/1"
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Above any recorded message by far. A damaged length must not make us ask for gigabytes."""

_LENGTH: Final = struct.Struct(">I")


class TraceError(Exception):
    """The file is no readable trace. `record` counts from 0, the header; None where it concerns the whole file."""

    def __init__(self, path: Path | Traversable, problem: str, record: int | None = None) -> None:
        where = "" if record is None else f" in record {record}"
        super().__init__(f"{path.name}: {problem}{where}")
        self.path, self.problem, self.record = path, problem, record


class TracePod(msgspec.Struct, frozen=True):
    """One recorded engine. `pod` is its number in every record; `topic` is frame 1 of its messages."""

    pod: int
    topic: str
    block_size: int
    name: str = ""
    num_gpu_blocks: int | None = None
    data_parallel_rank: int = 0


class TraceHeader(msgspec.Struct, frozen=True):
    """The first record of a trace."""

    format: str
    name: str
    pods: tuple[TracePod, ...]
    note: str = ""
    engine: str = ""
    engine_version: str = ""
    t0: float = 0.0


class TraceMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message of one engine: where it belongs, when it was read, and its three frames.

    `life` grows when the engine was restarted as a new process. It is not on the wire: there only the sequence
    number, which begins at 0 again, tells. `t_us` is microseconds since the start of the recording.
    """

    pod: int
    life: int
    t_us: int
    topic: bytes
    sequence_frame: bytes
    payload: bytes

    @property
    def sequence(self) -> int:
        """The engine's batch number, from 0 in each life."""
        return int.from_bytes(self.sequence_frame, "big")


class Prompt(msgspec.Struct, frozen=True):
    """A prompt that the engines were asked about."""

    tokens: tuple[int, ...]


class Probe(msgspec.Struct, frozen=True):
    """What the engines answered at one position of the trace.

    Asked after the first `n` messages; `at` says the same a pod as (life, sequence), -1 for no message in this life.
    `cached` is the engines' own hit in tokens, at most len(prompt) - 1; `chain` is the longest run of whole blocks
    without that last-token rule. Both a pod, in the order of the pod numbers.
    """

    n: int
    at: tuple[tuple[int, int], ...]
    prompt: int
    cached: tuple[int, ...]
    chain: tuple[int, ...]
    tag: str | None = None


class FinalBlocks(msgspec.Struct, frozen=True):
    """Blocks in one engine's cache after the last message: `hashes` holds (hash, group, copies)."""

    distinct: int
    copies: int
    hashes: tuple[tuple[int | bytes, int | None, int], ...]


class Truth(msgspec.Struct, frozen=True):
    """The ground truth of one trace."""

    prompts: tuple[Prompt, ...]
    probes: tuple[Probe, ...]
    trace: str = ""
    final: tuple[FinalBlocks, ...] | None = None


_HEADER: Final = msgspec.msgpack.Decoder(TraceHeader)
_MESSAGE: Final = msgspec.msgpack.Decoder(TraceMessage)
_TRUTH: Final = msgspec.msgpack.Decoder(Truth)


class Trace:
    """A recorded trace. The header is read at once; `messages()` may be called as often as wanted.

    Raises `TraceError` for anything that is no such file, and OSError where it cannot be opened.
    """

    def __init__(self, path: Path | Traversable) -> None:
        """Open `path`, check the magic, read the header, close it again."""
        self._path = path
        self.header = self._read_header()

    def messages(self) -> Iterator[TraceMessage]:
        """All messages in recorded order. The file is open as long as the iterator lives."""
        pods = {pod.pod for pod in self.header.pods}
        for number, raw in enumerate(self._records()):
            if number == 0:
                continue
            try:
                message = _MESSAGE.decode(raw)
            except msgspec.MsgspecError as error:
                raise TraceError(self._path, f"not a message ({error})", number) from error
            if message.pod not in pods:
                raise TraceError(self._path, f"pod {message.pod} is not in the header", number)
            yield message

    def _read_header(self) -> TraceHeader:
        raw = next(self._records(), None)
        if raw is None:
            raise TraceError(self._path, "no header")
        try:
            header = _HEADER.decode(raw)
        except msgspec.MsgspecError as error:
            raise TraceError(self._path, f"not a header ({error})", 0) from error
        if header.format != FORMAT:
            raise TraceError(self._path, f"format {header.format!r}, this version reads {FORMAT!r}", 0)
        return header

    def _records(self) -> Iterator[bytes]:
        number = 0
        with self._path.open("rb") as raw, gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
            if self._read(unpacked, len(MAGIC), number) != MAGIC:
                raise TraceError(self._path, f"does not begin with {MAGIC.decode()}")
            while head := self._read(unpacked, _LENGTH.size, number):
                if len(head) < _LENGTH.size:
                    raise TraceError(self._path, "ends in the middle of a length", number)
                length: int = _LENGTH.unpack(head)[0]
                if length > RECORD_BYTES_MAX:
                    raise TraceError(self._path, f"a length of {length} bytes (at most {RECORD_BYTES_MAX})", number)
                body = self._read(unpacked, length, number)
                if len(body) < length:
                    raise TraceError(self._path, f"ends after {len(body)} of {length} bytes", number)
                yield body
                number += 1

    def _read(self, unpacked: gzip.GzipFile, size: int, number: int) -> bytes:
        try:
            return unpacked.read(size)
        except EOFError as error:
            raise TraceError(self._path, "the gzip stream is cut off", number) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(self._path, f"not a gzip stream ({error})", number) from error


def read_truth(path: Path | Traversable) -> Truth:
    """Read the ground truth beside a trace. Raises `TraceError`, or OSError where it cannot be opened."""
    try:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
            return _TRUTH.decode(unpacked.read())
    except EOFError as error:
        raise TraceError(path, "the gzip stream is cut off") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"not a gzip stream ({error})") from error
    except msgspec.MsgspecError as error:
        raise TraceError(path, f"not a truth file ({error})") from error
