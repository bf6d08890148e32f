"""Entries with a time to live fall due after a restart when they would have without it, whatever clock the machine has.

The same announcements go to a source that is never away and to one that is written and restored again and again, each
time on a machine whose boot clock stands elsewhere. Seconds are written: half of one may be missed, and never adds up.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.index.changes import Changes
from indexer.model import Tier
from indexer.store.facts import pack_facts, restore_facts, unpack_facts
from indexer.store.maps import Restoring, encode_all
from tests.support.core import WALL_US, Core, ManualClock
from tests.support.core_events import BLOCK, prompt, stored

TTL_S: Final = 64.0
ROUNDED_S: Final = 0.501
LOOKED_FOR_S: Final = 1.0 + 0.25 + 1.0
"""A look over a lane rests a 64th of the time to live, is asked for every quarter of a second, here once a second."""


class Life:
    """One engine whose blocks lie in a storage tier, in a process that began with the clock at `at`."""

    def __init__(self, wall_us: int, at: float) -> None:
        self.core = Core(tier_ttls={Tier.STORAGE: TTL_S})
        self.core.clock.at, self.core.clock.booted_us = at, wall_us - int(at * 1e6)
        self.speaker = self.core.engine()
        self.speaker.source.changes = Changes()

    @property
    def clock(self) -> ManualClock:
        return self.core.clock

    def fall_due(self) -> dict[int, float]:
        """Engine hash to seconds since 1970."""
        lanes = self.speaker.source.map.lanes.values()
        pieces = [piece for lane in lanes for piece in lane.deadlines or []]
        return {h: due + self.clock.wall_ahead_s for piece in pieces for h, due in piece.items()}

    def held(self) -> set[int]:
        return {h for lane in self.speaker.source.map.lanes.values() for piece in lane.maps for h in piece}

    def restarted(self, at: float) -> Life:
        """What is written now, read on another machine at the same moment."""
        old, new = self.speaker.source, Life(self.clock.wall_us(), at)
        restore_facts(new.speaker.source, unpack_facts(pack_facts(old, 1)), new.core.mirror)
        restoring = Restoring(new.speaker.source, new.core.mirror, new.clock.now(), new.clock.wall_ahead_s)
        for step in encode_all(old, self.core.mirror, self.clock.wall_ahead_s):
            restoring.take({change.field: change.value or b"" for change in step})
        restoring.finish()
        return new


hashes = st.sets(st.integers(1, 6), min_size=1)
boots = st.integers(0, 10**12).map(lambda us: us / 1e6)
steps = st.lists(st.tuples(st.integers(0, 90_000), hashes | boots), max_size=12)


class Lives:
    """Both, told the same."""

    def __init__(self) -> None:
        self.reference, self.restarted = Life(WALL_US, 1_000.0), Life(WALL_US, 5.5)
        self.announced: dict[int, float] = {}
        self.elapsed_s = 0.0

    def wait(self, ms: int) -> None:
        """Housekeeping comes once a second."""
        for seconds in [1.0] * (ms // 1_000) + [ms % 1_000 / 1_000]:
            self.elapsed_s += seconds
            for life in (self.reference, self.restarted):
                life.clock.at += seconds
                life.core.alive()
                life.core.tidy()
                self._check_held(life.held())

    def _check_held(self, held: set[int]) -> None:
        ages = {engine_hash: self.elapsed_s - at for engine_hash, at in self.announced.items()}
        assert {engine_hash for engine_hash, age_s in ages.items() if age_s < TTL_S - ROUNDED_S} <= held
        assert not {engine_hash for engine_hash in held if ages[engine_hash] > TTL_S + ROUNDED_S + LOOKED_FOR_S}

    def announce(self, hashes: set[int]) -> None:
        for life in (self.reference, self.restarted):
            life.speaker.say(*(stored([h], prompt(1, h * BLOCK), medium="STORAGE") for h in hashes))
        self.announced |= dict.fromkeys(hashes, self.elapsed_s)

    def restart(self, at: float) -> None:
        self.restarted = self.restarted.restarted(at)

    def check_moments(self) -> None:
        """Entries that both still hold."""
        due, due_as_well = self.reference.fall_due(), self.restarted.fall_due()
        both = due.keys() & due_as_well.keys()
        assert {h: due[h] for h in both} == pytest.approx({h: due_as_well[h] for h in both}, rel=0, abs=ROUNDED_S)


@given(steps)
def test_a_restart_moves_no_moment(steps: list[tuple[int, set[int] | float]]) -> None:
    """Of no entry, by more than half a second, after any number of restarts."""
    lives = Lives()
    for wait_ms, what in steps:
        lives.wait(wait_ms)
        if isinstance(what, float):
            lives.restart(what)
        else:
            lives.announce(what)
        lives.check_moments()
    lives.wait(90_000)
    assert set() == lives.reference.held() | lives.restarted.held()
