"""What only a real kube-apiserver and etcd can show: pages, bookmarks, revisions that are gone, tokens, roles, deaths.

`make test-discovery` runs them where one was built (`make kube-apiserver`), and says SKIPPED where not.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import os
import random
from typing import TYPE_CHECKING, Final

import pytest

from indexer.clock import SystemClock
from indexer.discovery.kubernetes.watch import PAGE_PODS, PodWatch
from indexer.settings.discovery import Kubernetes
from indexer.settings.in_cluster import Access
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.collecting import until
from tests.support.control_plane import ControlPlane
from tests.support.pods import pod
from tests.support.real_kube_api import RealApiServer, real_api_server
from tests.support.redis_servers import wait_for
from tests.support.watching import QUICK, SETTINGS, Seen, watching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from indexer.discovery.found import Picture
    from indexer.discovery.kubernetes.watch import Pace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PAGES: Final = 3
POD_ADDRESS: Final = "10.0.{}.{}"
DEADLINE_S: Final = 60.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One for all of these."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def api(plane: ControlPlane, tmp_path: Path) -> Iterator[RealApiServer]:
    """The server, without pods."""
    with real_api_server(plane, tmp_path) as server:
        yield server


def seen_by(api: RealApiServer, pace: Pace = QUICK) -> AbstractAsyncContextManager[Seen]:
    """A discoverer with the account of the service."""
    return watching(api.url, api.token_file, ca_file=api.ca_file, settings=SETTINGS, pace=pace)


def run_pods(cluster: Cluster, names: list[str]) -> None:
    """Pods that are ready, each at an address of its own."""
    for number, name in enumerate(names):
        cluster.run(name, POD_ADDRESS.format(number // 250, number % 250 + 1))


def test_a_list_of_several_pages(api: RealApiServer) -> None:
    """Out of one revision of etcd, though pods come and go between the pages; the watch goes on from there."""
    cluster = Cluster(api)
    names = [f"vllm-{number:03}" for number in range(PAGES * PAGE_PODS + 5)]
    run_pods(cluster, names)

    async def main() -> None:
        async with seen_by(api) as seen:
            await seen.until_names(*names)
            assert 1 == len(seen.pictures)
            await asyncio.to_thread(cluster.delete, names[0], 0)
            await asyncio.to_thread(cluster.run, "late", "10.0.9.9")
            await seen.until_names("late", *names[1:])
            assert not seen.discoverer.failures

    asyncio.run(main())


def test_a_life_of_a_pod(api: RealApiServer) -> None:
    """Not ready, ready, its container anew, terminating with grace, gone, and back by the same name."""
    cluster = Cluster(api)

    async def main() -> None:
        async with seen_by(api) as seen:
            await seen.until_names()
            await asyncio.to_thread(cluster.run, "a", None)
            await asyncio.to_thread(cluster.tell, "a", "10.0.0.1", ready=False)
            await seen.until_names("a")
            await asyncio.to_thread(cluster.tell, "a", "10.0.0.1")
            await seen.until(lambda _: readiness(seen) == {"a": ""}, "it to be ready")
            first = seen.lives()[f"{NAMESPACE}/a"]
            await asyncio.to_thread(cluster.tell, "a", "10.0.0.1", vllm=cluster.process())
            await seen.until(lambda _: seen.lives()[f"{NAMESPACE}/a"] not in {"", first}, "another process")
            second = seen.lives()[f"{NAMESPACE}/a"]
            await asyncio.to_thread(cluster.delete, "a", 30)
            await seen.until(lambda _: "terminating" in readiness(seen)["a"], "it to terminate")
            assert second == seen.lives()[f"{NAMESPACE}/a"]
            await asyncio.to_thread(cluster.delete, "a", 0)
            await seen.until_names()
            await asyncio.to_thread(cluster.run, "a", "10.0.0.1")
            await seen.until_names("a")
            assert seen.lives()[f"{NAMESPACE}/a"] not in {"", first, second}
            assert not seen.discoverer.failures

    asyncio.run(main())


def readiness(seen: Seen) -> dict[str, str]:
    """By the pod's name, why it is not ready; empty where it is."""
    told = {found.descriptor.aliases[0]: found for found in seen.now.found.values()}
    return {name.partition("/")[2]: "" if found.ready else found.why for name, found in told.items()}


def test_labels_that_change(api: RealApiServer) -> None:
    """A pod that no longer matches is told as deleted, one that matches from now on as added."""
    cluster = Cluster(api)
    run_pods(cluster, ["a", "b"])
    cluster.run("web", "10.0.1.1", {**pod("web"), "metadata": {"labels": {"app": "web"}}})

    async def main() -> None:
        async with seen_by(api) as seen:
            await seen.until_names("a", "b")
            await asyncio.to_thread(cluster.patch, "a", {"metadata": {"labels": {"app": "web"}}})
            await asyncio.to_thread(cluster.patch, "web", {"metadata": {"labels": {"app": "vllm"}}})
            await seen.until_names("b", "web")
            assert not seen.discoverer.failures

    asyncio.run(main())


def test_connections_that_end(api: RealApiServer) -> None:
    """A watch goes on where it was, and nothing that happened meanwhile is missed."""
    cluster = Cluster(api)
    run_pods(cluster, ["a", "b"])

    async def main() -> None:
        async with seen_by(api) as seen:
            await seen.until_names("a", "b")
            for turn in range(5):
                api.cut()
                await asyncio.to_thread(cluster.delete, "a", 0)
                await asyncio.to_thread(cluster.run, "a", f"10.0.2.{turn + 1}")
                await seen.until(lambda _, turn=turn: f"10.0.2.{turn + 1}:8000" in addresses(seen), "the new one")  # type: ignore[misc]
            assert all("b" in names_in(picture) for picture in seen.pictures)

    asyncio.run(main())


def addresses(seen: Seen) -> set[str]:
    """Of all that are told."""
    return {found.descriptor.pod for found in seen.now.found.values()}


def names_in(picture: Picture) -> set[str]:
    """Of pods."""
    return {each.descriptor.aliases[0].partition("/")[2] for each in picture.found.values()}


def test_a_server_that_is_killed_and_has_forgotten(api: RealApiServer) -> None:
    """While it was away pods came and went, and etcd forgot the history: 410, and one list is believed as a whole."""
    cluster = Cluster(api)
    run_pods(cluster, ["a", "b", "c"])

    async def main() -> None:
        async with seen_by(api) as seen:
            await seen.until_names("a", "b", "c")
            pictures = len(seen.pictures)
            await asyncio.to_thread(change_behind, api)
            await seen.until_names("a", "c", "d")
            assert seen.discoverer.failures["unreachable"]
            assert 1 == seen.discoverer.failures["expired"], seen.discoverer.failures
            assert all({"a", "c"} <= names_in(picture) for picture in seen.pictures[pictures:])
            assert "" == seen.discoverer.trouble

    asyncio.run(main())


def change_behind(api: RealApiServer) -> None:
    """Who watches cannot see it: the server is elsewhere meanwhile, and its history is gone when it is back."""
    plane = api.plane
    with plane.elsewhere() as url:
        there = copy.copy(api)
        there.url = url
        cluster = Cluster(there)
        cluster.delete("b", 0)
        cluster.run("d", "10.0.0.9")
    plane.compact()
    plane.start()


def test_a_list_whose_revision_goes_between_its_pages(api: RealApiServer) -> None:
    """410 for the second page: it is begun anew, and nothing of the half is told."""
    cluster = Cluster(api)
    names = [f"vllm-{number:03}" for number in range(PAGE_PODS + 5)]
    run_pods(cluster, names)
    turnstile = Turnstile(api.token_file)

    async def main() -> None:
        async with seen_by(api) as seen:
            try:
                await asyncio.to_thread(turnstile.let_one_pass)  # the first page
                await asyncio.to_thread(api.plane.compact)
            finally:
                turnstile.open()
            await seen.until_names(*names)
            assert 1 == len(seen.pictures)
            assert {"expired": 1} == dict(seen.discoverer.failures)

    asyncio.run(main())


class Turnstile:
    """A token file that is a pipe: a call to the server waits until the token is handed out.

    Each reader has a pipe of its own, or a second one might get what was meant for the first.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._token = path, path.read_bytes()
        self._waiting: int | None = None
        self._put_pipe()

    def let_one_pass(self) -> None:
        """Returns when the call after it has come, and waits."""
        first = self._next_reader()
        self._put_pipe()
        self._hand_out(first)
        self._waiting = self._next_reader()

    def open(self) -> None:
        """For whoever waits, and for all from now on."""
        other = self._path.with_suffix(".other")
        other.write_bytes(self._token)
        other.replace(self._path)
        if self._waiting is not None:
            self._hand_out(self._waiting)

    def _put_pipe(self) -> None:
        pipe = self._path.with_suffix(".pipe")
        os.mkfifo(pipe)
        pipe.replace(self._path)

    def _next_reader(self) -> int:
        """Descriptor of the pipe, once somebody reads there."""
        found: list[int] = []

        def look() -> bool:
            with contextlib.suppress(OSError):  # nobody does
                found.append(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
            return bool(found)

        wait_for(look, "a call to the server")
        return found[0]

    def _hand_out(self, descriptor: int) -> None:
        os.write(descriptor, self._token)
        os.close(descriptor)


def test_bookmarks_keep_the_version_young(api: RealApiServer) -> None:
    """Other pods change, and none of ours: the watch goes on from there, and nothing is listed anew."""
    cluster = Cluster(api)
    run_pods(cluster, ["a"])
    told = Told()
    access = Access(api.url, str(api.token_file), str(api.ca_file), None)
    pace = QUICK._replace(watch_s=(5, 5), short_s=0.5)  # a bookmark comes two seconds before the end

    async def main() -> None:
        watch = PodWatch(
            access,
            f"/api/v1/namespaces/{NAMESPACE}/pods",
            "app=vllm",
            lambda key, _: key,  # type: ignore[arg-type,return-value]  # nothing is made of pods here
            told,
            clock=SystemClock(),
            chance=random.Random(7),
            pace=pace,
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(watch.run(), name="watch")
            await until(lambda: watch._version is not None, "a list")
            first, turns = watch._version, itertools.count(1)
            async with asyncio.timeout(DEADLINE_S):
                while watch._version == first:
                    made = {**pod(), "metadata": {"labels": {"app": "web"}}}
                    await asyncio.to_thread(cluster.run, f"web-{next(turns)}", None, made)
            running.cancel()

    asyncio.run(main())
    assert (1, [], []) == (told.lists, told.changes, told.failures)


class Told:
    """Implements the watch's `Sink`."""

    def __init__(self) -> None:
        self.lists = 0
        self.changes: list[object] = []
        self.failures: list[object] = []
        self.changed = self.gone = lambda *what: self.changes.append(what)
        self.unheard = self.failures.append

    def listed(self, readings: object, *, are_all: bool) -> None:
        """One more."""
        del readings
        assert are_all
        self.lists += 1

    def heard(self) -> None:
        """Nothing is made of it."""


def test_a_quiet_cluster_is_heard(api: RealApiServer) -> None:
    """No pod changes, so that this server sends no bookmark; the ends of its watches are words, too."""
    run_pods(Cluster(api), ["a"])

    async def main() -> None:
        async with seen_by(api, QUICK._replace(watch_s=(2, 2), short_s=0.5)) as seen:
            await seen.until_names("a")
            for _ in range(2):
                before = seen.discoverer.heard_at
                await until(lambda before=before: seen.discoverer.heard_at > before, "a word")  # type: ignore[misc,operator]
            assert 1 == len(seen.pictures)
            assert not seen.discoverer.failures

    asyncio.run(main())


def test_a_token_that_counts_no_more(api: RealApiServer) -> None:
    """It is told in words and tried again; the one that stands in the file then is taken."""
    cluster = Cluster(api)
    run_pods(cluster, ["a"])

    async def main() -> None:
        async with seen_by(api) as seen:
            await seen.until_names("a")
            await asyncio.to_thread(api.revoke_tokens)
            api.cut()
            await until(lambda: bool(seen.discoverer.failures["unauthorized"]), "the token to be refused")
            assert "does not know the token" in seen.discoverer.trouble
            await asyncio.to_thread(cluster.run, "b", "10.0.0.2")
            await asyncio.to_thread(api.renew_token)
            await seen.until_names("a", "b")
            assert 1 == len({picture for picture in map(names_in_order, seen.pictures) if picture == ("a",)})

    asyncio.run(main())


def names_in_order(picture: Picture) -> tuple[str, ...]:
    """Of pods."""
    return tuple(sorted(names_in(picture)))


def test_a_token_that_is_replaced_before_it_ends(api: RealApiServer) -> None:
    """As kubelets do it: the new one is shown with the next call, and nobody hears of it."""
    cluster = Cluster(api)
    run_pods(cluster, ["a"])

    async def main() -> None:
        async with seen_by(api, QUICK._replace(watch_s=(2, 2), short_s=0.5)) as seen:
            await seen.until_names("a")
            before = api.token_file.read_text()
            await asyncio.to_thread(api.renew_token)
            assert before != api.token_file.read_text()
            api.cut()
            await asyncio.to_thread(cluster.run, "b", "10.0.0.2")
            await seen.until_names("a", "b")
            assert not seen.discoverer.failures["unauthorized"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/a/log"),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/a/exec?command=true"),
        ("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/a"),
        ("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/a/status"),
        ("GET", "/api/v1/namespaces/default/pods"),
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/nodes"),
    ],
)
def test_what_the_account_may_not(api: RealApiServer, method: str, path: str) -> None:
    """The role that is shipped permits to look at pods of its namespace, and nothing else."""
    with api.plane.client(api.token_file.read_text()) as client:
        body = {"content": b"{}", "headers": {"content-type": "application/merge-patch+json"}}
        answered = client.request(method, path, **(body if method == "PATCH" else {}))  # type: ignore[arg-type]
        assert 200 == client.get(f"/api/v1/namespaces/{NAMESPACE}/pods").status_code

    assert 403 == answered.status_code, answered.text


def test_where_it_is_not_permitted(api: RealApiServer) -> None:
    """It says what to grant, tells no picture, and goes on asking."""

    async def main() -> None:
        settings = Kubernetes(selector="app=vllm", namespaces=("default",))
        async with watching(api.url, api.token_file, ca_file=api.ca_file, settings=settings) as seen:
            await until(lambda: 2 <= seen.discoverer.failures["forbidden"], "it to be refused, twice")
            assert "get, list and watch of pods" in seen.discoverer.trouble
            assert [] == seen.pictures

    asyncio.run(main())
