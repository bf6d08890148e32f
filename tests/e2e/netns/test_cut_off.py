"""Replicas, store and engines on a network that is cut. Nothing that is called exact is wrong, whatever is cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.apart import TIMES, apart
from tests.support.many import NAMES
from tests.support.told_at import told_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.apart import Apart
    from tests.support.netns import Direction

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LEASE_S: Final = float(TIMES["redis__lease_s"])
LONG_S: Final = 8.0
"""For an outage: longer than a lease, and than a source is `live` without a sign of life."""
SHORT_S: Final = 0.6
"""Shorter than both, and than whoever is silent is given up."""
STEPS: Final = 12


@pytest.mark.parametrize("direction", ["both", "in", "out"])
def test_one_is_cut_from_the_store(tmp_path: Path, direction: Direction) -> None:
    """It goes on applying; its standby takes what it owned, and misses nothing; mended, it follows."""
    with apart(tmp_path) as deployment:
        cluster = deployment.cluster
        lonely = cluster.owners()[0]
        owned = deployment.pods_of(lonely)
        with deployment.speaking() as engines:
            deployment.places[lonely].drop(deployment.store.place, direction=direction)
            cluster.wait_taken_from(lonely)
            deployment.pass_time(LONG_S)
            engines.check()
        deployment.wait_right(*cluster.others(lonely))
        wait_applied(deployment, lonely, owned)
        deployment.mend()
        finish(deployment)
        deployment.assert_nothing_lost()


def test_the_store_is_cut_off(tmp_path: Path) -> None:
    """Owners go on applying and stay the owners; nothing is given up, and nothing begins anew."""
    with apart(tmp_path) as deployment:
        cluster = deployment.cluster
        owners = cluster.owners()
        owned = {name: deployment.pods_of(name) for name in NAMES}
        with deployment.speaking() as engines:
            deployment.store.place.unplug()
            deployment.pass_time(LONG_S)
            engines.check()
        for name, pods in owned.items():
            wait_applied(deployment, name, pods)
        deployment.mend()
        finish(deployment)
        assert owners == cluster.owners()
        deployment.assert_nothing_lost()


def test_one_is_cut_from_everything(tmp_path: Path) -> None:
    """Standbys take what it owned, and miss nothing, though half of the engines say nothing twice."""
    with apart(tmp_path) as deployment:
        cluster = deployment.cluster
        lonely = cluster.owners()[0]
        with deployment.speaking() as engines:
            deployment.places[lonely].unplug()
            cluster.wait_taken_from(lonely)
            deployment.pass_time(LONG_S)
            engines.check()
        deployment.wait_right(*cluster.others(lonely))
        deployment.wait_for(lambda: not live_pods(deployment, lonely), f"{lonely} to be certain of nothing")
        deployment.mend()
        finish(deployment)
        deployment.assert_nothing_lost()


@pytest.mark.parametrize("what", ["engines", "store", "everything"])
def test_for_a_moment(tmp_path: Path, what: str) -> None:
    """Connections stand, and what was under way arrives late: nobody loses anything by it, or what he owns."""
    with apart(tmp_path) as deployment:
        owners = deployment.cluster.owners()
        with deployment.speaking() as engines:
            for name in NAMES:
                if what == "everything":
                    deployment.places[name].unplug()
                else:
                    deployment.places[name].drop(
                        *(deployment.engine_places if what == "engines" else [deployment.store.place])
                    )
                deployment.pass_time(SHORT_S)
                deployment.mend()
                deployment.pass_time(LEASE_S)
            engines.check()
        finish(deployment)
        assert owners == deployment.cluster.owners()
        deployment.assert_nothing_lost()


def test_one_is_cut_from_the_engines(tmp_path: Path) -> None:
    """It remains the owner, and nobody is told that what it applies is fresh; some of it may be in doubt afterwards."""
    with apart(tmp_path) as deployment:
        cluster = deployment.cluster
        owners = cluster.owners()
        deaf = owners[0]
        lost = deployment.pods_of(deaf)
        with deployment.speaking() as engines:
            deployment.places[deaf].drop(*deployment.engine_places)
            wait_doubted(deployment, lost)
            deployment.pass_time(LONG_S)
            engines.check()
        deployment.mend()
        finish(deployment, unsure=lost)
        assert owners == cluster.owners()
        deployment.assert_nothing_lost(but=lost)
        end_well(deployment, lost)


@pytest.mark.parametrize("batches", [1, 80], ids=["numbers behind", "numbers ahead"])
def test_engines_restart_behind_a_cut(tmp_path: Path, batches: int) -> None:
    """While their owner cannot see it: nothing of their lives before is called exact once they have spoken again."""
    with apart(tmp_path) as deployment:
        cluster = deployment.cluster
        pods = deployment.pods_of(cluster.owners()[0])
        deployment.places[cluster.owners()[0]].drop(*deployment.engine_places)
        deployment.restart(*pods)
        for _ in range(batches):
            for pod in pods:
                deployment.speakers[pod].say("nothing")
        deployment.mend()
        deployment.speak(10)
        unsure = [pod for pod in pods if pod in deployment.silent]
        finish(deployment, unsure=unsure)
        deployment.assert_nothing_lost(but=pods)
        end_well(deployment, unsure)


def test_engines_restart_behind_a_long_cut_and_say_nothing(tmp_path: Path) -> None:
    """Nobody calls exact what their lives before held, whether the dead connections are noticed yet or not."""
    with apart(tmp_path) as deployment:
        cluster = deployment.cluster
        deaf = cluster.owners()[0]
        pods = [pod for pod in deployment.pods_of(deaf) if pod in deployment.silent]
        reconnects = {pod: _reconnects(deployment, deaf, pod) for pod in pods}
        before = deployment.generations()
        deployment.places[deaf].drop(*deployment.engine_places)
        wait_doubted(deployment, pods)
        deployment.restart(*pods)
        deployment.mend()

        def are_connected_anew() -> bool:
            for name in NAMES:
                for pod, source in cluster.replicas[name].sources().items():
                    is_as_before = pod in pods and source["generation"] == before[pod]
                    assert not (is_as_before and (source["state"], source["bound"]) == ("live", "exact")), source
            return all(_reconnects(deployment, deaf, pod) > reconnects[pod] for pod in pods)

        deployment.wait_for(are_connected_anew, "their connections to be found dead")
        assert are_connected_anew()
        deployment.speak(10)
        finish(deployment, unsure=pods)
        end_well(deployment, pods)


def _reconnects(deployment: Apart, name: str, pod: str) -> int:
    """Of the connection that carries messages."""
    found: int = deployment.cluster.replicas[name].sources()[pod]["counters"].get("wire.reconnects", 0)
    return found


def test_whatever_is_cut(tmp_path: Path) -> None:
    """One thing after the other, and some together. In the end all are whole that can be, and say alike."""
    number = random.getrandbits(32)
    print("seed", number)
    chance = random.Random(number)
    with apart(tmp_path) as deployment:
        with deployment.speaking() as engines:
            for _ in range(STEPS):
                harm(deployment, chance)
                deployment.pass_time(chance.choice([SHORT_S, LEASE_S / 2, LONG_S]))
                if chance.random() < 0.6:
                    tell("mended")
                    deployment.mend()
                    deployment.pass_time(chance.choice([SHORT_S, LEASE_S]))
            engines.check()
        deployment.mend()
        finish(deployment, unsure=deployment.silent)
        end_well(deployment, deployment.silent)


def harm(deployment: Apart, chance: random.Random) -> None:
    """Something more is wrong."""
    place = deployment.places[chance.choice(NAMES)]
    direction: Direction = chance.choice(["both", "in", "out"])
    what = chance.choice(["its store", "its engines", "an engine", "replica", "store", "restart"])
    tell(what, place.name, direction)
    match what:
        case "its store":
            place.drop(deployment.store.place, direction=direction)
        case "its engines":
            place.drop(*deployment.engine_places, direction=direction)
        case "an engine":
            place.drop(chance.choice(deployment.engine_places), direction=direction)
        case "replica":
            place.unplug()
        case "store":
            deployment.store.place.unplug()
        case _:
            pods = chance.sample(list(deployment.speakers), 2)
            tell(*pods)
            deployment.restart(*pods)


def tell(*what: str) -> None:
    """Beside the times in the logs of replicas, where it fails."""
    print(told_at(), *what)


def wait_applied(deployment: Apart, name: str, pods: Sequence[str]) -> None:
    """Until a replica has what these engines said; whether it is certain of it or not."""
    replica = deployment.cluster.replicas[name]
    deployment.wait_for(
        lambda: all(
            replica.sources()[pod]["sequence"] == deployment.speakers[pod].engine.last.sequence for pod in pods
        ),
        f"{name} to go on applying",
    )


def live_pods(deployment: Apart, *names: str) -> set[str]:
    """What any of these calls so."""
    sources = [source for name in names for source in deployment.cluster.replicas[name].sources().values()]
    return {source["pod"] for source in sources if source["state"] == "live"}


def wait_doubted(deployment: Apart, pods: Sequence[str]) -> None:
    """Until no replica calls them live."""
    deployment.wait_for(lambda: not live_pods(deployment, *NAMES).intersection(pods), f"{pods} to be doubted")


def finish(deployment: Apart, unsure: Sequence[str] = ()) -> None:
    """All is well again by itself, also what comes now."""
    deployment.wait_right(unsure=unsure)
    deployment.cluster.wait_settled()
    deployment.speak()
    deployment.wait_right(unsure=unsure)
    deployment.assert_judged()


def end_well(deployment: Apart, unsure: Sequence[str]) -> None:
    """Who lost something for good is certain again with the engine's next process."""
    deployment.restart(*unsure, subscribers=2)
    deployment.speak(10)
    deployment.wait_right()
