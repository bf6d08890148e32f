"""[I/O] The Unix socket: a file that callers on this machine connect to, there while the server is.

A file that a dead process left is replaced; one that somebody answers on, or that is something else, is not touched.
What is removed at the end is the file that was made here, and not one that took its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from indexer.errors import SettingsError

if TYPE_CHECKING:
    from contextlib import ExitStack

UDS_MODE: Final = 0o660
"""Owner and group: a caller on the socket counts as local."""
PATH_BYTES_MAX: Final = 107
"""Of the path of a socket, by the system's `sockaddr_un`."""


def unix_socket(path: str, stack: ExitStack) -> socket.socket:
    """A bound socket at that path, not listening yet. Raises `SettingsError` for a path that cannot be had."""
    file, size = Path(path), len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise _refused(path, f"the path of a socket has at most {PATH_BYTES_MAX} bytes, got {size}")
    sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        if os.path.lexists(file):
            _remove_if_dead(file)
        sock.bind(path)
        file.chmod(UDS_MODE)
        made = _identity(file)
    except FileNotFoundError:
        raise _refused(path, f"the folder {file.parent} is not there; make it first") from None
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    stack.callback(_remove_ours, file, made)
    return sock


def _refused(path: str, why: str) -> SettingsError:
    return SettingsError("server.uds", f"{path}: {why}")


def _remove_if_dead(file: Path) -> None:
    """Raise OSError unless this is a socket that nobody answers on."""
    if not stat.S_ISSOCK(file.lstat().st_mode):
        raise FileExistsError(errno.EEXIST, "a file that is no socket stands there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(file))
        except ConnectionRefusedError:
            file.unlink()
            return
    raise OSError(errno.EADDRINUSE, "another process answers there")


def _identity(file: Path) -> tuple[int, int]:
    """What tells this file from another of its name."""
    found = file.lstat()
    return found.st_dev, found.st_ino


def _remove_ours(file: Path, made: tuple[int, int]) -> None:
    """Unless another process has put its own there."""
    with contextlib.suppress(OSError):
        if _identity(file) == made:
            file.unlink()
