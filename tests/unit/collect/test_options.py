"""Limits that contradict each other stop the start with the name and the rule."""

from __future__ import annotations

import pytest

from indexer.collect.options import CollectOptions
from indexer.errors import SettingsError


def test_defaults_hold_together() -> None:
    """What is delivered without any setting is within its own rules."""
    assert CollectOptions().message_max_bytes <= CollectOptions().lanes_total_bytes
    assert CollectOptions().lane_bytes <= CollectOptions().lanes_total_bytes


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"tick_s": 0.6}, "events.tick_s"),
        ({"tick_s": 0.0}, "events.tick_s"),
        ({"heartbeat_interval_s": 4.0}, "events.heartbeat_timeout_s"),
        ({"replay_timeout_s": 61.0}, "events.replay_timeout_s"),
        ({"replay_timeout_s": 1.0}, "events.replay_timeout_s"),
        ({"lane_bytes": 2**30}, "events.lane_bytes"),
        ({"message_max_bytes": 2**30}, "events.max_message_bytes"),
    ],
)
def test_contradictions(settings: dict[str, float], key: str) -> None:
    """Each rule is refused with the setting that has to change."""
    with pytest.raises(SettingsError) as refused:
        CollectOptions(**settings)  # type: ignore[arg-type]  # every field named here is a number

    assert key == refused.value.key
