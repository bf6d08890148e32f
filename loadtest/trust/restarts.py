"""Processes that are killed: engines, the service, the owner among replicas."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import msgspec

from api.demo.sharing import PartitionFacts, Sharing
from loadtest.stores import StoreServer
from loadtest.trust.asking import WAIT_MAX_S
from loadtest.trust.playing import LOOK_S, Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadtest.trust.judging import Figures

LEASE_S: Final = 2.0
NAMES: Final = ("first", "second")
SHARED: Final = {
    "redis__lease_s": str(LEASE_S),
    "redis__heartbeat_s": "0.2",
    "redis__min_hold_s": "0.5",
    "redis__partitions": "3",
}
"""Each of the recorded engines lies in another partition."""
STEP: Final = 3
"""Messages between two questions while a partition has no owner."""


def engines_killed(*, replay: bool) -> Figures:
    """The recorded restarts, each by SIGKILL's like: what was not sent yet is gone, and numbers begin anew."""
    recording = recorded("clear")
    with Play(recording, replay=replay) as play, Served(play.fleet.source_flags()) as service:
        play.ask_at(service.url)
        play.wait_heard()
        births = [number + 1 for number in recording.births()]
        for place in recording.places:
            for birth in births:
                if play.position < birth <= place.n:
                    play.publish(birth)
                    play.heal(place.prompts[0])
            play.publish(place.n)
            play.settle()
            play.ask_place(place)
        return play.figures


def service_killed(*, replay: bool) -> Figures:
    """In memory mode: another process knows nothing, and asks the engines.

    Without replay it is exact again for an engine once that one restarts or empties its cache; all three do.
    """
    recording = recorded("clear")
    with Play(recording, replay=replay) as play:
        flags, killed_at = play.fleet.source_flags(), len(recording.messages) // 5
        with Served(flags) as service:
            play.ask_at(service.url)
            play.wait_heard()
            play.publish(killed_at)
            play.settle()
            service.kill()
        play.ails()
        _wait_deaf(play)
        with Served(flags) as service:
            play.ask_at(service.url)
            play.wait_heard()
            play.begin_to_listen()
            for place in recording.places:
                if place.n > killed_at:
                    play.publish(place.n)
                    if replay:
                        play.heal(place.prompts[0])
                    play.settle()
                    play.ask_place(place)
            play.heal()
        return play.figures


def _wait_deaf(play: Play) -> None:
    """Until no engine has a subscriber."""
    ends_at = time.monotonic() + WAIT_MAX_S
    while any(engine.subscribers for engine in play.fleet.engines.values()):
        assert time.monotonic() < ends_at, "subscriptions of a process that is gone"
        time.sleep(LOOK_S)


def owner_killed() -> Figures:
    """Two replicas beside a Valkey, engines without replay: the one that collects from most is killed.

    The other is asked all the while, engines go on.
    """
    recording = recorded("eviction")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(StoreServer("valkey", None))
        play = stack.enter_context(Play(recording, replay=False, listeners=len(NAMES)))
        flags = play.fleet.source_flags()
        replicas = {name: Served(flags, redis__url=store.url, redis__replica=name, **SHARED) for name in NAMES}
        for replica in replicas.values():
            stack.enter_context(replica)
        play.ask_at(replicas[NAMES[0]].url)
        play.wait_heard()
        play.until(lambda: _is_shared_out(play), "partitions shared out, each with a standby")
        half = len(recording.messages) // 2
        for place in recording.places:
            if place.n > half and len(replicas) == len(NAMES):
                play.publish(half)
                play.settle()
                victim = _busiest(_owners(play))
                survivor = next(name for name in NAMES if name != victim)
                play.ask_at(replicas[survivor].url)
                play.settle()
                replicas.pop(victim).kill()
                play.ails()
                play.listeners = 1
                _ask_on(play, place.prompts[0])
            play.publish(place.n)
            play.settle()
            play.ask_place(place)
        return play.figures


def _ask_on(play: Play, prompt: int) -> None:
    """Play and ask, some messages at a time, for half of the lease; then ask until all is taken over."""
    ends_at = time.monotonic() + LEASE_S / 2
    while time.monotonic() < ends_at:
        play.publish(play.position + STEP)
        play.ask([prompt], settled=False)
        time.sleep(LOOK_S)
    play.heal(prompt)


def _is_shared_out(play: Play) -> bool:
    views = play.asker.get("/v1/partitions")["partitions"]
    return Sharing(msgspec.convert(views, list[PartitionFacts])).is_even(NAMES, stood_by=True)


def _owners(play: Play) -> Mapping[str, str]:
    """By engine, where there is one."""
    sources = play.asker.sources()
    return {pod: view["owner"] for pod, view in sources.items() if view.get("owner")}


def _busiest(owners: Mapping[str, str]) -> str:
    held = list(owners.values())
    return max(NAMES, key=held.count)
