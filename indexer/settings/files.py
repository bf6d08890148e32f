"""[I/O] Files that settings name: whether they can be read, told before the service starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from indexer.errors import SettingsError
from indexer.settings.layers import BadSettings
from indexer.settings.sections import Settings
from indexer.store.address import parse


def check_files(settings: Settings) -> None:
    """Raise `BadSettings` for each that cannot be read: later it would look like a server that does not answer."""
    errors = [
        SettingsError(key, f"{told}{error.strerror}")
        for key, told, path in _named(settings)
        if (error := _why_not_read(path)) is not None
    ]
    if errors:
        raise BadSettings(errors)


def _named(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Keys, what is said before what is wrong, and paths."""
    authority = parse(settings.redis.url).ca if settings.redis.url is not None else None
    if authority is not None:
        yield "redis.url", f"ca={authority}: ", authority
    pods = settings.discovery.kubernetes
    if pods.selector is not None:
        for key, path in (("token_file", pods.token_file), ("ca_file", pods.ca_file)):
            if path is not None:
                yield f"discovery.kubernetes.{key}", f"{path}: ", path


def _why_not_read(path: str) -> OSError | None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        return error
    return None
