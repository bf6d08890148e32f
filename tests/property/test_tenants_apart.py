"""Two tenants in one service: whatever one does, the other sees what it would see alone.

The same history is played twice, the second time without what the neighbour did. Everything that a caller bound to the
one tenant can ask is asked after every step, and must be answered alike: lookups of every kind, lists, histories,
blocks, and commands, also those that name the neighbour's pods, aliases, models and adapters.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.errors import IndexerError, SourceConflictError
from indexer.model import Descriptor, RawBatch, SourceId
from indexer.node import Node
from indexer.settings.sections import Limits, Models, Settings
from schemas.lookup import LookupQuery
from tests.support.core import ManualClock
from tests.support.core_events import BLOCK, CLEARED, payload, prompt, removed, stored, u32

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

OURS: Final = "x"
PODS: Final = {"x": ("x-1", "x-2"), "y": ("y-1", "y-2")}
MODELS: Final = ("m", "n", "y-only")
ALIASES: Final = {"fast": "m", "y-fast": "y-only"}
What = Literal["add", "remove", "clear", "cordon", "put", "hold", "drop", "empty", "jump"]


class Step(NamedTuple):
    """One thing that happens on a tenant's side. `pod` and `number` mean what `what` needs."""

    tenant: str
    what: What
    pod: int
    number: int


_STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["x", "y"]),
        st.sampled_from(What.__args__),  # type: ignore[attr-defined]
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    max_size=14,
)


class World:
    """A service in which things happen."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        settings = Settings(models=Models(aliases=ALIASES), limits=Limits(max_clears_per_minute=10_000))
        self.node = Node(settings, self.clock)
        self.sequences: dict[SourceId, int] = {}

    async def do(self, step: Step) -> object:
        """What the step's own tenant is told."""
        node, pod = self.node, PODS[step.tenant][step.pod]
        told = {"tenant": step.tenant}
        match step.what:
            case "add":
                return await _told(node.add_source(_descriptor(step.tenant, step.pod, step.number)))
            case "remove":
                return await _told(node.remove_source(pod, None, **told))
            case "clear":
                return await _told(node.clear_source(pod, None, **told))
            case "cordon":
                return await _told(node.cordon_source(pod, None, cordoned=step.number % 2 == 0, **told))
            case "put":
                wanted = [_descriptor(step.tenant, place, step.number) for place in range(step.pod + 1)]
                return await _told(node.replace_api_sources(wanted if step.number else [], **told))
            case _:
                self._say(SourceId(pod, 0), step)
                return None

    def _say(self, source: SourceId, step: Step) -> None:
        sink = self.node.roster.sink(source)
        if sink is None:
            return
        blocks = step.number + 1
        if step.what == "hold":
            hashes = [100 + block for block in range(blocks)]
            said: object = stored(hashes, prompt(blocks), lora_name=f"{step.tenant}-lora" if step.pod else None)
        elif step.what == "drop":
            said = removed(100 + step.number)
        else:
            said = CLEARED
        sequence = self.sequences.get(source, -1) + (2 if step.what == "jump" else 1)
        self.sequences[source] = sequence
        sink.apply(RawBatch(b"", sequence, payload(said)))

    async def observed(self) -> list[object]:
        """Everything that a caller bound to our tenant can come to know."""
        return [
            *[self._asked(query) for query in _questions()],
            await _told(self.node.source_views(tenant=OURS)),
            *[await _told(ask) for pod in _names() for ask in self._of_pod(pod)],
        ]

    def _asked(self, query: LookupQuery) -> object:
        answer = self.node.lookup(msgspec.structs.replace(query, tenant=OURS), encoding="json")
        plain = msgspec.json.decode(msgspec.json.encode(answer))
        return {key: value for key, value in plain.items() if key != "took_us"}

    def _of_pod(self, pod: str) -> Iterator[Awaitable[object]]:
        node = self.node
        yield node.source_views(tenant=OURS, after=(pod, -1), limit=1)
        yield self._history(pod)
        yield node.find_block(pod, None, 100, tenant=OURS)
        if pod not in PODS[OURS]:
            yield node.remove_source(pod, None, tenant=OURS)
            yield node.clear_source(pod, None, tenant=OURS)
            yield node.cordon_source(pod, 0, cordoned=True, tenant=OURS)

    async def _history(self, pod: str) -> object:
        told = await self.node.source_history(pod, None, limit=3, after=None, tenant=OURS)
        return msgspec.structs.replace(told, next=None if told.next is None else "more")  # numbers are the process's

    async def end(self) -> None:
        """Give sockets back."""
        stop = asyncio.Event()
        stop.set()
        await self.node.run(stop)


def _descriptor(tenant: str, pod: int, number: int) -> Descriptor:
    """The second pod of the neighbour shares an endpoint with ours, as a mistake would have it."""
    name = PODS[tenant][pod]
    model = {"x": ("m", "n", "m", None), "y": (*MODELS, None)}[tenant][number]
    return Descriptor(
        pod=name,
        endpoint="tcp://127.0.0.1:1" if pod else f"tcp://127.0.0.1:{number + 2}",
        model=model,
        tenant=tenant,
        aliases=(f"{name}-alias",),
        origin="api",
    )


def _names() -> list[str]:
    return [name for pods in PODS.values() for pod in pods for name in (pod, f"{pod}-alias")] + ["nobody"]


def _questions() -> Iterator[LookupQuery]:
    tokens = u32(prompt(4))
    for model in (None, *MODELS, *ALIASES, "x-lora", "y-lora", "y-onl", "fas"):
        yield LookupQuery(tokens=tokens, model=model, request_id="r")
    yield LookupQuery(tokens=tokens, pods=tuple(_names()), request_id="r")
    yield LookupQuery(tokens=tokens, pods=("y-1", "y-2-alias"), request_id="r")
    yield LookupQuery(tokens=tokens, lora_name="y-lora", group="pod", request_id="r")
    yield LookupQuery(tokens=tokens, min_sequence={"y-1": 0, "x-1": 0}, request_id="r")
    yield LookupQuery(block_hashes=[1, 2], block_size=BLOCK, request_id="r")


async def _told(ask: Awaitable[object]) -> Any:  # noqa: ANN401 - plain values
    """The answer, or the refusal, as plain values."""
    try:
        return msgspec.to_builtins(await ask)
    except IndexerError as error:
        return type(error).__name__, str(error)


async def _played(steps: Sequence[Step], *, alone: bool) -> list[object]:
    world, seen = World(), []
    try:
        for step in steps:
            world.clock.at += 1.0
            if alone and step.tenant != OURS:
                continue
            told = await world.do(step)
            if step.tenant == OURS:
                seen.append(told)
                seen += await world.observed()
        seen += await world.observed()
    finally:
        await world.end()
    return seen


@given(_STEPS)
def test_a_tenant_sees_what_it_would_see_alone(steps: list[Step]) -> None:
    """Also where both hold the same blocks of the same prompts, and serve models of one name."""
    assert asyncio.run(_played(steps, alone=True)) == asyncio.run(_played(steps, alone=False))


@pytest.mark.parametrize(
    "clash",
    [
        {"pod": "y-1"},
        {"pod": "y-1", "dp_rank": 1},
        {"pod": "x-9", "aliases": ("y-1",)},
        {"pod": "x-9", "aliases": ("http://Y-1-alias/",)},
        {"pod": "x-9", "address": "10.0.0.1:8000"},
        {"pod": "y-1-alias"},
    ],
)
def test_a_name_that_the_neighbour_has_is_taken_and_no_more_is_told(clash: dict[str, Any]) -> None:
    """Names are unique over all tenants; whose it is, where it is and what it is called there stays untold."""

    async def register() -> list[str]:
        world = World()
        neighbours = Descriptor(
            pod="y-1", endpoint="tcp://secret:1", tenant="y", aliases=("y-1-alias",), address="10.0.0.1:8000"
        )
        await world.node.add_source(neighbours)
        told = []
        wanted = Descriptor(**{"endpoint": "tcp://127.0.0.1:9", "tenant": "x", "origin": "api", **clash})
        for attempt in (world.node.add_source(wanted), world.node.replace_api_sources([wanted], tenant="x")):
            with contextlib.suppress(IndexerError):
                await attempt
                told.append("done")
        try:
            await world.node.add_source(wanted)
        except SourceConflictError as error:
            told.append(str(error))
        await world.end()
        return told

    (told,) = asyncio.run(register())
    assert told.endswith(": the name is taken by a source of another tenant")
    assert "y-1" not in told
    assert "secret" not in told
