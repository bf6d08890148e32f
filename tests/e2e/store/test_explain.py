"""Why an engine holds no more, asked of a replica that follows what another one applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.demo.engine import EngineSimulator
from tests.support.core_events import payload, prompt, removed, stored
from tests.support.core_service import RunningService, applied
from tests.support.in_trouble import TIMES
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = prompt(4)


def _explained(service: RunningService) -> dict[str, Any]:
    (entry,) = service.call("POST", "/v1/explain", {"token_ids": TOKENS}).json()["pods"]
    return entry


def test_a_follower_tells_as_much_as_the_journal_and_the_history_do(tmp_path: Path) -> None:
    """A removal with its moment and tier; a clear by command, with its moment from the store's history."""
    settings = {**TIMES, "redis__url": ""}
    with own_server(tmp_path) as store, EngineSimulator(replay_endpoint=None) as engine:
        settings["redis__url"] = store.url
        with (
            RunningService([f"a={engine.endpoint}"], redis__replica="owner", **settings) as owner,
            RunningService([], redis__replica="reader", server__roles="lookup", **settings) as reader,
        ):
            engine.wait_subscribers(1)
            engine.publish(payload(stored([1, 2, 3], prompt(3))))
            for each in (owner, reader):
                each.wait_for(lambda each=each: 12 == each.ask(TOKENS).matched.get("a"), "three blocks")
            engine.publish(payload(removed(3)))
            for each in (owner, reader):
                each.wait_for(lambda each=each: applied(each, "a", 1), "the removal")
                told = _explained(each)
                assert ("evicted", 2, "gpu") == (told["code"], told["missing"]["block"], told["removed"]["tier"])

            assert 200 == owner.post("/v1/sources/a/clear")
            engine.publish(payload(stored([11], prompt(1))))
            for each in (owner, reader):
                each.wait_for(
                    lambda each=each: "cleared" == _explained(each)["code"], "the clear to be in force, and told"
                )
                assert "an operator had it forgotten" in _explained(each)["why"]
            reader.wait_for(lambda: " s ago" in _explained(reader)["why"], "the moment, from the store's history")
