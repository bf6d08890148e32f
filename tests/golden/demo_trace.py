"""The trace that travels with the package is the head of a recorded one. `make golden` writes it anew."""

import gzip
import struct
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "golden" / "traces"
PACKAGED = ROOT / "api" / "demo"

MAGIC = b"KVTRACE1"
LENGTH = struct.Struct(">I")
MESSAGES = 1_023
"""Ends with a question asked: enough traffic for some minutes of demonstration in under 250 kB."""


def _records(trace: bytes) -> list[bytes]:
    assert trace.startswith(MAGIC)
    found, at = [], len(MAGIC)
    while at < len(trace):
        (length,) = LENGTH.unpack_from(trace, at)
        at += LENGTH.size
        found.append(trace[at : at + length])
        at += length
    return found


def cut_trace(trace: bytes) -> bytes:
    """The header, which now says what this is, and the first messages as they were sent."""
    first, *messages = _records(trace)
    header = msgspec.msgpack.decode(first)
    header["note"] = f"the first {MESSAGES} messages of the recording `{header['name']}`: {header['note']}"
    header["name"] = "demo"
    kept = [msgspec.msgpack.encode(header), *messages[:MESSAGES]]
    return MAGIC + b"".join(LENGTH.pack(len(record)) + record for record in kept)


def cut_truth(truth: bytes) -> bytes:
    """The questions asked within those messages; what was held at the end of the recording is not the end here."""
    answers = msgspec.msgpack.decode(truth)
    probes = [probe for probe in answers["probes"] if probe["n"] <= MESSAGES]
    prompts = answers["prompts"][: 1 + max(probe["prompt"] for probe in probes)]
    return msgspec.msgpack.encode({**answers, "trace": "demo", "prompts": prompts, "probes": probes, "final": None})


def packaged() -> dict[Path, bytes]:
    """Uncompressed content by the file that must hold it."""
    return {
        PACKAGED / "demo.kvt.gz": cut_trace(gzip.decompress((SOURCE / "basic.kvt.gz").read_bytes())),
        PACKAGED / "demo.truth.gz": cut_truth(gzip.decompress((SOURCE / "basic.truth.gz").read_bytes())),
    }


def main() -> None:
    """Write what is missing or differs: compressors differ, so equal content keeps its bytes and makes no diff."""
    for path, content in packaged().items():
        if not path.exists() or gzip.decompress(path.read_bytes()) != content:
            path.write_bytes(gzip.compress(content, 9, mtime=0))
            print(f"rewrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
