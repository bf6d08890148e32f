"""What engines say they serve is read by the replica that applies their events, and known to all, and afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from indexer.index.served import Served
from indexer.model import SourceId
from indexer.store.failures import DamagedValue
from indexer.store.layout import PartitionKeys, partition_of, tags
from indexer.store.names import NAMES_BYTES_MAX, ToldNames, pack_names, read_names
from schemas.lookup import LookupQuery
from tests.support.busy_engine import busy_engine, whole
from tests.support.core_events import prompt, stored, u32
from tests.support.replicas import Replica, names_of_two, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

LEARNS = {"models__discover": True, "loads__interval_s": "off"}


def listing(*names: str, adapter: str = "fr") -> bytes:
    """What an engine answers."""
    entries = [{"id": name, "root": name, "parent": None} for name in names]
    return whole(json.dumps({"data": [*entries, {"id": adapter, "root": "x", "parent": names[0]}]}))


def keys_of(source: SourceId) -> PartitionKeys:
    """Of its partition."""
    return PartitionKeys("kvi", tags(16)[partition_of(source, 16)])


def meant(replica: Replica, name: str) -> tuple[str | None, str | None, str | None]:
    """Model, adapter and how the name was resolved, in that replica's answer."""
    answer = replica.node.lookup(LookupQuery(model=name, tokens=u32(prompt(2))))
    return answer.model, answer.lora_name, answer.resolved_by


def test_one_asks_and_all_know(store: Store) -> None:
    """A follower, who takes over while the engine's API is away, and a replica that begins after all."""

    async def body() -> None:
        async with busy_engine() as engine:
            pod = engine.address
            source = SourceId(pod, 0)
            engine.answer = listing("llama", "llama-3")
            names = names_of_two(pod)
            owner = await Replica(store.url, (pod,), name=names[0], **LEARNS).start()
            follower = await Replica(store.url, (pod,), name=names[1], **LEARNS).start()
            owner.say(pod, stored([1], prompt(1)))
            for replica in (owner, follower):
                await replica.until(lambda replica=replica: meant(replica, "llama-3") == ("llama", None, "alias"))
                assert ("llama", "fr", "adapter") == meant(replica, "fr")
                assert ("llama", None, "model") == meant(replica, "llama")
            assert [pod] == [*owner.node._scraper._targets]
            assert [] == [*follower.node._scraper._targets]
            engine.answers["/v1/models"] = whole("{}", "503 Service Unavailable")

            await owner.die()
            await follower.until(lambda: not follower.sink(pod).followed)
            await follower.until(lambda: meant(follower, "llama-3") == ("llama", None, "alias"))
            assert 60_000 < store.look.pttl(keys_of(source).names) <= 3_600_000
            await follower.stop()

            last = await Replica(store.url, (pod,), name="r3", **LEARNS).start()
            await last.until(lambda: meant(last, "fr") == ("llama", "fr", "adapter"))
            await last.stop()

    run(body)


def test_who_takes_over_in_the_midst_of_a_look_tells_nothing_before_it_has_heard(store: Store) -> None:
    """Else it would tell that nothing is known, and what the owner before it told would be gone."""

    async def body() -> None:
        async with busy_engine() as engine:
            pod = engine.address
            engine.answer = listing("llama", "llama-3")
            names = names_of_two(pod)
            owner = await Replica(store.url, (pod,), name=names[0], **LEARNS).start()
            follower = await Replica(store.url, (pod,), name=names[1], **LEARNS).start()
            owner.say(pod, stored([1], prompt(1)))
            await follower.until(lambda: meant(follower, "llama-3") == ("llama", None, "alias"))
            engine.answers["/v1/models"] = whole("{}", "503 Service Unavailable")
            sharing, looked = follower.part.names, []
            hear = sharing._hear

            async def hear_and_take_over() -> None:
                await hear()
                if not looked:
                    await owner.die()
                    await follower.until(lambda: not follower.sink(pod).followed)
                looked.append(True)

            sharing._hear = hear_and_take_over
            await follower.until(lambda: len(looked) >= 3)
            assert ("llama", None, "alias") == meant(follower, "llama-3")
            await follower.stop()

    run(body)


def test_another_process_of_the_engine(store: Store) -> None:
    """Of the process before nothing is believed, at any replica; a clear takes no name away for long."""

    async def body() -> None:
        async with busy_engine() as engine:
            pod = engine.address
            engine.answer = listing("llama")
            names = names_of_two(pod)
            owner = await Replica(store.url, (pod,), name=names[0], **LEARNS).start()
            follower = await Replica(store.url, (pod,), name=names[1], **LEARNS).start()
            owner.say(pod, stored([1], prompt(1)))
            await follower.until(lambda: meant(follower, "llama")[2] == "model")
            before, asked = follower.sink(pod).source.facts.generation, len(engine.asked)
            await owner.node.clear_source(pod, None)
            await follower.until(lambda: follower.sink(pod).source.facts.generation > before)
            await follower.until(lambda: meant(follower, "llama")[2] == "model")
            assert asked == len(engine.asked)

            engine.answer = listing("qwen")
            owner.sink(pod).restart("sequence_went_back")
            for replica in (owner, follower):
                await replica.until(lambda replica=replica: meant(replica, "qwen")[2] == "model")
                assert "model" != meant(replica, "llama")[2]
            await follower.stop()
            await owner.stop()

    run(body)


def test_what_is_told_is_read() -> None:
    """Each list of names once; equal words are equal bytes; what does not fit is left out."""
    one, two = Served(("a", "b"), ("c",)), Served(("d",))
    told = [ToldNames(SourceId("x", rank), 7 + rank, one) for rank in (0, 1)] + [ToldNames(SourceId("y", 0), 9, two)]
    packed = pack_names(told)

    assert packed.is_whole
    assert packed == pack_names(list(told))
    assert told == [*read_names(packed.data)]

    large = [ToldNames(SourceId(f"p{i}", 0), 1, Served((f"{i}" * 500,) * 60)) for i in range(60)]
    some = pack_names(large)
    assert not some.is_whole
    assert len(some.data) <= NAMES_BYTES_MAX
    assert [*read_names(some.data)]


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x90", b"\x92\x90\x91\x93\xc4\x03a#0\x01\x00", b"\0" * (NAMES_BYTES_MAX + 1)]
)
def test_what_is_no_names_is_damage(data: bytes) -> None:
    """Half a value, a row of nothing, and what is too long."""
    with pytest.raises(DamagedValue):
        list(read_names(data))
