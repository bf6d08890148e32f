"""One of two replicas beside a store is killed, and comes back; engines go on, and messages may get lost besides."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from api.demo.sharing import PartitionFacts, Sharing
from loadtest.stores import StoreServer
from loadtest.trust.losses import PROBE_S
from loadtest.trust.playing import LOOK_S, Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served
from loadtest.trust.streams import losses

if TYPE_CHECKING:
    from loadtest.trust.judging import Figures

LEASE_S: Final = 2.0
NAMES: Final = ("first", "second")
SETTINGS: Final = {
    "redis__lease_s": str(LEASE_S),
    "redis__heartbeat_s": "0.2",
    "redis__min_hold_s": "0.5",
    "redis__partitions": "3",
    "events__probe_interval_s": str(PROBE_S),
}
"""Each of the recorded engines lies in another partition."""
STEP: Final = 3
"""Messages between two questions while a partition has no owner."""


class Pair:
    """Both replicas, and the play that they listen to. A context manager: nothing of them is left afterwards."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._stack = contextlib.ExitStack()
        self._running: dict[str, Served] = {}
        self._store = StoreServer("valkey", None)

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(self._store)
            for name in NAMES:
                self.start(name)
            self.wait_shared_out()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str) -> None:
        """Start it, and ask it from now on."""
        flags = self._play.fleet.source_flags()
        served = Served(flags, redis__url=self._store.url, redis__replica=name, **SETTINGS)
        self._running[name] = self._stack.enter_context(served)
        self._play.ask_at(served.url)

    def wait_shared_out(self) -> None:
        """Until partitions lie evenly, each with a standby, as the one that is asked sees it."""
        self._play.until(self._is_shared_out, "partitions shared out, each with a standby")
        self._play.listeners = len(NAMES)
        self._play.wait_heard()

    def _is_shared_out(self) -> bool:
        views = self._play.asker.get("/v1/partitions")["partitions"]
        return Sharing(msgspec.convert(views, list[PartitionFacts])).is_even(NAMES, stood_by=True)

    def kill_owner_of_most(self) -> str:
        """The other one is asked from now on. Returns who was killed."""
        owners = [view["owner"] for view in self._play.asker.sources().values()]
        victim = max(NAMES, key=owners.count)
        survivor = next(name for name in NAMES if name != victim)
        self._play.ask_at(self._running[survivor].url)
        self._play.settle()
        self._running.pop(victim).kill()
        self._play.go_unheard()
        self._play.listeners = 1
        return victim


def owner_killed(*, replay: bool = False, rate: float = 0.0) -> Figures:
    """After a third of the recording the one that collects from most is killed; after two thirds it is there again.

    The other is asked all the while, and then the one that came back. What one doubts, the others must.
    """
    recording = recorded("eviction")
    third = len(recording.messages) // 3
    lost = losses(recording.messages, rate, "replicas")
    whole = replay or not lost
    victim = ""
    with Play(recording, replay=replay, lost=lost, probe_s=PROBE_S) as play, Pair(play) as pair:
        for place in recording.places:
            if place.n > third and not victim:
                play.publish(third)
                play.settle()
                victim = pair.kill_owner_of_most()
                _ask_on(play, place.prompts[0], whole=whole)
            elif place.n > 2 * third and play.listeners == 1:
                play.publish(2 * third)
                pair.start(victim)
                play.ails()
                pair.wait_shared_out()
            play.publish(place.n)
            play.settle()
            if whole:
                play.heal(place.prompts[0])
            else:
                play.hear_again()
            play.ask_place(place)
        return play.figures


def _ask_on(play: Play, prompt: int, *, whole: bool) -> None:
    """Play and ask, some messages at a time, for half of the lease; then ask until all is taken over."""
    ends_at = time.monotonic() + LEASE_S / 2
    while time.monotonic() < ends_at:
        play.publish(play.position + STEP)
        play.ask([prompt], settled=False)
        time.sleep(LOOK_S)
    if whole:
        play.heal(prompt)
