"""Discovery by replicas that are processes: who watches, dies, stands still and wakes up."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from indexer.sharding.rendezvous import share_out
from tests.support.many import Cluster, Member
from tests.support.redis_servers import own_server
from tests.support.serve_told import tell
from tests.support.telling import found

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from indexer.discovery.found import Found

NAMES = ("first", "second")
PARTITIONS = 3


class ToldMember(Member):
    """It reads a file."""

    module = "tests.support.serve_told"


class Told(Cluster):
    """Replicas that are told by files, each by its own."""

    member = ToldMember

    @property
    def watcher(self) -> str | None:
        """The one that says that it watches, of those that run."""
        watching = [name for name in self.running if self.replicas[name].metrics()["kvindexer_discovery_watching"]]
        return watching[0] if len(watching) == 1 else None

    def wait_watcher(self) -> str:
        """That one, once there is one: on a busy machine a lease may be over for a moment."""
        found: list[str] = []

        def look() -> bool:
            found[:] = filter(None, [self.watcher])
            return bool(found)

        self.wait_for(look, "one to watch")
        return found[0]

    def shows(self, pods: dict[str, bool], *names: str) -> bool:
        """Whether these, or all that run, know just these sources, and which of them are ready."""
        return all(
            pods == {pod: source["ready"] for pod, source in self.replicas[name].sources().items()}
            for name in names or self.running
        )


@contextmanager
def told(tmp_path: Path, **settings: str) -> Iterator[tuple[Told, Path]]:
    """Two replicas on a store of their own, settled."""
    folder = tmp_path / "told"
    folder.mkdir()
    with (
        own_server(tmp_path) as server,
        Told(server.port, (), partitions=PARTITIONS, names=NAMES, told_folder=str(folder), **settings) as cluster,
    ):
        cluster.wait_settled()
        cluster.wait_for(lambda: cluster.watcher == share_out(PARTITIONS, NAMES)[0].owner, "one to watch")
        yield cluster, folder


def everybody(folder: Path, those: Sequence[Found]) -> None:
    """Is told the same."""
    for name in NAMES:
        tell(folder, name, those)


def test_the_watcher_is_killed(tmp_path: Path) -> None:
    """The other one goes on from what stands."""
    with told(tmp_path) as (cluster, folder):
        everybody(folder, [found("a"), found("b")])
        cluster.wait_for(lambda: cluster.shows({"a": True, "b": True}), "both to be known everywhere")
        watcher = cluster.wait_watcher()
        everybody(folder, [found("a", ready=False, why="terminating"), found("c")])
        cluster.kill(watcher)
        cluster.wait_for(lambda: cluster.shows({"a": False, "c": True}), "what was told last")


def test_a_watcher_that_stood_still_writes_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    """What it was told is of the past. Whoever took over keeps the watch for a while, whatever the plan says."""
    with told(tmp_path, redis__min_hold_s="60") as (cluster, folder):
        everybody(folder, [found("a"), found("b")])
        cluster.wait_for(lambda: cluster.shows({"a": True, "b": True}), "both to be known everywhere")
        watcher = cluster.wait_watcher()
        (other,) = cluster.others(watcher)

        cluster.pause(watcher)
        tell(folder, watcher, [found("stale")])
        tell(folder, other, [found("b"), found("c")])
        cluster.wait_for(lambda: cluster.shows({"b": True, "c": True}), "the other one to take over")
        cluster.resume(watcher)

        cluster.wait_for(lambda: cluster.shows({"b": True, "c": True}), "the one that woke up to know")
        cluster.wait_for(lambda: cluster.watcher == other, "one to watch")
        tell(folder, other, [found("b")])
        cluster.wait_for(lambda: cluster.shows({"b": True}), "both to know")
        assert "stale" not in cluster.replicas[other].log()


def test_the_store_is_away(tmp_path: Path) -> None:
    """Nobody watches, and what is known is answered; when it is back the latest picture is written."""
    with told(tmp_path) as (cluster, folder):
        everybody(folder, [found("a")])
        cluster.wait_for(lambda: cluster.shows({"a": True}), "it to be known")
        cluster.set_ways("stall_requests")
        cluster.wait_for(
            lambda: (
                not any(cluster.replicas[name].metrics()["kvindexer_discovery_watching"] for name in cluster.running)
            ),
            "nobody to watch",
        )
        everybody(folder, [found("a", ready=False, why="late"), found("b")])
        assert cluster.shows({"a": True})
        cluster.set_ways("pass")
        cluster.wait_for(lambda: cluster.shows({"a": False, "b": True}), "what was told meanwhile")
