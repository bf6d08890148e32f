"""Recorded streams of a real engine through the core, without sockets, against that engine's own answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.model import RawBatch
from tests.support.core import Core, check_mirror
from tests.support.core_traces import NAMES, Recording, recording

if TYPE_CHECKING:
    from api.demo.trace import Probe, TraceMessage
    from tests.support.core import Speaker


class Player:
    """Feeds a recording to a core, one source a recorded pod; a new life is a restart."""

    def __init__(self, core: Core, recorded: Recording) -> None:
        self.core = core
        self.recorded = recorded
        self.speakers: list[Speaker] = [core.engine(str(pod.pod)) for pod in recorded.header.pods]
        self.lives = [0] * len(self.speakers)
        self.position = 0

    def play(self, until: int) -> None:
        for message in self.recorded.messages[self.position : until]:
            self._apply(message)
        self.position = until

    def _apply(self, message: TraceMessage) -> None:
        sink = self.speakers[message.pod].sink
        if message.life != self.lives[message.pod]:
            self.lives[message.pod] = message.life
            sink.restart("sequence_went_back")
        sink.apply(RawBatch(message.topic, message.sequence, message.payload))


def compare(player: Player, probe: Probe) -> list[str]:
    """What one probe's answer says otherwise than the engines; empty when nothing."""
    answer = player.core.ask(player.recorded.prompts[probe.prompt])
    wrong = [] if answer.state == "exact" else [f"n={probe.n}: state {answer.state}"]
    for pod, (_, sequence) in enumerate(probe.at):
        entry = answer[str(pod)]
        got = (entry.matched_tokens, entry.reusable_tokens, entry.state, entry.bound, entry.sequence)
        expected = (probe.chain[pod], probe.cached[pod], "live", "exact", sequence)
        if got != expected:
            wrong.append(f"n={probe.n} pod={pod} prompt={probe.prompt}: got {got}, engine {expected}")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_the_engines_own(name: str) -> None:
    """At every probe, for every pod: matched = chain, reusable = cached, state exact, at the sequence it names."""
    recorded = recording(name)
    player = Player(Core(), recorded)
    wrong: list[str] = []
    compared = 0

    for probe in recorded.probes:
        player.play(probe.n)
        wrong += compare(player, probe)
        compared += len(probe.at)
        player.core.ingest.tidy_slice()

    assert [] == wrong
    assert compared == len(recorded.probes) * 3 > 200


@pytest.mark.parametrize("name", NAMES)
def test_what_is_held_at_the_end_is_the_engines_cache(name: str) -> None:
    """After the last message the held engine hashes and their copies are those in the engines' block pools."""
    recorded = recording(name)
    player = Player(Core(), recorded)
    player.play(len(recorded.messages))
    final = recorded.truth.final
    assert final is not None

    for speaker, truth in zip(player.speakers, final, strict=True):
        held = {
            (engine_hash, group): lane.count(engine_hash)
            for (group, _), lane in speaker.source.map.lanes.items()
            for engine_hash in dict(lane.items())
        }
        assert held == {(engine_hash, group): copies for engine_hash, group, copies in truth.hashes}
        assert (truth.distinct, truth.copies) == (speaker.source.pairs, speaker.source.copies)
    player.core.tidy()
    check_mirror(player.core.mirror)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_when_the_sources_leave(name: str) -> None:
    """Removed sources take all their entries, slots and records with them."""
    recorded = recording(name)
    player = Player(Core(), recorded)
    player.play(len(recorded.messages))
    core = player.core

    for pod in recorded.header.pods:
        core.remove(str(pod.pod))
    core.tidy()

    assert 0 == core.mirror.table.live == core.mirror.live_slots == core.mirror.retired_slots()
    assert 1 == len(core.mirror.book)
    check_mirror(core.mirror)
