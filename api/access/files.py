"""[I/O] Files that say who may call: read at the start, and again when they change.

A change is told by modification time, inode and size, so that a file which is replaced (as mounted secrets are) is
noticed as one that is written. What cannot be used leaves what was read before in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

FILE_BYTES_MAX: Final = 4 * 2**20
"""The largest file that is read: certificates take kilobytes, ten thousand tokens two megabytes."""


class FileUnusable(Exception):
    """A file cannot be read, or what it holds cannot be used. The message quotes nothing of it."""


class Mark(NamedTuple):
    """What tells one version of a file from another; zeros where there is none."""

    modified_ns: int
    inode: int
    size: int


def marks(paths: Sequence[Path]) -> tuple[Mark, ...]:
    """Of the files as they are now."""
    return tuple(_mark(path) for path in paths)


def content(path: Path) -> bytes:
    """The whole file. Raises `FileUnusable`."""
    try:
        with path.open("rb") as file:
            read = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileUnusable(f"{path}: {error.strerror}") from error
    if len(read) > FILE_BYTES_MAX:
        raise FileUnusable(f"{path}: has more than {FILE_BYTES_MAX} bytes")
    return read


def _mark(path: Path) -> Mark:
    try:
        found = path.stat()
    except OSError:
        return Mark(0, 0, 0)
    return Mark(found.st_mtime_ns, found.st_ino, found.st_size)
