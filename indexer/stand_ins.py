"""Libraries without what they load and nobody here uses: while one is imported, names stand in for modules of it.

Afterwards they are gone: whoever wants the real ones in this process has them. No I/O. Why: decisions/0049.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def without(modules: Mapping[str, Mapping[str, object] | None]) -> Iterator[None]:
    """Each module has the names that are given for it, or is told not to be there (None), unless it is loaded."""
    stood_in = [name for name in modules if name not in sys.modules]
    for name in stood_in:
        names = modules[name]
        if names is None:
            sys.modules[name] = None  # type: ignore[assignment]  # the import system's own word for "none"
        else:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(names)
    try:
        yield
    finally:
        for name in stood_in:
            del sys.modules[name]
