"""Random histories of pods, with faults in between: the picture always comes to what the API server has.

Nothing of one that is gone stays, nothing of one that is there is missed, whatever was cut, forgotten or refused.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.cluster import Cluster
from tests.support.collecting import run_on
from tests.support.kube_api import FakeApi, FakeApiServer, Refusal, fake_api_server
from tests.support.pod_pictures import picture, rules
from tests.support.pods import container, engine_args, pod, waiting
from tests.support.watching import SETTINGS, Seen, watching

if TYPE_CHECKING:
    from pathlib import Path

STEPS: Final = 80
NAMES: Final = [f"p{number}" for number in range(6)]
FAULTS: Final = ("cut", "forget", "refuse", "garbage", "freeze", "expire")


def step(chance: random.Random, cluster: Cluster, api: FakeApiServer) -> None:
    """Something happens to a pod."""
    name, ip = chance.choice(NAMES), f"10.0.0.{chance.randint(1, 4)}"
    there = api.pods.get(("serving", name))
    if there is None:
        args = engine_args(8000, None, *chance.choice([(), ("-dp=2",)]))
        cluster.run(name, ip if chance.random() < 0.8 else None, pod(name, container(args=args)))
        return
    match chance.randint(0, 5):
        case 0:
            cluster.delete(name, chance.choice([0, 30]))
        case 1:
            cluster.delete(name, 0)
        case 2:
            cluster.tell(name, ip, ready=chance.random() < 0.5)
        case 3:
            cluster.tell(name, ip, ready=False, vllm=waiting())
        case 4:
            cluster.patch(name, {"metadata": {"labels": {"app": chance.choice(["vllm", "web"])}}})
        case _:
            cluster.tell(name, ip, phase=chance.choice(["Running", "Failed", "Succeeded", "Unknown"]))


def fault(chance: random.Random, api: FakeApiServer) -> None:
    """Something goes wrong on the way."""
    match chance.choice(FAULTS):
        case "cut":
            api.cut()
        case "forget":
            api.forget()
        case "refuse":
            api.refusals.append(Refusal(chance.choice([410, 500, 429, 403]), "Expired"))
        case "garbage":
            api.lines.append(chance.choice([b"{\n", b'{"type": "ADDED", "object": {}}\n', b'{"type":']))
            api.cut()
        case "expire":
            with api.changed:
                api.pages.clear()
        case _:
            api.is_frozen = not api.is_frozen


async def comes_to_what_is_there(seen: Seen, api: FakeApiServer) -> None:
    """The picture of all pods that the server has."""
    pods = [each for each in api.pods.values() if each["metadata"]["labels"]["app"] == "vllm"]
    wanted = picture(*pods, of=rules(SETTINGS), answered=None)
    await seen.until(lambda now: now.found == wanted.found, f"{sorted(wanted.found)}")


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history(seed: int, token_file: Path) -> None:
    """Looked at now and then, once nothing more goes wrong."""
    chance = random.Random(seed)

    async def main() -> None:
        with fake_api_server() as api:
            cluster = Cluster(FakeApi(api, token_file))
            async with watching(api.url, token_file) as seen:
                for number in range(STEPS):
                    await asyncio.to_thread(step, chance, cluster, api)  # meanwhile it is watched
                    if chance.random() < 0.3:
                        fault(chance, api)
                    if number % 20 == 19:
                        api.is_frozen = False
                        await comes_to_what_is_there(seen, api)
                assert len(seen.pictures) > 1

    run_on("asyncio", main())
