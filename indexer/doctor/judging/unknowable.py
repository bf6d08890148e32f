"""What nobody can know, said plainly. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.doctor.checks import Finding, found

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from indexer.doctor.facts import Engine


def what_nobody_knows(engines: Sequence[Engine]) -> Iterator[Finding]:
    """Of these sources."""
    if not engines:
        return
    yield found("unknowable.idle_reset", "unknown")
    yield found("unknowable.full_reports", "unknown")
    for engine in engines:
        if engine.replay_endpoint is None and not engine.announces_nothing:
            yield found("unknowable.last_message", "unknown", "", engine.name)
