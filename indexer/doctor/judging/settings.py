"""Settings, and the machine they are for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.doctor.checks import Finding, found, found_if
from indexer.doctor.judging.endpoints import Need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NEARLY: Final = 0.9
"""Of a limit."""
TAKEOVER_S: Final = 5.0
"""From the end of a lease until the next owner has loaded the maps and listens: 1.5 to 1.8 s a million pairs."""
RESTART_S: Final = 30.0
"""For a process that is started again, without a store."""


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """What matters here of the settings. The defaults are those of a service that was told nothing."""

    store: bool = False
    lease_s: float = 10.0
    sources_max: int = 4_096

    @property
    def need(self) -> Need:
        """For how long nobody may listen to an engine."""
        if not self.store:
            return Need(RESTART_S, "a restart of the service")
        return Need(self.lease_s + TAKEOVER_S, f"lease {self.lease_s:g} s and takeover")


def judge_settings(effective: Effective | None, remarks: Sequence[str], sources: int) -> Iterator[Finding]:
    """None: they are not known."""
    if effective is None:
        yield found("settings.known", "unknown")
        return
    yield found("settings.known", "ok")
    for remark in remarks:
        yield found("settings.remarks", "warning", remark)
    if not remarks:
        yield found("settings.remarks", "ok")
    full = sources > NEARLY * effective.sources_max
    yield found_if(full, "settings.sources_limit", "warning", f"{sources} of limits.sources {effective.sources_max}")


def judge_start(errors: Sequence[str]) -> Iterator[Finding]:
    """Why serve would not start; empty where it would."""
    for error in errors:
        yield found("settings.valid", "problem", error)
    if not errors:
        yield found("settings.valid", "ok")


def judge_files(allowed: float, wanted: int, sources: int) -> Finding:
    """Open files: what the system allows at most, and what so many sources need."""
    short = allowed < wanted
    seen = f"{sources} sources want {wanted}, {allowed:.0f} are allowed" if short else ""
    return found_if(short, "settings.open_files", "problem", seen)
