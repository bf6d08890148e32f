"""The measured constants, out of the file beside it: read once, at import. A damaged one fails the import."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).parent / "measured.json"


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """`of`: the scenario, and what of it."""

    value: float
    unit: str
    of: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """`conditions`: by scenario, on what and when it was measured. `apply_us`: by blocks in a batch, as many removed.

    `lookup_us`: by tokens of the prompt. All times are CPU time of one core.
    """

    conditions: dict[str, dict[str, str]]
    constants: dict[str, Constant]
    apply_us: dict[int, float]
    lookup_us: dict[int, float]

    def __getitem__(self, name: str) -> float:
        """The value of a constant."""
        return self.constants[name].value


MEASURED: Final = msgspec.json.decode(FILE.read_bytes(), type=Measured)
