"""[I/O] Files that settings name: whether they can be read, told before the service starts."""

from __future__ import annotations

from pathlib import Path

from indexer.errors import SettingsError
from indexer.settings.layers import BadSettings
from indexer.settings.sections import Settings
from indexer.store.address import parse


def check_files(settings: Settings) -> None:
    """Raise `BadSettings` for each that cannot be read: later it would look like a server that does not answer."""
    named = parse(settings.redis.url).ca if settings.redis.url is not None else None
    if named is None:
        return
    try:
        Path(named).read_bytes()
    except OSError as error:
        raise BadSettings([SettingsError("redis.url", f"ca={named}: {error.strerror}")]) from error
