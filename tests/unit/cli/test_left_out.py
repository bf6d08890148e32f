"""What is loaded with the Redis library, and with uvicorn."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "never", "afterwards"),
    [
        ("indexer.store.client", ("opentelemetry.sdk", "opentelemetry.metrics"), "opentelemetry.sdk.metrics"),
        ("api.uvicorn_parts", ("click", "multiprocessing", "uvicorn.main", "logging.config"), "logging.config"),
    ],
)
def test_what_it_would_bring_is_not_loaded_and_still_can_be(
    module: str, never: tuple[str, ...], afterwards: str
) -> None:
    """Whoever wants it in the same process has it."""
    code = (
        f"import importlib, sys; importlib.import_module({module!r})\n"
        f"found = [name for name in {never!r} if name in sys.modules]\n"
        f"importlib.import_module({afterwards!r}); importlib.import_module('uvicorn.main'); print(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
