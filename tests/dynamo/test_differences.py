"""Where the two differ, one test a difference: what Dynamo 1.6.1 does, and what we do instead. README.md lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from indexer.hashing.chain import local_hashes
from tests.dynamo.indexers import BLOCK, MODEL
from tests.dynamo.test_same_answers import chain, held, play, probes, prompt
from tests.engine.waiting import wait_until
from tests.support.core_events import payload, removed, stored, u32
from tests.support.core_traces import recording

if TYPE_CHECKING:
    from tests.dynamo.conftest import Pair


def scores(pair: Pair, blocks: int, **members: Any) -> tuple[int, int]:  # noqa: ANN401  whatever JSON can say
    """What worker 1 holds of the first so many blocks: by Dynamo, by us."""
    asked = [each.query(prompt(blocks), **members)["scores"] for each in (pair.dynamo, pair.ours)]
    dynamos, ours = (sum(each.get("1", {}).values()) // BLOCK for each in asked)
    return dynamos, ours


# -- engines that are right, and what is made of them ------------------------------------------------------------------


def test_engines_whose_hashes_differ(pair: Pair) -> None:
    """vLLM's hash seed is another in each process by default. Dynamo loses what a second one holds beyond the first."""
    pair.worker(2).say(chain(0, 2)).settle()
    pair.worker(1).say(chain(0, 3, seed=5)).settle()

    assert (2, 3) == scores(pair, 4)


def test_recorded_engines_whose_hashes_differ(pair: Pair) -> None:
    """The same on a recording of real engines: ours says what they said each time, Dynamo often less."""
    less, more, asked = _compared(pair, "basic")

    print(f"\nbasic: Dynamo less than the engine in {less}, more in {more} of {asked} answers")
    assert less
    assert not more


def test_recorded_engines_that_evict(pair: Pair) -> None:
    """Copies and holes: ours says what the engines said each time, Dynamo sometimes less and sometimes more."""
    less, more, asked = _compared(pair, "eviction")

    print(f"\neviction: Dynamo less than the engine in {less}, more in {more} of {asked} answers")
    assert less
    assert more


def _compared(pair: Pair, name: str) -> tuple[int, int, int]:
    """Answers of Dynamo that are less than the engine's own, those that are more, and all. Ours are the engine's."""
    recorded = recording(name)
    workers = [pair.worker(pod.pod + 1) for pod in recorded.header.pods]
    position, less, more, asked = 0, 0, 0, 0
    for probe in probes(recorded):
        position = play(recorded, workers, position, probe.n)
        tokens = list(recorded.truth.prompts[probe.prompt].tokens)
        assert list(probe.chain) == held(pair.ours.query(tokens), workers)
        dynamos = held(pair.dynamo.query(tokens), workers)
        less += sum(theirs < truth for theirs, truth in zip(dynamos, probe.chain, strict=True))
        more += sum(theirs > truth for theirs, truth in zip(dynamos, probe.chain, strict=True))
        asked += len(dynamos)
    return less, more, asked


def test_two_copies_of_a_block(pair: Pair) -> None:
    """An engine that computes a block again announces it again, and each copy's end. Dynamo forgets at the first."""
    pair.worker(1).say(chain(0, 2), chain(0, 2)).say(removed((1 << 32) | 1)).settle()

    assert (1, 2) == scores(pair, 2)


def test_a_block_in_the_middle_that_comes_back(pair: Pair) -> None:
    """What lies behind it was held all the time. Dynamo has forgotten it."""
    worker = pair.worker(1).say(chain(0, 6)).say(removed((1 << 32) | 2))
    worker.settle()
    assert (2, 2) == scores(pair, 6)

    worker.say(chain(2, 3)).settle()
    assert (3, 6) == scores(pair, 6)


def test_blocks_before_their_parent(pair: Pair) -> None:
    """Dynamo drops them. We wait for the parent."""
    pair.worker(1).say(chain(1, 3)).say(chain(0, 1)).settle()

    assert (1, 3) == scores(pair, 3)


def test_a_new_process_at_the_same_address(pair: Pair) -> None:
    """Its numbers begin at 0 again. Dynamo goes on claiming what the old one held and drops what the new one says."""
    worker = pair.worker(1).say(chain(0, 4)).say().say()
    worker.settle()
    worker.engine.restart()
    worker.engine.wait_subscribers(2)
    worker.say(chain(0, 2, seed=9)).settle([pair.ours])

    assert (4, 2) == scores(pair, 4)


# -- engines that say it in other words --------------------------------------------------------------------------------


def test_hashes_of_bytes(pair: Pair) -> None:
    """As vLLM has them within. Dynamo drops the whole batch."""
    worker = pair.worker(1)
    worker.say(stored([b"\1" * 32, b"\2" * 32], prompt(2), None, block_size=BLOCK))
    worker.settle()

    assert (0, 2) == scores(pair, 2)


def test_an_event_that_nobody_knows(pair: Pair) -> None:
    """Dynamo drops all of its batch. We drop the one event."""
    worker = pair.worker(1)
    worker.say({"type": "Tomorrow"}, chain(0, 2)).settle()

    assert (0, 2) == scores(pair, 2)


def test_a_batch_without_a_rank(pair: Pair) -> None:
    """As older engines send it. Dynamo drops it."""
    worker = pair.worker(1)
    whole = payload(chain(0, 2), rank=None)
    assert whole[:1] == b"\x93"
    assert whole[-1:] == b"\xc0"
    worker.engine.publish(b"\x92" + whole[1:-1])
    worker.settle()

    assert (0, 2) == scores(pair, 2)


def test_blocks_of_another_size_than_registered(pair: Pair) -> None:
    """Dynamo drops them without a word. We count them, and `/workers` says it."""
    worker = pair.worker(1)
    worker.say(stored([1], prompt(2), None, block_size=2 * BLOCK)).settle([pair.dynamo])
    wait_until("ours has them", lambda: scores(pair, 2)[1] > 0)

    assert (0, 2) == scores(pair, 2)
    listener = pair.ours.workers()[1]["listeners"]["0"]
    assert "registered with a block size of 16" in listener["last_error"]
    assert "last_error" not in pair.dynamo.workers()[1]["listeners"]["0"]


# -- callers -----------------------------------------------------------------------------------------------------------


def test_hashes_beyond_2_to_63(pair: Pair) -> None:
    """Half of all that Dynamo's own hash function gives. Its service takes signed numbers alone."""
    pair.worker(1).say(chain(0, 4)).settle()
    hashes = [int.from_bytes(digest, "big") for digest in local_hashes(u32(prompt(4)), BLOCK)]
    assert max(hashes) >= 2**63

    assert 422 == pair.dynamo.post("/query_by_hash", block_hashes=hashes, model_name=MODEL).status_code
    assert {"1": {"0": 64}} == pair.ours.query_by_hash(hashes)["scores"]


def test_a_model_that_nobody_serves(pair: Pair) -> None:
    """Also one whose last engine has just left. To a router that is no error: nobody holds anything."""
    status = {
        each.name: each.post("/query", token_ids=prompt(1), model_name="nobodys").status_code
        for each in (pair.dynamo, pair.ours)
    }
    assert {"dynamo": 404, "ours": 200} == status
    assert {"scores": {}, "frequencies": [], "instances": {}} == pair.ours.query(prompt(1), "nobodys")


def test_tenants(pair: Pair) -> None:
    """Dynamo takes the name and passes it over: one tenant sees what another's engines hold."""
    worker = pair.worker(1, tenant_id="a")
    worker.say(chain(0, 2)).settle([pair.dynamo])
    wait_until("ours has them", lambda: scores(pair, 2, tenant_id="a")[1] > 0)

    assert (2, 2) == scores(pair, 2, tenant_id="a")
    assert (2, 0) == scores(pair, 2, tenant_id="b")
    assert (2, 0) == scores(pair, 2)


def test_an_engine_that_nobody_reaches(pair: Pair) -> None:
    """Dynamo calls it active."""
    body = {"instance_id": 1, "endpoint": "tcp://127.0.0.1:1", "model_name": MODEL, "block_size": BLOCK}
    status = {}
    for each in (pair.dynamo, pair.ours):
        assert 201 == each.client.post("/register", json=body).status_code
        status[each.name] = wait_until(
            "it is told",
            lambda one=each: one.workers()[1]["status"],
            holds=lambda s, one=each: s != "pending" or one is pair.ours,
        )
    assert "active" == status["dynamo"]
    assert status["ours"] in {"pending", "failed"}


def test_engines_of_one_model_with_blocks_of_two_sizes(pair: Pair) -> None:
    """Dynamo refuses the second. We answer for both."""
    pair.worker(1).say(chain(0, 2)).settle()
    body = {"instance_id": 2, "endpoint": "tcp://127.0.0.1:1", "model_name": MODEL, "block_size": 32}

    assert 409 == pair.dynamo.client.post("/register", json=body).status_code
    assert 201 == pair.ours.client.post("/register", json=body).status_code


def test_one_rank_is_taken_out_without_naming_the_group(pair: Pair) -> None:
    """Dynamo then takes out all of them."""
    pair.worker(1, dp_rank=0).settle()
    pair.worker(1, dp_rank=1).settle()
    for each in (pair.dynamo, pair.ours):
        assert 200 == each.post("/unregister", instance_id=1, model_name=MODEL, dp_rank=1).status_code

    assert {} == pair.dynamo.workers()
    assert {"0"} == set(pair.ours.workers()[1]["endpoints"])


# -- and what is refused alike -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "members", "status"),
    [
        ("/register", {"endpoint": "tcp://127.0.0.1:1", "block_size": 16}, 201),
        ("/register", {"endpoint": "http://127.0.0.1:1", "block_size": 16}, 400),
        ("/register", {"endpoint": "tcp://127.0.0.1:1"}, 422),
        ("/register", {"endpoint": "tcp://127.0.0.1:1", "block_size": 16, "instance_id": -1}, 422),
        ("/register", {"endpoint": "tcp://127.0.0.1:1", "block_size": 16, "instance_id": "a"}, 422),
        ("/unregister", {}, 404),
        ("/query", {"token_ids": [-1]}, 422),
        ("/query", {"token_ids": [2**32]}, 422),
        ("/query", {"token_ids": ["1"]}, 422),
        ("/query", {}, 422),
        ("/query_by_hash", {"block_hashes": [1], "cache_salt": "s"}, 400),
        ("/query_by_hash", {"token_ids": [1]}, 422),
        ("/query_by_hash", {"block_hashes": [2**64]}, 422),
    ],
)
def test_what_is_refused_alike(pair: Pair, path: str, members: dict[str, Any], status: int) -> None:
    """The same status, and a body of the same kind."""
    answers = [
        each.post(path, **({"instance_id": 1, "model_name": MODEL} | members)) for each in (pair.dynamo, pair.ours)
    ]

    assert [status, status] == [answer.status_code for answer in answers]
    kinds = {answer.headers["content-type"].partition(";")[0] for answer in answers}
    assert len(kinds) == 1, kinds


def test_registered_twice_and_bodies_that_are_none(pair: Pair) -> None:
    """The rest of it."""
    pair.worker(1)
    body = {"instance_id": 1, "endpoint": "tcp://127.0.0.1:1", "model_name": MODEL, "block_size": BLOCK}
    for each in (pair.dynamo, pair.ours):
        assert 409 == each.client.post("/register", json=body).status_code, each.name
        assert 400 == each.client.post("/query", content=b"{", headers={"content-type": "application/json"}).status_code
        assert 415 == each.client.post("/query", content=b"{}", headers={"content-type": "text/plain"}).status_code
        assert 404 == each.post("/unregister", instance_id=1, model_name="other").status_code
        assert 404 == each.post("/unregister", instance_id=9, model_name=MODEL).status_code
    assert pair.dynamo.workers().keys() == pair.ours.workers().keys()
    assert pair.dynamo.workers()[1].keys() == pair.ours.workers()[1].keys()
