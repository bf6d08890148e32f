"""The whole service beside an API server and engines: each way in which pods come, change and go, over real sockets.

Against the fake server, or with `--api-servers all` a real one, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.pod_engines import OTHER, FoundService
from tests.support.pods import LATER, container, engine_args, pod, terminated, waiting
from tests.support.telling_engine import telling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cluster import ApiServer

NET: Final = "127.77.{}.{}"
"""Of loopback; the third number is a test's own."""


@pytest.fixture
def found(api_server: ApiServer) -> Iterator[FoundService]:
    """The service, and a cluster without pods."""
    with FoundService(api_server) as service:
        yield service


def test_a_rolling_update(found: FoundService) -> None:
    """New pods count once they are ready; old ones from their deletion on no more, and are gone with their objects."""
    old = [found.start(f"old-{n}", NET.format(1, n)) for n in (1, 2)]
    found.until_scored(*old)
    new = [found.start(f"new-{n}", NET.format(1, 10 + n), ready=False) for n in (1, 2)]
    for gone, come in zip(old, new, strict=True):
        found.until_reason(come, "not_ready")
        found.cluster.tell(f"new-{new.index(come) + 1}", come.ip, vllm=found.cluster.process())
        found.service.wait_for(lambda come=come: come.name in found.scored(), "the new one")
        found.cluster.delete(f"old-{old.index(gone) + 1}", 30)
        found.until_reason(gone, "not_ready")
        assert "pod is terminating" in str(found.service.sources()[gone.name])
        gone.announce(OTHER)  # what it still says is no reason to send it anything
        assert gone.name not in found.scored()
        found.cluster.delete(f"old-{old.index(gone) + 1}", 0)
        found.service.wait_for(lambda gone=gone: gone.name not in found.service.sources(), "the old one to be gone")
    found.until_known(*new)
    found.until_scored(*new)


def test_a_name_that_returns_elsewhere(found: FoundService) -> None:
    """As that of a StatefulSet: it leads to the new pod, and nothing of the old one counts."""
    first = found.start("vllm-0", NET.format(2, 1))
    found.until_scored(first)
    found.cluster.delete("vllm-0", 0)
    second = found.engine(NET.format(2, 2))
    second.announce(OTHER)
    found.run("vllm-0", second)

    found.until_known(second)
    found.service.wait_for(lambda: found.reasons() == {second.name: "no_match"}, "the new one, which holds nothing")
    assert [("vllm-0", 0)] == list(found.entries(["vllm-0"]))
    second.announce()
    found.until_scored(second)


def test_an_address_that_returns(found: FoundService) -> None:
    """Another pod's engine, under the same name of a source: what the first one held is not the second one's."""
    engine = found.start("first", NET.format(3, 1))
    found.until_scored(engine)
    before = found.generation(engine)
    found.cluster.delete("first", 30)
    engine.of_rank[0].restart()
    engine.announce(OTHER)
    found.run("second", engine)  # while the object of the first still stands
    found.service.wait_for(
        lambda: found.reasons() == {engine.name: "no_match"}, "the second, which holds nothing of it"
    )
    assert before != found.generation(engine)
    assert [("second", 0)] == list(found.entries(["second"]))
    found.cluster.delete("first", 0)
    engine.announce()
    found.until_scored(engine)


def test_a_pod_that_is_not_ready_goes_on_learning(found: FoundService) -> None:
    """It is not sent anything, and once it is ready again it counts with all that it said meanwhile."""
    engine = found.engine(NET.format(4, 1))
    process = found.cluster.process()
    found.run("p", engine, vllm=process)
    found.until_known(engine)
    found.cluster.tell("p", engine.ip, ready=False, vllm=process)
    found.until_reason(engine, "not_ready")
    before = found.generation(engine)
    engine.announce()
    found.service.wait_for(lambda: found.service.sources()[engine.name]["sequence"] == 0, "what it said")
    assert {engine.name: "not_ready"} == found.reasons()
    found.cluster.tell("p", engine.ip, vllm=process)
    found.until_scored(engine)
    assert before == found.generation(engine)


def test_restarts_within_a_pod(found: FoundService) -> None:
    """A sidecar's is none of the engine's; that of the engine is another generation, also where nothing is said yet."""
    engine = found.engine(NET.format(5, 1))
    made = pod("p", container(args=engine.args()), container("proxy", ["--listen", "8000"]))
    process, proxy = found.cluster.process(), found.cluster.process()
    engine.announce()
    found.run("p", engine, made, vllm=process, proxy=proxy)
    found.until_scored(engine)
    before = found.generation(engine)

    found.cluster.tell("p", engine.ip, ready=False, vllm=process, proxy=terminated(LATER))
    found.until_reason(engine, "not_ready")
    found.cluster.tell("p", engine.ip, vllm=process, proxy=found.cluster.process())
    found.until_scored(engine)
    assert before == found.generation(engine)

    started = process["state"]["running"]["startedAt"]
    down = waiting(started, process["containerID"])
    found.cluster.tell("p", engine.ip, ready=False, vllm=down, proxy=proxy)
    found.until_reason(engine, "not_ready")
    assert before == found.generation(engine)
    engine.of_rank[0].restart()
    found.cluster.tell("p", engine.ip, vllm=found.cluster.process(), proxy=proxy)
    found.service.wait_for(lambda: before != found.generation(engine), "another generation")
    assert not found.scored()
    engine.announce()
    found.until_scored(engine)


@pytest.mark.parametrize("how", ["completed", "evicted"])
def test_a_pod_whose_containers_ended_for_good_is_gone(how: str, found: FoundService) -> None:
    """Though its object stands for as long as nobody removes it."""
    engine = found.start("p", NET.format(6, 1))
    found.until_scored(engine)
    if how == "completed":
        found.cluster.tell("p", engine.ip, ready=False, phase="Succeeded", vllm=terminated(why="Completed"))
    else:
        found.cluster.call("PATCH", "/p/status", {"status": {"phase": "Failed", "reason": "Evicted"}})
    found.until_known()


def test_a_node_that_is_lost(found: FoundService) -> None:
    """Its pods are not ready, then stuck terminating, and keep what they hold for the node's return."""
    process = found.cluster.process()
    engine = found.start("p", NET.format(7, 1), vllm=process)
    found.until_scored(engine)
    found.cluster.call("PATCH", "/p/status", {"status": {"reason": "NodeLost"}})
    found.cluster.tell("p", engine.ip, ready=False, vllm=process)
    found.until_reason(engine, "not_ready")
    assert "NodeLost" in str(found.service.sources()[engine.name])
    found.cluster.call("PATCH", "/p/status", {"status": {"reason": None}})
    found.cluster.tell("p", engine.ip, vllm=process)
    found.until_scored(engine)
    found.cluster.delete("p", 30)
    found.until_reason(engine, "not_ready")
    found.cluster.delete("p", 0)
    found.until_known()


def test_workers_of_a_group_are_no_sources(found: FoundService) -> None:
    """Of a LeaderWorkerSet its leader is one; nor is what is to be ignored, until it is not."""
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    engines = [found.engine(NET.format(8, n)) for n in (1, 2, 3)]
    for number, engine in enumerate(engines[:2]):
        engine.announce()
        made = pod("p", container(args=engine.args()), labels={index: str(number)})
        found.run(f"group-{number}", engine, made)
    ignored = pod("p", container(args=engines[2].args()), annotations={"kvindexer.io/ignore": "true"})
    engines[2].announce()
    found.run("ignored", engines[2], ignored)
    found.until_scored(engines[0])
    found.until_known(engines[0])
    found.cluster.patch("ignored", {"metadata": {"annotations": {"kvindexer.io/ignore": None}}})
    found.until_scored(engines[0], engines[2])


def test_several_ranks(found: FoundService) -> None:
    """A source each; the pod's readiness and life are those of all."""
    engine = found.start("p", NET.format(9, 1), ranks=2)
    found.service.wait_for(lambda: [e.score > 0 for e in found.entries().values()] == [True, True], "both ranks")
    assert {(engine.name, 0), (engine.name, 1)} == found.entries().keys()
    found.cluster.tell("p", engine.ip, ready=False)
    found.service.wait_for(lambda: {e.reason for e in found.entries().values()} == {"not_ready"}, "both not ready")
    found.cluster.delete("p", 0)
    found.until_known()


def test_what_pods_say_of_themselves(found: FoundService) -> None:
    """Annotations, role and model; one of another label is none of ours."""
    engine = found.engine(NET.format(10, 1))
    engine.announce()
    made = pod(
        "p",
        container(args=["other-model"]),
        labels={"llm-d.ai/role": "prefill"},
        annotations={
            "kvindexer.io/events-port": str(engine.events),
            "kvindexer.io/replay-port": str(engine.replay),
            "kvindexer.io/model": "llama",
            "kvindexer.io/port": "8000",
        },
    )
    found.run("p", engine, made)
    foreign = pod("q", container(args=engine_args()))
    foreign["metadata"]["labels"] = {"app": "web"}
    found.cluster.run("q", NET.format(10, 2), foreign)
    found.until_scored(engine)
    (source,) = found.service.sources().values()
    assert ("llama", "prefill", "discovery") == (source["model"], source["role"], source["origin"])
    assert "serving/p: its kvindexer.io/model is none of the names" in found.service.log()


def test_blocks_of_another_size_than_its_arguments_say(found: FoundService) -> None:
    """A warning of the source; what it announces counts as it is."""
    engine = found.engine(NET.format(15, 1))
    engine.announce()
    found.run("p", engine, pod("p", container(args=engine.args("--block-size=64"))))
    found.until_scored(engine)

    said = "discovery: its blocks are said to be of 64 tokens, and its events have 4"
    found.service.wait_for(lambda: said in found.service.sources()[engine.name]["warnings"], "the difference")


def test_a_server_that_is_away_and_one_that_forgets(found: FoundService, api_server: ApiServer) -> None:
    """What is known stays, and what changed meanwhile is made up for."""
    first = found.start("a", NET.format(11, 1))
    found.until_scored(first)
    before = found.generation(first)
    api_server.cut()
    second = found.start("b", NET.format(11, 2))
    found.until_scored(first, second)
    found.cluster.delete("b", 0)
    api_server.forget()
    api_server.cut()
    third = found.start("c", NET.format(11, 3))
    found.until_known(first, third)
    found.until_scored(first, third)
    assert before == found.generation(first)


def test_an_engine_that_alone_knows_where_it_publishes(found: FoundService) -> None:
    """It is asked, at the port of its requests; until it answers it is no source."""
    engine = found.engine("127.0.0.1")
    engine.announce()
    told = {"0": {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{engine.events}", "publisher": "zmq"}}
    answers: dict[str, bytes | str | int] = {"/kv_event_sources": 503}
    with telling(answers) as address:
        port = address.rpartition(":")[2]
        made = pod("p", container(args=["m", "--served-model-name=llama", f"--port={port}"]))
        found.cluster.run("p", engine.ip, made, ready=False)
        found.service.wait_for(lambda: "is being asked where it publishes" in found.service.log(), "the question")
        assert {} == found.service.sources()
        answers["/kv_event_sources"] = json.dumps(told).encode()
        found.service.wait_for(lambda: set(found.service.sources()) == {f"127.0.0.1:{port}"}, "the answer")
        (source,) = found.service.sources().values()
        assert engine.of_rank[0].endpoint == source["endpoint"]


def test_a_token_that_ends_is_told_and_the_next_one_is_used(found: FoundService, api_server: ApiServer) -> None:
    """Nobody who is known is forgotten meanwhile, and nothing of a token is in the log."""
    first = found.start("a", NET.format(12, 1))
    found.until_scored(first)
    token = api_server.token_file.read_text()
    api_server.token_file.write_text("not-a-token-of-this-server")
    api_server.cut()
    found.service.wait_for(lambda: "cannot be heard: status 401" in found.service.log(), "the refusal in the log")
    second = found.start("b", NET.format(12, 2))
    assert {first.name} == found.scored()
    api_server.token_file.write_text(token)
    found.until_scored(first, second)
    found.service.wait_for(lambda: "kubernetes is heard again" in found.service.log(), "that it is over")
    assert token.strip() not in found.service.log()
    assert "not-a-token-of-this-server" not in found.service.log()
