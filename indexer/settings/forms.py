"""What sections of settings are made of: their base, and the types of values that many of them have."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

YEAR_S = 31_536_000
GIB = 1024**3
MIB = 1024**2

Seconds = Annotated[float, Meta(gt=0, le=YEAR_S)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=1024 * GIB)]
Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Weight = Annotated[float, Meta(ge=0, le=1)]
TermWeight = Annotated[float, Meta(ge=0, le=1_000)]
Secret = Annotated[str, Meta(min_length=1, max_length=4096, extra={"secret": "all"})]
StoreName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$(?!\n)", description="1..64 letters, digits, `_`, `.` or `-`"),
]
"""Part of names in the store, where a colon separates."""
Role = Literal["collect", "lookup", "epp"]
SecretUrl = Annotated[str, Meta(min_length=1, max_length=4096, extra={"secret": "url"})]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections: frozen, and no key that is not written down here."""
