"""A running service beside engines that misbehave, over real sockets: what it says of them over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.demo.engine import EngineSimulator
from indexer.clock import SystemClock
from tests.support.core_events import CLEARED, TS, payload, prompt, removed, stored
from tests.support.core_service import RunningService, applied, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS = prompt(4)
STORED = payload(stored([1, 2, 3, 4], TOKENS))


@pytest.fixture
def engine() -> Iterator[EngineSimulator]:
    """An engine with a replay endpoint."""
    with EngineSimulator() as started:
        yield started


def flag(pod: str, engine: EngineSimulator, *, replay: bool, options: str = "") -> str:
    """Value of `--source`."""
    return f"{pod}={engine.endpoint}" + (f",replay={engine.replay_endpoint}" if replay else "") + options


def wait_live(service: RunningService, pod: str = "pod") -> None:
    """Until the subscription is up and its history settled."""
    service.wait_for(lambda: service.sources()[pod]["state"] == "live", f"{pod} to be live")


def test_a_lost_removal_without_replay_is_said_everywhere(engine: EngineSimulator) -> None:
    """In the answer, in the list of sources, and in the metrics; never called exact."""
    with RunningService([flag("pod", engine, replay=False)]) as service:
        engine.wait_subscribers()
        engine.publish(STORED)
        engine.publish(payload(removed(4)), lost=True)
        engine.publish(payload(stored([9], prompt(1, 50))))
        service.wait_for(lambda: applied(service, "pod", 2), "batch 2")

        answer = service.ask(TOKENS)
        assert ("degraded", 16, ("suspect", "estimate", 2)) == (
            answer.state,
            answer["pod"].matched_tokens,
            standing(answer["pod"]),
        )
        source = service.sources()["pod"]
        assert "gap" in source["why"]
        assert (1, 1) == (source["counters"]["gaps"], source["counters"]["batches_lost"])
        assert (1.0, 1.0) == (service.metric("kvindexer_gaps_total"), service.metric("kvindexer_batches_lost_total"))


def test_a_lost_removal_with_replay_is_healed(engine: EngineSimulator) -> None:
    """Before what follows it is applied."""
    with RunningService([flag("pod", engine, replay=True)]) as service:
        wait_live(service)
        engine.wait_subscribers()
        engine.publish(STORED)
        engine.publish(payload(removed(4)), lost=True)
        engine.publish(payload(stored([9], prompt(1, 50))))
        service.wait_for(lambda: applied(service, "pod", 2), "batch 2")
        service.wait_for(lambda: service.sources()["pod"]["state"] == "live", "the end of the replay")

        answer = service.ask(TOKENS)
        assert ("exact", 12) == (answer.state, answer["pod"].matched_tokens)
        assert (1.0, 0.0) == (service.metric("kvindexer_gaps_total"), service.metric("kvindexer_batches_lost_total"))
        assert 0 < service.metric('kvindexer_replays_total{result="ok"}')


def test_a_lost_tail_of_an_idle_engine_is_found(engine: EngineSimulator) -> None:
    """No message follows: the idle probe asks."""
    with RunningService([flag("pod", engine, replay=True)], events__probe_interval_s="0.2") as service:
        wait_live(service)
        engine.wait_subscribers()
        engine.publish(STORED)
        engine.publish(payload(removed(4)), lost=True)
        service.wait_for(lambda: applied(service, "pod", 1), "batch 1")

        assert ("exact", 12) == (service.ask(TOKENS).state, service.ask(TOKENS)["pod"].matched_tokens)


def test_an_engine_that_dies_leaves_the_scores_by_itself(engine: EngineSimulator) -> None:
    """Stale, then down and listed with 0; back again as a new process, its old blocks are gone."""
    times = {"staleness__stale_after_s": "0.7", "staleness__score_ttl_s": "1.5", "events__heartbeat_ms": "200"}
    with RunningService([flag("pod", engine, replay=True)], **times) as service:
        wait_live(service)
        engine.wait_subscribers()
        engine.publish(STORED)
        service.wait_for(lambda: applied(service, "pod", 0), "batch 0")
        engine.stop()
        service.wait_for(lambda: service.sources()["pod"]["state"] == "down", "the source to be down")
        answer = service.ask(TOKENS)
        assert ("no_signal", "down", 0) == (answer.state, answer["pod"].reason, answer["pod"].matched_tokens)

        engine.restart()
        engine.publish(payload(stored([1], TOKENS[:4]), ts=TS + 60.0))
        service.wait_for(lambda: service.ask(TOKENS)["pod"].matched_tokens == 4, "the new life's block")
        service.wait_for(lambda: service.ask(TOKENS).state == "exact", "an exact answer")
        assert 1 == service.sources()["pod"]["counters"]["restarts"]


def test_an_endpoint_where_nobody_is() -> None:
    """Never live: `new`, with the reason, beside one that works."""
    with EngineSimulator(replay_endpoint=None) as engine:
        flags = ["ghost=tcp://127.0.0.1:1,replay=tcp://127.0.0.1:1", flag("pod", engine, replay=False)]
        with RunningService(flags) as service:
            engine.wait_subscribers()
            engine.publish(STORED)
            service.wait_for(lambda: applied(service, "pod", 0), "batch 0")

            answer = service.ask(TOKENS)
            assert ("degraded", 16) == (answer.state, answer["pod"].matched_tokens)
            assert ("new", "no_events_yet") == (answer["ghost"].state, answer["ghost"].reason)
            assert "not connected yet" == service.sources()["ghost"]["why"]


def test_garbage_between_batches_keeps_the_connection(engine: EngineSimulator) -> None:
    """Frames and bytes that are no batch are counted; what comes before and after them is applied."""
    with RunningService([flag("pod", engine, replay=False)]) as service:
        engine.wait_subscribers()
        engine.publish(STORED)
        engine.publish_raw([b"topic", b"short"])
        engine.publish_raw([b""])
        engine.publish_raw([b"", (1).to_bytes(8, "big"), b"x", b"y"])
        engine.publish(b"\xc1 no batch")
        engine.publish(payload({"type": "New"}, removed(4)))
        service.wait_for(lambda: applied(service, "pod", 2), "batch 2")

        answer = service.ask(TOKENS)
        assert (12, ("suspect", "estimate", 2)) == (answer["pod"].matched_tokens, standing(answer["pod"]))
        counters = service.sources()["pod"]["counters"]
        assert (3, 1, 1) == (
            counters["wire.frames_malformed"],
            counters["skipped.undecodable"],
            counters["skipped.unknown_kind"],
        )
        assert 0 == counters.get("wire.reconnects", 0)
        assert 1 == engine.subscribers


def test_a_late_join_by_replay_says_nothing_of_clocks_and_ages(engine: EngineSimulator) -> None:
    """Batches of an hour ago: no remark on the engine's clock, no age of a last message; a message of now has one."""
    clock = SystemClock()
    now_s = clock.wall_us() / 1e6
    for number, ts in enumerate((now_s - 3_600.0, now_s - 1_800.0)):
        engine.publish(payload(stored([number + 1], prompt(1, number * 50)), ts=ts))
    with RunningService([flag("pod", engine, replay=True, options=",blocks=9")]) as service:
        wait_live(service)
        service.wait_for(lambda: applied(service, "pod", 1), "what was replayed")
        source = service.sources()["pod"]
        assert (None, []) == (source["event_age_ms"], source["warnings"])

        engine.wait_subscribers()
        engine.publish(payload(ts=clock.wall_us() / 1e6))
        service.wait_for(lambda: applied(service, "pod", 2), "a live batch")
        source = service.sources()["pod"]
        assert source["event_age_ms"] is not None
        assert [] == source["warnings"]


def test_each_rank_has_its_own_standing() -> None:
    """Own socket, own numbers, own last event; one entry a rank in answers."""
    with EngineSimulator(replay_endpoint=None) as zero, EngineSimulator(replay_endpoint=None) as one:
        flags = [flag("pod", zero, replay=False), flag("pod", one, replay=False, options=",rank=1")]
        with RunningService(flags) as service:
            zero.wait_subscribers()
            one.wait_subscribers()
            zero.publish(STORED)
            zero.publish(payload(removed(4)))
            service.wait_for(lambda: service.ask(TOKENS).rank("pod", 0).sequence == 1, "rank 0's batches")

            answer = service.ask(TOKENS)
            assert (12, 0) == (answer.rank("pod", 0).matched_tokens, answer.rank("pod", 1).matched_tokens)
            assert "no_events_yet" == answer.rank("pod", 1).reason
            assert answer.rank("pod", 0).event_age_ms is not None
            assert answer.rank("pod", 1).event_age_ms is None
            one.publish(payload(stored([7], TOKENS[:4]), rank=1))
            service.wait_for(lambda: service.ask(TOKENS).rank("pod", 1).matched_tokens == 4, "rank 1's block")


def test_an_operator_clears_what_an_idle_engine_does_not(engine: EngineSimulator) -> None:
    """A reset of an idle engine sends nothing before its next step: the clear by hand, then the event itself."""
    with RunningService([flag("pod", engine, replay=True)]) as service:
        wait_live(service)
        engine.wait_subscribers()
        engine.publish(STORED)
        service.wait_for(lambda: applied(service, "pod", 0), "batch 0")
        before = service.ask(TOKENS)["pod"].generation

        assert 200 <= service.post("/v1/sources/pod/clear") < 300

        entry = service.ask(TOKENS)["pod"]
        assert (0, ("live", "lower", 0)) == (entry.matched_tokens, standing(entry))
        assert int(entry.generation, 16) > int(before, 16)
        engine.publish(payload(CLEARED, stored([1], TOKENS[:4])))
        service.wait_for(lambda: applied(service, "pod", 1), "batch 1")
        assert ("exact", 4) == (service.ask(TOKENS).state, service.ask(TOKENS)["pod"].matched_tokens)
        assert 1.0 == service.metric('kvindexer_events_total{kind="cleared"}')
