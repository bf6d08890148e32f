"""Replicas tell of themselves and hear of each other, in one step, by the server's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from indexer.sharding.members import Member, Members, Reading
from indexer.store.failures import WRONG_TYPE, StoreFailure
from indexer.store.layout import replicas_key
from indexer.store.members import beat, lift_drain, mark_drain, pack_member, who_runs
from tests.support.owning import with_client
from tests.support.redis_servers import content

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from indexer.store.client import Client
    from tests.support.redis_servers import Store

KEY: Final = replicas_key("kvi")
TIMES: Final = {"retain_ms": 600_000, "forget_ms": 60_000}
HOUR_MS: Final = 3_600_000
A: Final = Member(
    name="a",
    process="1",
    address="http://10.0.0.1:8080",
    stands_by=False,
    owned={0: 0, 3: 4096},
    ready=[7],
    configuration="00ff",
)
B: Final = Member(name="b", process="1")


async def beaten(client: Client, member: Member, **times: int) -> Reading:
    """What its beat was answered."""
    return await beat(client, KEY, member, **{**TIMES, **times})


def set_back(store: Store, name: str, by_ms: int) -> None:
    """As if it had beaten so much earlier; later, where negative."""
    at, _, said = store.look.hget(KEY, f"b:{name}").partition(b"|")
    store.look.hset(KEY, f"b:{name}", b"%d|%b" % (int(at) - by_ms, said))


def told(reading: Reading) -> dict[str, Member]:
    """What each said, whenever."""
    return {name: member for name, (_, member) in reading.beats.items()}


def test_a_beat_tells_and_hears(store: Store) -> None:
    """All that a replica says reaches the next one that beats; the own beat is just now."""

    async def body(client: Client) -> None:
        assert Reading({"a": (0, A)}, {}) == await beaten(client, A)

        reading = await beaten(client, B)

        assert {"a": A, "b": B} == told(reading)
        assert (0, 0) == (reading.beats["b"][0], reading.damaged)
        assert 0 <= reading.beats["a"][0] < TIMES["forget_ms"]
        assert 0 < store.look.pttl(KEY) <= TIMES["retain_ms"]

    with_client(store, body)


def test_the_latest_beat_stands(store: Store) -> None:
    """Of one name, whichever process it is."""

    async def body(client: Client) -> None:
        await beaten(client, B)
        again = Member(name="b", process="2", leaving=True)
        await beaten(client, again)

        assert {"a": A, "b": again} == told(await beaten(client, A))

    with_client(store, body)


def test_silence_is_told_by_the_servers_clock(store: Store) -> None:
    """In milliseconds; a beat that was sent again counts anew."""

    async def body(client: Client) -> None:
        await beaten(client, B)
        set_back(store, "b", 20_000)
        assert (await beaten(client, A)).beats["b"][0] >= 20_000

        await beaten(client, B)

        assert (await beaten(client, A)).beats["b"][0] < 20_000

    with_client(store, body)


def test_who_is_silent_for_long_is_taken_out(store: Store) -> None:
    """Its drain mark, too; others stay."""

    async def body(client: Client) -> None:
        for name in ("b", "c"):
            await beaten(client, Member(name=name, process="1"))
            await mark_drain(client, KEY, name, "1", TIMES["retain_ms"])
        set_back(store, "b", TIMES["forget_ms"] + 1)
        set_back(store, "c", TIMES["forget_ms"] - 30_000)

        reading = await beaten(client, A)

        assert ({"a", "c"}, {"c": "1"}) == (set(reading.beats), reading.drains)
        assert {b"b:a", b"b:c", b"d:c"} == set(store.look.hkeys(KEY))

    with_client(store, body)


def test_a_beat_from_the_future_counts_from_now(store: Store) -> None:
    """The server's clock was set back: else who is dead would seem to live until the clock is there again."""

    async def body(client: Client) -> None:
        await beaten(client, B)
        set_back(store, "b", -HOUR_MS)

        assert (0, B) == (await beaten(client, A)).beats["b"]
        set_back(store, "b", 5_000)
        age_ms, _ = (await beaten(client, A)).beats["b"]

        assert 5_000 <= age_ms < HOUR_MS

    with_client(store, body)


def test_a_mark_is_seen_by_all_until_it_is_lifted(store: Store) -> None:
    """It names the process; marking or lifting again does no harm."""

    async def body(client: Client) -> None:
        await beaten(client, B)
        for _ in range(2):
            await mark_drain(client, KEY, "b", "1", TIMES["retain_ms"])
            assert {"b": "1"} == (await beaten(client, A)).drains

        for _ in range(2):
            await lift_drain(client, KEY, "b")
            assert {} == (await beaten(client, A)).drains

    with_client(store, body)


def test_a_mark_in_an_empty_store_does_not_last(store: Store) -> None:
    """It expires like all; and nobody of that name is there whom it could mean."""

    async def body(client: Client) -> None:
        await mark_drain(client, KEY, "b", "1", TIMES["retain_ms"])
        assert 0 < store.look.pttl(KEY) <= TIMES["retain_ms"]

        assert {} == (await beaten(client, A)).drains
        assert {b"b:a"} == set(store.look.hkeys(KEY))

    with_client(store, body)


def test_a_mark_names_a_process(store: Store) -> None:
    """An empty one would lift the mark."""

    async def body(client: Client) -> None:
        with pytest.raises(ValueError, match="process"):
            await mark_drain(client, KEY, "b", "", TIMES["retain_ms"])

    with_client(store, body)


NOW: Final = b"9" * 13
DAMAGED: Final = {
    "no time": b"|" + pack_member(B),
    "no bar": b"1",
    "a time that is none": b"x|" + pack_member(B),
    "a huge time": b"9" * 30 + b"|" + pack_member(B),
    "nothing said": NOW + b"|",
    "nonsense": NOW + b"|\xc1",
    "another's": NOW + b"|" + pack_member(A),
    "another shape": NOW + b"|" + b"\x91\x01",
}


@pytest.mark.parametrize("value", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_beat_is_counted_and_left_out(store: Store, value: bytes) -> None:
    """Others are heard all the same, and the next beat of that replica, too."""

    async def body(client: Client) -> None:
        await beaten(client, Member(name="c", process="1"))
        store.look.hset(KEY, "b:b", value)

        reading = await beaten(client, A)
        assert (1, {"a", "c"}) == (reading.damaged, set(reading.beats))
        await beaten(client, B)

        reading = await beaten(client, A)
        assert (0, B) == (reading.damaged, told(reading)["b"])

    with_client(store, body)


@pytest.mark.parametrize("field", [b"b:\xff", b"d:b"])
def test_names_that_are_no_text_are_counted(store: Store, field: bytes) -> None:
    """Somebody else wrote into the hash."""

    async def body(client: Client) -> None:
        await beaten(client, B)
        store.look.hset(KEY, field, NOW + b"|\xff")

        reading = await beaten(client, A)

        assert (1, {"a", "b"}, {}) == (reading.damaged, set(reading.beats), reading.drains)

    with_client(store, body)


def test_what_other_versions_say_is_passed_over(store: Store) -> None:
    """A field of the hash, and a fact in a beat, that this one does not know: neither is damage, and both stay."""

    async def body(client: Client) -> None:
        await beaten(client, B)
        at, _, _ = store.look.hget(KEY, "b:b").partition(b"|")
        later = b"\x83\xa4name\xa1b\xa7process\xa11\xa4more\x07"
        store.look.hset(KEY, mapping={"b:b": at + b"|" + later, "z:b": "1"})

        reading = await beaten(client, A)

        assert (0, B) == (reading.damaged, told(reading)["b"])
        assert b"1" == store.look.hget(KEY, "z:b")

    with_client(store, body)


CALLS: Final[dict[str, Callable[[Client], Awaitable[Any]]]] = {
    "beat": lambda client: beaten(client, A),
    "mark_drain": lambda client: mark_drain(client, KEY, "b", "1", 60_000),
    "lift_drain": lambda client: lift_drain(client, KEY, "b"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_key_of_another_type_is_told(store: Store, call: Callable[[Client], Awaitable[Any]]) -> None:
    """And left alone."""
    store.look.rpush(KEY, "x")
    store.look.pexpire(KEY, 60_000)

    async def body(client: Client) -> None:
        with pytest.raises(StoreFailure, match=WRONG_TYPE):
            await call(client)
        assert [b"x"] == content(store.look, KEY)

    with_client(store, body)


def test_members_come_to_the_same_from_the_store(store: Store) -> None:
    """Each hears with its own beat; who drains, leaves or only looks things up is no candidate for anybody."""

    async def body(client: Client) -> None:
        replicas = [
            A,
            B,
            Member(name="c", process="1", collects=False),
            Member(name="d", process="1", leaving=True),
            Member(name="e", process="1"),
        ]
        for each in replicas:
            await beaten(client, each)
        await mark_drain(client, KEY, "e", "1", TIMES["retain_ms"])

        for each in replicas:
            members = Members(each.name, timeout_s=60.0)
            members.heard(await beaten(client, each), 100.0)
            assert {"a", "b", "c", "e"} == set(members.live(100.0))
            assert {"a", "b"} == members.candidates(100.0)
            assert members.is_judging(100.0)

    with_client(store, body)


def test_who_runs_is_told_without_a_beat(store: Store) -> None:
    """Not who leaves, nor what is no beat of ours; who cannot be understood runs."""

    async def body(client: Client) -> None:
        assert {} == await who_runs(client, KEY)
        await beaten(client, A)
        await beaten(client, B)
        await beaten(client, Member(name="c", process="1", leaving=True))
        await mark_drain(client, KEY, "a", "1", TIMES["retain_ms"])
        set_back(store, "b", HOUR_MS)
        store.look.hset(KEY, mapping={"b:d": store.look.hget(KEY, "b:a"), "b:e": b"-3|x", "b:f": b"", "b:g": b"7"})

        found = await who_runs(client, KEY)

        assert {"a", "b", "d"} == found.keys()
        assert HOUR_MS // 2 > found["a"]
        assert HOUR_MS // 2 < found["b"]
        store.look.unlink(KEY)
        store.look.set(KEY, b"x", px=TIMES["retain_ms"])
        assert {} == await who_runs(client, KEY)

    with_client(store, body)
