"""Facts in, findings out; and of every check every outcome that the table of checks knows is made to happen."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pytest

from indexer.doctor.checks import CHECKS, Finding
from indexer.doctor.facts import (
    DiscoverySeen,
    Engine,
    EngineHttp,
    EventsConfig,
    First,
    Heard,
    Partitions,
    PartitionSeen,
    PodsSeen,
    Probed,
    Replayed,
    ReplicaSeen,
    ServerSeen,
    ServiceSeen,
    StoreSeen,
)
from indexer.doctor.judging.endpoints import Need, judge_endpoints
from indexer.doctor.judging.engines import judge_engine
from indexer.doctor.judging.kubernetes import judge_pods
from indexer.doctor.judging.service import judge_replicas, judge_service
from indexer.doctor.judging.settings import Effective, judge_files, judge_settings, judge_start
from indexer.doctor.judging.sources import judge_followed, judge_sources, judge_states
from indexer.doctor.judging.store import judge_store
from indexer.doctor.judging.unknowable import what_nobody_knows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Facts = TypeVar("Facts", bound=msgspec.Struct)
NOW_S: Final = 1_700_000_000.0
NEED: Final = Need(15.0, "lease 10 s and takeover")
ENGINE: Final = Engine(
    pod="10.0.0.1:8000",
    endpoint="tcp://10.0.0.1:5557",
    replay_endpoint="tcp://10.0.0.1:6557",
    model="m",
    blocks_total=500,
    state="live",
    bound="exact",
    block_size=16,
)
HEARD: Final = Heard(
    connected=True,
    listened_s=3.0,
    batches=6,
    topics=Counter({b"": 6}),
    ranks={0},
    block_sizes=Counter({16: 6}),
    skew_s=0.1,
    first=First(90, NOW_S - 3, NOW_S - 3),
    last=First(95, NOW_S, NOW_S),
)
REPLAYED: Final = Replayed(connected=True, answers=True, oldest=First(0, NOW_S - 60, NOW_S - 60), same=True)
PROBED: Final = Probed(heard=HEARD, replayed=REPLAYED)
HTTP: Final = EngineHttp(
    version="0.33.0",
    block_size=16,
    num_gpu_blocks=500,
    prefix_caching=True,
    load=(3.0, 1.0),
    models=("m",),
    events=EventsConfig(enabled=True, replay_endpoint="tcp://*:6557", buffer_steps=10_000),
)
SERVER: Final = ServerSeen(version="8.1.0", used_bytes=10, limit_bytes=100, append_only=True, saves=False)
STORE: Final = StoreSeen(
    place="standalone 10.0.0.9:6379",
    servers=(SERVER,),
    clock_skew_s=0.0,
    round_trip_ms=0.4,
    agreed={"scheme": "kvi1", "partitions": "16", "secret": "abc"},
)
SERVICE: Final = ServiceSeen(
    url="http://10.0.0.8:8080", version="1", clock_skew_s=0.0, ready=True, limits_reached={"limits.body_bytes": 0}
)
PARTITION: Final = PartitionSeen(partition=0, role="owner", state="live", owner="a", standby="b")
PARTITIONS: Final = Partitions(
    mode="redis",
    partitions=(PARTITION,),
    replicas=(ReplicaSeen(name="a", state="live"), ReplicaSeen(name="b", state="live")),
)
WANTED: Final = {"scheme": "kvi1", "partitions": "16"}


def but(facts: Facts, **changed: object) -> Facts:
    """The same facts, in which something is otherwise."""
    return msgspec.structs.replace(facts, **changed)


def sources(*engines: Engine, bound: bool = False) -> list[Finding]:
    """Of registrations."""
    return list(judge_sources(engines, bound=bound))


def states(**changed: object) -> list[Finding]:
    """Of a source that is otherwise as it should be."""
    return list(judge_states([but(ENGINE, **changed)], {}))


def endpoint(engine: Engine = ENGINE, **changed: object) -> list[Finding]:
    """Of its endpoints."""
    return list(judge_endpoints(engine, but(PROBED, **changed), NEED, NOW_S))


def heard(engine: Engine = ENGINE, **changed: object) -> list[Finding]:
    """Of what was heard."""
    return endpoint(engine, heard=but(HEARD, **changed))


def replayed(*, live: Heard | None = HEARD, **changed: object) -> list[Finding]:
    """Of what replay answered."""
    return endpoint(replayed=but(REPLAYED, **changed), heard=live)


def oldest(seconds: float) -> First:
    """A batch of so long ago."""
    return First(7, NOW_S - seconds, NOW_S - seconds)


def http(engine: Engine = ENGINE, **changed: object) -> list[Finding]:
    """Of what the engine says of itself."""
    return list(judge_engine(engine, but(HTTP, **changed), None))


def server(**changed: object) -> list[Finding]:
    """Of one server of the store."""
    return store(servers=(but(SERVER, **changed),))


def pods(**seen: object) -> list[Finding]:
    """Of a cluster where two are found."""
    facts = {"place": "https://10.96.0.1:443", "pods": 2, "sources": 2, "not_ready": 1, **seen}
    return list(judge_pods(PodsSeen(**facts)))  # type: ignore[arg-type]


def store(**changed: object) -> list[Finding]:
    """Of the store."""
    return list(judge_store(but(STORE, **changed), WANTED, 500))


def service(**changed: object) -> list[Finding]:
    """Of a service."""
    return list(judge_service(but(SERVICE, **changed), "1"))


def replicas(**changed: object) -> list[Finding]:
    """Of its replicas."""
    return list(judge_replicas(but(PARTITIONS, **changed)))


def partition(**changed: object) -> list[Finding]:
    """Of one partition."""
    return replicas(partitions=(but(PARTITION, **changed),))


def settings(effective: Effective | None, *remarks: str, count: int = 1) -> list[Finding]:
    """Of settings."""
    return list(judge_settings(effective, remarks, count))


OTHER: Final = but(ENGINE, pod="10.0.0.2:8000", endpoint="tcp://10.0.0.2:5557", replay_endpoint="tcp://10.0.0.2:6557")
Made = tuple[str, str, "Callable[[], Iterable[Finding]]"]
MADE: Final[tuple[Made, ...]] = (
    ("service.reachable", "problem", partial(service, trouble="cannot be reached")),
    (
        "service.access",
        "problem",
        partial(service, refused={"/v1/config": "401 token.missing"}, shut=frozenset({"/v1/config"})),
    ),
    ("service.access", "unknown", partial(service, refused={"/v1/config": "403 scope.missing"})),
    ("service.ready", "warning", partial(service, ready=False)),
    ("service.version", "warning", partial(service, version="2")),
    ("service.clock", "warning", partial(service, clock_skew_s=-9.0)),
    ("service.clock", "unknown", partial(service, clock_skew_s=None)),
    ("service.discovery", "ok", partial(service, discovery=DiscoverySeen(watching=False))),
    ("service.discovery", "ok", partial(service, discovery=DiscoverySeen(watching=True, heard_age_s={"dns": 9.0}))),
    ("service.discovery", "warning", partial(service, discovery=DiscoverySeen(watching=True, waiting=2))),
    (
        "service.discovery",
        "warning",
        partial(service, discovery=DiscoverySeen(watching=True, heard_age_s={"kubernetes": 900.0})),
    ),
    ("service.limits", "warning", partial(service, limits_reached={"limits.body_bytes": 2})),
    ("service.limits", "unknown", partial(service, limits_reached=None)),
    ("settings.known", "unknown", partial(settings, None)),
    ("settings.valid", "problem", lambda: judge_start(["auth.tokens_file: no such file"])),
    ("settings.valid", "ok", lambda: judge_start([])),
    ("settings.remarks", "warning", partial(settings, Effective(), "compat.anonymous does nothing")),
    ("settings.sources_limit", "warning", partial(settings, Effective(sources_max=10), count=10)),
    ("settings.open_files", "problem", lambda: [judge_files(1_024, 1_512, 100)]),
    ("settings.open_files", "ok", lambda: [judge_files(float("inf"), 1_512, 100)]),
    ("sources.any", "warning", sources),
    ("sources.followed", "warning", lambda: list(judge_followed(("m", "other"), [ENGINE]))),
    ("sources.followed", "ok", lambda: list(judge_followed(("m",), [ENGINE]))),
    ("sources.model", "problem", partial(sources, ENGINE, but(OTHER, model=None))),
    ("sources.model", "warning", partial(sources, but(ENGINE, model=None))),
    ("sources.replay", "warning", partial(sources, but(ENGINE, replay_endpoint=None))),
    ("sources.capacity", "warning", partial(sources, but(ENGINE, blocks_total=None))),
    ("sources.capacity", "warning", partial(sources, but(ENGINE, blocks={"gpu": 501}))),
    ("sources.endpoint_form", "problem", partial(sources, but(ENGINE, endpoint="tcp://0.0.0.0:5557"))),
    ("sources.endpoint_form", "warning", partial(sources, ENGINE, but(OTHER, endpoint="tcp://localhost:5557"))),
    ("sources.endpoint_shared", "problem", partial(sources, ENGINE, but(OTHER, endpoint="tcp://10.0.0.1:5557"))),
    ("sources.endpoint_shared", "problem", partial(sources, but(ENGINE, replay_endpoint="tcp://10.0.0.1:5557"))),
    ("sources.names", "unknown", partial(sources, but(ENGINE, pod="pod-a"))),
    ("sources.state", "warning", partial(states, state="suspect", bound="estimate", why="a gap")),
    ("sources.state", "warning", partial(states, cordoned=True)),
    ("sources.state", "problem", partial(states, state="down")),
    ("sources.losses", "warning", partial(states, counters={"gaps": 2})),
    ("sources.remarks", "warning", partial(states, warnings=("never connected: check the address",))),
    ("endpoint.reachable", "problem", partial(endpoint, no_route="connection refused")),
    ("endpoint.reachable", "unknown", partial(endpoint, skipped="it is on another machine")),
    ("endpoint.reachable", "unknown", partial(endpoint, heard=None)),
    ("endpoint.handshake", "problem", partial(heard, connected=False, refused=True)),
    ("endpoint.handshake", "problem", partial(heard, connected=False, is_replay=True)),
    ("endpoint.events", "unknown", partial(heard, batches=0)),
    ("endpoint.messages", "problem", partial(heard, malformed=3)),
    ("endpoint.topic", "warning", partial(heard, topics=Counter({b"a": 1, b"b": 1}))),
    ("endpoint.topic", "warning", partial(heard, topics=Counter({b"kv@10.0.0.1:8000@other": 1}))),
    ("endpoint.rank", "warning", partial(heard, ranks={0, 1})),
    ("endpoint.losses", "warning", partial(heard, missing=2)),
    ("endpoint.clock", "warning", partial(heard, skew_s=60.0)),
    ("replay.reachable", "problem", partial(endpoint, replay_no_route="connection refused")),
    ("replay.answers", "problem", partial(replayed, answers=False)),
    ("replay.same_engine", "problem", partial(replayed, same=False)),
    ("replay.same_engine", "unknown", partial(replayed, same=None)),
    ("replay.reach", "problem", partial(replayed, oldest=oldest(14))),
    ("replay.reach", "warning", partial(replayed, oldest=oldest(29))),
    ("replay.reach", "unknown", partial(replayed, oldest=None)),
    ("replay.reach", "unknown", partial(replayed, live=None, oldest=First(7, None, -1.0))),
    ("engine.reachable", "warning", partial(http, trouble="no HTTP server answers there")),
    ("engine.reachable", "unknown", lambda: judge_engine(ENGINE, None, None)),
    ("engine.version", "warning", partial(http, version="0.32.1")),
    ("engine.version", "unknown", partial(http, version=None)),
    ("engine.prefix_caching", "problem", partial(http, prefix_caching=False)),
    ("engine.prefix_caching", "unknown", partial(http, prefix_caching=None)),
    ("engine.load", "warning", partial(http, load=None)),
    ("engine.block_size", "warning", partial(http, block_size=32)),
    ("engine.block_size", "unknown", partial(http, block_size=None)),
    ("engine.capacity", "warning", partial(http, num_gpu_blocks=501)),
    ("engine.capacity", "unknown", partial(http, num_gpu_blocks=None)),
    ("engine.model", "warning", partial(http, models=("other",))),
    ("engine.model", "unknown", partial(http, models=None)),
    ("engine.events", "problem", partial(http, events=EventsConfig(enabled=False))),
    ("engine.events", "warning", partial(http, events=EventsConfig(enabled=True))),
    ("engine.events", "unknown", partial(http, events=None)),
    ("kubernetes.reachable", "problem", partial(pods, trouble="connection refused")),
    ("kubernetes.reachable", "unknown", partial(pods, elsewhere="this is no pod of the cluster")),
    ("kubernetes.permitted", "problem", partial(pods, refused="status 403 (Forbidden): grant it")),
    ("kubernetes.pods", "warning", partial(pods, pods=0)),
    ("kubernetes.sources", "warning", partial(pods, remarks={"serving/a": "several of its containers publish"})),
    ("store.reachable", "problem", partial(store, trouble="the store: no connection, or it broke")),
    ("store.fit", "problem", partial(store, unfit="maxmemory-policy is allkeys-lru: set it to noeviction")),
    ("store.memory", "warning", partial(server, used_bytes=80)),
    ("store.memory", "problem", partial(server, used_bytes=95)),
    ("store.memory", "problem", partial(server, used_bytes=95, limit_bytes=0, machine_bytes=100)),
    ("store.evicted", "problem", partial(server, evicted=1)),
    ("store.persistence", "warning", partial(server, append_only=False)),
    ("store.persistence", "problem", partial(server, write_failed=True)),
    ("store.clock", "warning", partial(store, clock_skew_s=2.0)),
    ("store.latency", "warning", partial(store, round_trip_ms=200.0)),
    ("store.layout", "problem", partial(store, agreed={"scheme": "kvi1", "partitions": "8"})),
    ("store.layout", "unknown", partial(store, agreed={})),
    ("partitions.store", "problem", partial(replicas, trouble="the store: no answer within the deadline")),
    ("partitions.owned", "problem", partial(partition, owner=None)),
    ("partitions.state", "warning", partial(partition, state="loading")),
    ("partitions.standby", "warning", partial(partition, standby=None)),
    ("replicas.live", "warning", partial(replicas, replicas=(ReplicaSeen(name="a", state="silent"),))),
    ("unknowable.idle_reset", "unknown", lambda: what_nobody_knows([ENGINE])),
    ("unknowable.full_reports", "unknown", lambda: what_nobody_knows([ENGINE])),
    ("unknowable.last_message", "unknown", lambda: what_nobody_knows([but(ENGINE, replay_endpoint=None)])),
)
WELL: Final = [
    *service(),
    *settings(Effective()),
    *sources(ENGINE, OTHER),
    *states(),
    *endpoint(),
    *http(),
    *pods(),
    *store(),
    *replicas(),
]
"""Of a deployment in which nothing is wrong."""
OF_A_STORE_ELSEWHERE: Final = ("store.reachable", "unknown")
"""Found by the command itself, which knows what it may reach: tests/e2e/doctor/test_command.py."""


@pytest.mark.parametrize(("check", "level", "make"), [pytest.param(*each, id=f"{each[0]} {each[1]}") for each in MADE])
def test_it_is_found(check: str, level: str, make: Callable[[], Iterable[Finding]]) -> None:
    """With what it means and, unless it is well, what to do where there is anything to do."""
    (finding,) = [each for each in make() if each.check == check and each.level == level]

    assert bool(finding.means) == (level != "ok")
    assert finding.do or level in {"ok", "unknown"}


def test_a_name_is_no_address_unless_that_is_said() -> None:
    """It may be that of a machine which has nothing to do with it."""
    named, other = but(ENGINE, pod="10.0.0.1:8000", address=None), but(ENGINE, pod="pod-a", address=None)

    assert (None, "10.0.0.1:8000") == (named.address, named.at_its_name().address)
    assert (None, "10.0.0.9:1") == (
        other.at_its_name().address,
        but(named, address="10.0.0.9:1").at_its_name().address,
    )


def test_every_outcome_of_every_check_happens_above() -> None:
    """From the table: who adds one adds what makes it happen."""
    made = {(check, level) for check, level, _ in MADE} | {(each.check, each.level) for each in WELL}
    known = {(check, level) for check, entry in CHECKS.items() for level in entry.levels}

    assert known == made | {OF_A_STORE_ELSEWHERE}


def test_where_nothing_is_wrong_nothing_is_found() -> None:
    """All is ok."""
    assert [] == [each for each in WELL if each.level != "ok"]


def test_sources_that_connect_need_no_names() -> None:
    """An empty list is right where engines come by their topics."""
    assert ["ok"] == [each.level for each in sources(bound=True)]


def test_one_without_model_is_judged_among_its_tenants() -> None:
    """Models of another tenant's engines do not matter."""
    found = sources(but(ENGINE, model=None), but(OTHER, tenant="b"))

    assert {"10.0.0.1:8000": "warning", "10.0.0.2:8000": "ok"} == {
        each.subject: each.level for each in found if each.check == "sources.model"
    }


def test_of_one_that_announces_nothing_no_replay_and_no_capacity_is_wanted() -> None:
    """Registered without an endpoint, or seen by a service to be followed by hints alone; that is no warning either."""
    alone = but(ENGINE, endpoint=None, replay_endpoint=None, blocks_total=None, bound="estimate", sequence=None)
    silent = but(alone, endpoint="tcp://10.0.0.1:5557")
    topic = but(alone, origin="topic", bound="exact", sequence=7)

    for engine, warned in ((alone, set()), (silent, set()), (topic, {"sources.capacity"})):
        found = [*sources(engine), *judge_states([engine], {}), *what_nobody_knows([engine])]
        assert warned == {each.check for each in found if each.level == "warning"}
        assert ("unknowable.last_message" in {each.check for each in found}) == bool(warned)


def test_what_the_service_remarks_is_told_once() -> None:
    """Remarks on what checks of their own tell are left out."""
    found = states(warnings=("no replay endpoint: lost batches", "capacity unknown (blocks_total)"))

    assert ["ok"] == [each.level for each in found if each.check == "sources.remarks"]


def reach(probed: Probed) -> Finding:
    """How far replay reaches."""
    (found,) = [each for each in judge_endpoints(ENGINE, probed, NEED, NOW_S) if each.check == "replay.reach"]
    return found


def test_reach_is_measured_on_the_engines_own_clock() -> None:
    """From its oldest batch to its newest, however far off its clock is; to now where it is idle."""
    ahead = but(HEARD, batches=2, last=First(95, NOW_S + 1_000, NOW_S + 1_000))
    busy = reach(but(PROBED, heard=ahead, replayed=but(REPLAYED, oldest=First(7, NOW_S + 986, 0.0))))
    idle = reach(but(PROBED, heard=None, replayed=but(REPLAYED, oldest=oldest(100))))

    assert ("problem", "ok") == (busy.level, idle.level)
    assert "back to batch 7, 14 s; 15 s are needed (lease 10 s and takeover)" == busy.seen


def test_reach_is_what_lasts_at_the_pace_of_now() -> None:
    """Though the oldest batch is hours old: 100 batches, 10 a second, are 10 s."""
    working = but(HEARD, batches=30, last=First(106, NOW_S, NOW_S))
    told = reach(but(PROBED, heard=working, replayed=but(REPLAYED, oldest=oldest(7_200))))

    assert ("problem", "back to batch 7, 10 s at 10 batches a second; 15 s are needed (lease 10 s and takeover)") == (
        told.level,
        told.seen,
    )


def test_reach_before_anything_is_gone() -> None:
    """By what the engine says that it keeps, else vLLM's default; of a few batches no pace is told."""
    fast = but(HEARD, batches=3_000)
    said = but(HTTP, events=EventsConfig(enabled=True, buffer_steps=20_000))
    unknown = reach(but(PROBED, heard=fast))
    known = reach(but(PROBED, heard=fast, http=said))
    quiet = reach(but(PROBED, heard=but(HEARD, batches=4)))

    assert ("problem", "warning", "ok") == (unknown.level, known.level, quiet.level)
    assert "back to the engine's start, 10 s at 1000 batches a second" in unknown.seen
    assert "back to the engine's start" == quiet.seen


@pytest.mark.parametrize(
    ("effective", "seconds"),
    [(Effective(), 30.0), (Effective(store=True), 15.0), (Effective(store=True, lease_s=60), 65.0)],
)
def test_how_far_replay_must_reach(effective: Effective, seconds: float) -> None:
    """A restart without a store; with one a lease and what a takeover takes."""
    assert seconds == effective.need.seconds


def test_a_block_size_that_any_event_has_is_no_wonder() -> None:
    """Of several groups the metric shows one."""
    found = judge_engine(
        but(ENGINE, block_size=64), but(HTTP, block_size=16), but(HEARD, block_sizes=Counter({16: 1, 64: 1}))
    )

    assert ["ok"] == [each.level for each in found if each.check == "engine.block_size"]


@pytest.mark.parametrize("version", ["0.33.0", "1.0", "0.33.1.dev4+g12", "nightly", "0.x"])
def test_versions_that_replay_whole(version: str) -> None:
    """What cannot be read is not blamed."""
    assert ["ok"] == [each.level for each in http(version=version) if each.check == "engine.version"]


def test_memory_mode_has_no_partitions() -> None:
    """One line says what that means."""
    assert [("partitions.store", "ok")] == [(each.check, each.level) for each in replicas(mode="memory", partitions=())]


def test_a_secret_of_the_deployment_is_not_shown() -> None:
    """Nor its digest."""
    assert not any("abc" in each.seen for each in store())
