"""A source that drifts, as a replica sees that only follows it: the doubt is its owner's, and so everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from schemas.feedback import FeedbackReport
from schemas.lookup import LookupQuery
from tests.support.core_events import BLOCK, prompt, stored, u32
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

SAMPLES: Final = 3


async def two(store: Store, **settings: Any) -> tuple[Replica, Replica]:  # noqa: ANN401  any settings
    """One owns everything, one follows; both know what the engine holds."""
    settings |= {"feedback__drift_min_samples": SAMPLES}
    owner = await Replica(store.url, ("a",), **settings).start()
    mirror = await Replica(store.url, (), name="r2", server__roles=("lookup",), **settings).start()
    owner.say("a", stored([1, 2], prompt(2)))
    await mirror.until(lambda: 2 * BLOCK == mirror.ask(prompt(3), "a").matched_tokens)
    await mirror.until(
        lambda: ("live", "exact") == (mirror.ask(prompt(3), "a").state, mirror.ask(prompt(3), "a").bound)
    )
    return owner, mirror


def drift(replica: Replica) -> None:
    """So many answers of it turn out to be wrong."""
    for number in range(SAMPLES):
        replica.node.lookup(LookupQuery(tokens=u32(prompt(3)), request_id=f"r{number}"))
        report = FeedbackReport(pod="a", request_id=f"r{number}", cached_tokens=0, query=LookupQuery())
        assert "joined" == replica.node.take_feedback(report)


def happened(replica: Replica) -> list[tuple[str, str | None]]:
    """To the source, as the replica wrote it down."""
    key = replica.sink("a").source.descriptor.id
    told = sorted(replica.node.history.kept(key), key=lambda each: each.mark)
    return [(each.entry.happening.what, each.entry.happening.cause) for each in told]


def test_the_owner_doubts_what_a_follower_saw_drift(store: Store) -> None:
    """All know with its next tick; nothing is forgotten, and a clear ends it."""

    async def body() -> None:
        owner, mirror = await two(store)

        drift(mirror)

        for each in (owner, mirror):
            await each.until(lambda each=each: "suspect" == each.ask(prompt(3), "a").state)
            assert 2 * BLOCK == each.ask(prompt(3), "a").matched_tokens
        assert ("doubt", "drift") in happened(owner)
        await mirror.node.clear_source("a", None)
        owner.say("a", stored([1], prompt(1)))
        for each in (owner, mirror):
            await each.until(lambda each=each: "live" == each.ask(prompt(3), "a").state)
        await mirror.stop()
        await owner.stop()

    run(body)


def test_an_owner_doubts_by_itself_and_others_follow(store: Store) -> None:
    """Nothing is commanded."""

    async def body() -> None:
        owner, mirror = await two(store)

        drift(owner)

        for each in (owner, mirror):
            await each.until(lambda each=each: "suspect" == each.ask(prompt(3), "a").state)
        await mirror.stop()
        await owner.stop()

    run(body)


@pytest.mark.parametrize("at", ["owner", "mirror"])
def test_where_it_shall_everybody_forgets(store: Store, at: str) -> None:
    """A new generation for all, wherever it was seen."""

    async def body() -> None:
        owner, mirror = await two(store, feedback__drift_policy="clear")
        before = owner.sink("a").source.facts.generation

        drift(owner if at == "owner" else mirror)

        for each in (owner, mirror):
            await each.until(lambda each=each: 0 == each.ask(prompt(3), "a").matched_tokens)
            await each.until(lambda each=each: each.sink("a").source.facts.generation > before)
        await owner.until(lambda: ("clear", None) in happened(owner))
        await mirror.stop()
        await owner.stop()

    run(body)
