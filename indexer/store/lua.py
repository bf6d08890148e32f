"""Scripts as values: source, hash and name, read once at import from `scripts/`. A missing one fails the import."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "scripts"
_SHARED: Final = (_FOLDER / "shared.lua").read_text(encoding="utf-8")


class Script(NamedTuple):
    """One atomic step on the server. Its file says what must hold before, and what holds after."""

    name: str
    source: bytes
    sha1: str


def load(name: str) -> Script:
    """The script of that name, with the functions that all share in front."""
    source = f"{_SHARED}\n{(_FOLDER / name).with_suffix('.lua').read_text(encoding='utf-8')}".encode()
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest())


ACQUIRE: Final = load("acquire")
RENEW: Final = load("renew")
RELEASE: Final = load("release")
LOOK: Final = load("look")
APPLY: Final = load("apply")
TURN: Final = load("turn")
LAY: Final = load("lay")
FLIP: Final = load("flip")
KEEP: Final = load("keep")
COMMAND: Final = load("command")
BEAT: Final = load("beat")
DRAIN: Final = load("drain")
HISTORY: Final = load("history")
COUNTS: Final = load("counts")
HINTS: Final = load("hints")
LOADS: Final = load("loads")
NAMES: Final = load("names")
