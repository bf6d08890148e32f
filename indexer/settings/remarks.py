"""What is allowed and very likely a mistake: told at the start, and by `config --check`. Pure."""

from __future__ import annotations

from indexer.settings.sections import Settings


def remarks(settings: Settings) -> list[str]:
    """One sentence each; empty when there is nothing to say."""
    said: list[str] = []
    used: dict[str, str] = {}
    for source in settings.sources:
        for purpose, endpoint in (("events", source.endpoint), ("replay", source.replay_endpoint)):
            if endpoint is None:
                continue
            who = f"{purpose} of {source.pod} rank {source.dp_rank}"
            if endpoint in used:
                said.append(
                    f"{endpoint} is given for {used[endpoint]} and for {who}: no engine can bind one port twice; "
                    "with ranks, keep the two base ports further apart than there are ranks"
                )
            used.setdefault(endpoint, who)
    return said
