"""Lists and watches over real HTTP: what is believed, what is tried again, and what is told when nothing is heard."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from indexer.discovery.event_endpoints import Endpoints, NotTold
from indexer.discovery.kubernetes import discoverer
from indexer.discovery.kubernetes.api import EVENT_BYTES_MAX
from indexer.discovery.kubernetes.watch import PAGE_PODS
from indexer.model import SourceId
from indexer.settings.discovery import Kubernetes
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.collecting import LOOPS, run_on, until
from tests.support.kube_api import ADMIN, READER, FakeApi, FakeApiServer, Refusal, fake_api_server
from tests.support.pods import container, pod
from tests.support.watching import QUICK, SETTINGS, watching


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """An API server."""
    with fake_api_server() as server:
        yield server


@pytest.fixture
def cluster(api: FakeApiServer, token_file: Path) -> Cluster:
    """Its pods."""
    return Cluster(FakeApi(api, token_file))


def lists(api: FakeApiServer) -> int:
    """So many were begun."""
    return sum("watch" not in query and "continue" not in query for _, query in api.asked)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_first_picture_is_whole_and_each_change_follows(
    loop: str, api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """More pods than in a page; pods of other labels are none of ours, until they have these."""
    names = [f"vllm-{number}" for number in range(PAGE_PODS + 5)]
    for number, name in enumerate(names):
        cluster.run(name, f"10.0.0.{number + 1}")
    cluster.run("other", "10.0.1.1", {**pod("other"), "metadata": {"labels": {"app": "web"}}})

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until(lambda _: True, "a picture")
            assert {f"serving/{name}" for name in names} == seen.lives().keys()
            assert 1 == len(seen.pictures)
            cluster.run("new", "10.0.2.1")
            cluster.delete("vllm-3", 0)
            cluster.patch("vllm-4", {"metadata": {"labels": {"app": "web"}}})
            cluster.patch("other", {"metadata": {"labels": {"app": "vllm"}}})
            await seen.until_names("new", "other", *(name for name in names if name not in {"vllm-3", "vllm-4"}))

    run_on(loop, main())
    assert 1 == lists(api)
    assert not any("resourceVersion" in query for _, query in api.asked if "watch" not in query)  # of a quorum


def test_that_a_selector_finds_nobody_is_told(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """An empty picture is one, as of a fleet that is scaled to nothing: people are told which labels it is of."""

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until(lambda _: True, "a picture")
            assert {"app=vllm": "no pod has these labels (serving)"} == seen.pictures[-1].remarks
            cluster.run("a", "10.0.0.1")
            await seen.until_names("a")
            assert {} == seen.pictures[-1].remarks

    run_on("asyncio", main())


def test_a_cut_connection_goes_on_where_it_was(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """Without a list, and nothing that happened meanwhile is missed."""
    cluster.run("a", "10.0.0.1")

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            for turn in range(3):
                watches = api.watches()
                api.cut()
                cluster.run(f"b{turn}", f"10.0.1.{turn}")
                await until(lambda before=watches: api.watches() > before, "another watch")
            await seen.until_names("a", "b0", "b1", "b2")

    run_on("asyncio", main())
    assert 1 == lists(api)


@pytest.mark.parametrize("how", ["event", "status"])
def test_what_is_forgotten_is_listed_anew_and_believed_as_a_whole(
    how: str, api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """A pod that went while nobody looked is gone with the next picture, and none is empty on the way."""
    for number, name in enumerate("abc"):
        cluster.run(name, f"10.0.0.{number}")

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a", "b", "c")
            told = len(seen.pictures)
            if how == "status":
                api.refusals.append(Refusal(410, "Gone"))
            with api.changed:
                api.cut()
                cluster_pod = api.pods["serving", "b"]
                api.put("DELETED", cluster_pod)
                api.forget()
            cluster.run("d", "10.0.0.9")
            await seen.until_names("a", "c", "d")
            assert all(len(picture.found) >= 2 for picture in seen.pictures[told:])
            assert seen.discoverer.failures["expired"] >= 1
            assert lists(api) >= 2

    run_on("asyncio", main())


def test_a_list_that_takes_longer_than_the_server_remembers(
    api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """It is begun anew with larger pages, and nothing of half a list is told."""
    for number in range(3 * PAGE_PODS):
        cluster.run(f"p{number:03}", f"10.0.{number // 250}.{number % 250}")
    api.refusals.extend([None, Refusal(410, "Expired")])

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until(lambda _: True, "a picture")
            assert 3 * PAGE_PODS == len(seen.now.found)
            assert 1 == len(seen.pictures)

    run_on("asyncio", main())
    limits = [int(query["limit"]) for _, query in api.asked if "limit" in query]
    assert [PAGE_PODS, PAGE_PODS, 4 * PAGE_PODS] == limits


def test_pods_of_any_size_are_listed(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """A page that is too large is asked for anew with fewer pods: a dozen would keep all from being found."""
    large = {"note": "<" * 230_000}
    for number in range(2 * PAGE_PODS // 5):
        cluster.run(f"p{number:03}", f"10.0.0.{number}", pod(f"p{number:03}", annotations=large))
    with api.changed:
        for each in api.pods.values():
            each["spec"]["containers"][0]["env"] = [{"name": "LONG", "value": "<" * 1_000_000}]

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until(lambda _: True, "a picture")
            assert len(api.pods) == len(seen.now.found)
            assert {"too_large": 1} == dict(seen.discoverer.failures)

    run_on("asyncio", main())


def test_pods_beyond_what_is_looked_at_are_no_sources(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """They are not even asked for, and told of in one remark whatever they do; where there is room one is taken."""
    for number in range(3 * PAGE_PODS):
        cluster.run(f"p{number:03}", f"10.0.{number // 250}.{number % 250}")

    async def main() -> None:
        async with watching(api.url, token_file, pods_max=PAGE_PODS) as seen:
            await seen.until(lambda _: True, "a picture")
            assert PAGE_PODS == len(seen.now.found)
            assert "more pods" in seen.now.remarks[""]
            for number in range(PAGE_PODS, 2 * PAGE_PODS):
                cluster.tell(f"p{number:03}", f"10.0.0.{number}", ready=False)
            cluster.tell("p000", "10.0.0.0", ready=False)
            await seen.until(
                lambda now: any(not found.ready for found in now.found.values()), "the last of the changes"
            )
            assert 2 == len(seen.pictures)
            cluster.delete("p001", 0)
            cluster.tell("p100", "10.0.0.100", ready=False)
            await seen.until(lambda now: any(f.descriptor.pod == "10.0.0.100:8000" for f in now.found.values()), "p100")

    run_on("asyncio", main())
    assert [PAGE_PODS, PAGE_PODS] == [int(query["limit"]) for _, query in api.asked if "limit" in query]


@pytest.mark.parametrize(
    ("refusals", "reason", "words"),
    [
        ([Refusal(500, "InternalError")] * 3, "refused", "status 500 (InternalError)"),
        ([Refusal(403, "Forbidden")] * 2, "forbidden", "get, list and watch of pods"),
        ([Refusal(401, "Unauthorized")] * 2, "unauthorized", "does not know the token"),
        ([Refusal(429, "TooManyRequests", retry_after="0")] * 2, "overloaded", "too much to do"),
        ([Refusal(404, "Not a word: but a sentence")], "refused", "status 404"),
        ([Refusal(302, "Found", location="http://127.0.0.1:9/elsewhere")], "refused", "status 302"),
        ([Refusal(200, "no list")], "unreadable", "list of pods"),
    ],
)
def test_a_server_that_refuses_is_asked_again(
    refusals: list[Refusal], reason: str, words: str, api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """Why is told in words and counted; nothing is told of pods meanwhile."""
    cluster.run("a", "10.0.0.1")
    api.refusals.extend(refusals)
    said: set[str] = set()

    async def main() -> None:
        async with watching(api.url, token_file) as seen:

            def is_there() -> bool:
                said.add(seen.discoverer.trouble)
                return bool(seen.pictures)

            assert seen.discoverer.heard_at is None
            await until(is_there, "a picture")
            await seen.until_names("a")
            assert "" == seen.discoverer.trouble
            assert {reason: len(refusals)} == dict(seen.discoverer.failures)

    run_on("asyncio", main())
    assert any(words in each for each in said)


GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Gone"}}).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not JSON\n", "unreadable"),
        (b'{"type": "ADDED"}\n', "unreadable"),
        (b'{"type": "ADDED", "object": 7}\n', "unreadable"),
        (b'{"type": "ADDED", "object": {"metadata": {"name": "x", "namespace": "serving"}}}\n', "unreadable"),
        (b'{"type": "RENAMED", "object": {"metadata": {"name": "x", "resourceVersion": "9"}}}\n', "unreadable"),
        (b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n', "unreadable"),
        (b"[" * 100_000 + b"\n", "unreadable"),
        (b"\xff\xfe\n", "unreadable"),
        (b'{"type": "ADDED", "object": "' + b"x" * EVENT_BYTES_MAX, "too_large"),
        (b'{"type": "ERROR", "object": {"code": 500, "reason": "InternalError"}}\n', "refused"),
        (GONE + b"\n", "expired"),
    ],
    ids=str,
)
def test_what_is_no_event_ends_the_watch_and_all_is_read_anew(
    line: bytes, reason: str, api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """Nobody knows what it said; pods that are known stay."""
    cluster.run("a", "10.0.0.1")
    api.lines.append(line)

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            await until(lambda: seen.discoverer.failures[reason] == 1, reason)
            cluster.run("b", "10.0.0.2")
            await seen.until_names("a", "b")
            assert {reason: 1} == dict(seen.discoverer.failures)
            assert all("serving/a" in {f.descriptor.aliases[0] for f in p.found.values()} for p in seen.pictures)

    run_on("asyncio", main())
    assert (1 if reason == "refused" else 2) == lists(api)


def test_empty_lines_say_nothing(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """Some proxies send them to keep a connection."""
    cluster.run("a", "10.0.0.1")
    api.lines.append(b"\n\r\n \n")

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            cluster.delete("a", 0)
            await seen.until_names()
            assert not seen.discoverer.failures

    run_on("asyncio", main())


def test_one_pod_that_cannot_be_read_costs_no_other(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """Neither in a list nor in a watch; it is remarked on, and taken where it can be read again."""
    cluster.run("a", "10.0.0.1")
    cluster.run("b", "10.0.0.2")
    with api.changed:
        api.put("MODIFIED", {**api.pods["serving", "b"], "spec": {"containers": 7}})

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            assert {"serving/b"} == seen.now.remarks.keys()
            with api.changed:
                api.put("MODIFIED", {**api.pods["serving", "a"], "spec": {"containers": 7}})
            await seen.until(lambda picture: {"serving/a", "serving/b"} == picture.remarks.keys(), "both")
            with api.changed:
                api.put("MODIFIED", {**api.pods["serving", "b"], "spec": {"containers": [container()]}})
            await seen.until_names("b")
            assert not seen.discoverer.failures

    run_on("asyncio", main())
    assert 1 == lists(api)


def test_a_connection_on_which_nothing_comes_is_given_up(
    api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """A little after the watch should have ended; what is known stands, and its age shows."""
    cluster.run("a", "10.0.0.1")

    async def main() -> None:
        pace = QUICK._replace(watch_s=(1, 1), spare_s=0.1)
        async with watching(api.url, token_file, pace=pace) as seen:
            await seen.until_names("a")
            api.is_frozen = True
            await until(lambda: seen.discoverer.failures["silent"] >= 2, "given up, and again")
            assert "it said nothing in time" == seen.discoverer.trouble
            heard_at = seen.discoverer.heard_at
            assert heard_at is not None
            assert 1 == len(seen.pictures)
            api.is_frozen = False
            cluster.run("b", "10.0.0.2")
            await seen.until_names("a", "b")
            assert "" == seen.discoverer.trouble
            assert seen.discoverer.heard_at > heard_at  # type: ignore[operator]  # it was heard

    run_on("asyncio", main())
    assert 1 == lists(api)


def test_bookmarks_keep_the_version_young(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """While nothing happens to our pods much may happen to others, and be forgotten: nothing is listed anew."""
    cluster.run("a", "10.0.0.1")

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            first = seen.discoverer.heard_at
            assert first is not None
            for number in range(5):
                cluster.run(f"web-{number}", f"10.0.1.{number}", {**pod(), "metadata": {"labels": {"app": "web"}}})
            version = api.version
            watches = api.watches()
            api.watch_end_s = 0.5  # of watches from now on
            api.cut()
            await until(lambda: api.watches() > watches, "a watch")
            await until(
                lambda: any(int(query.get("resourceVersion", "0")) >= version for _, query in api.asked),
                "one that goes on from a bookmark",
            )
            assert seen.discoverer.heard_at > first  # type: ignore[operator]  # it was heard

    run_on("asyncio", main())
    assert 1 == lists(api)


def test_a_watch_that_ends_in_order_is_heard(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """Nothing happens, and there are no bookmarks, as of servers up to 1.20: whoever waits for a word has one."""
    cluster.run("a", "10.0.0.1")
    api.bookmark_s = 3600.0

    async def main() -> None:
        pace = QUICK._replace(watch_s=(1, 1), short_s=0.5)
        async with watching(api.url, token_file, pace=pace) as seen:
            await seen.until_names("a")
            for _ in range(2):
                before = seen.discoverer.heard_at
                await until(lambda before=before: seen.discoverer.heard_at > before, "a word")  # type: ignore[misc,operator]
            assert not seen.discoverer.failures
            assert 1 == len(seen.pictures)

    run_on("asyncio", main())
    assert 1 == lists(api)


def test_a_server_that_ends_each_watch_at_once_is_left_alone_for_longer_and_longer(
    api: FakeApiServer, cluster: Cluster, token_file: Path
) -> None:
    """It counts as a failure."""
    cluster.run("a", "10.0.0.1")
    api.watch_end_s = 0.0

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await until(lambda: seen.discoverer.failures["ended"] >= 5, "failures")
            assert "it ended a watch at once" == seen.discoverer.trouble

    run_on("asyncio", main())
    assert 1 == lists(api)


def test_a_token_is_read_anew(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """They are replaced every hour while a pod runs; the old one ends a little later."""
    cluster.run("a", "10.0.0.1")

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            api.tokens = {ADMIN: "admin", "second": "reader"}
            api.cut()
            await until(lambda: seen.discoverer.failures["unauthorized"] >= 1, "refused")
            token_file.write_text("second")  # noqa: ASYNC240  a test
            cluster.run("b", "10.0.0.2")
            await seen.until_names("a", "b")

    run_on("asyncio", main())
    assert 1 == lists(api)


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff", b"a\nb"])
def test_a_token_that_is_none_is_told(content: bytes, api: FakeApiServer, token_file: Path) -> None:
    """And never shown."""
    token_file.write_bytes(content)

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await until(lambda: seen.discoverer.failures["configuration"] >= 2, "failures")
            assert f"{token_file} holds no token that can be read" == seen.discoverer.trouble
            token_file.write_text(READER)  # noqa: ASYNC240  a test
            await seen.until_names()

    run_on("asyncio", main())


def test_whom_it_believes(token_file: Path, tmp_path: Path) -> None:
    """The file of authorities counts, and one that is replaced counts from the next session on."""
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(others.file.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.issue())

    async def main() -> None:
        with fake_api_server(context) as api:
            async with watching(api.url, token_file, ca_file=ca_file) as seen:
                await until(lambda: seen.discoverer.failures["unreachable"] >= 1, "refused")
                assert "its certificate is not believed" in seen.discoverer.trouble
                assert not api.asked
                ca_file.write_bytes(b"nothing")
                await until(lambda: seen.discoverer.failures["configuration"] >= 1, "no authorities")
                ca_file.write_bytes(ours.file.read_bytes())
                await seen.until_names()

    run_on("asyncio", main())


def test_nobody_there_and_then_somebody(token_file: Path) -> None:
    """Told in words; the first picture comes when it is there, and pictures go on over its death and return."""

    async def main() -> None:
        with fake_api_server() as first:
            port = first.port
        async with watching(f"http://127.0.0.1:{port}", token_file) as seen:
            await until(lambda: seen.discoverer.failures["unreachable"] >= 2, "nobody")
            assert "connection refused" == seen.discoverer.trouble
            assert [] == seen.pictures
            with fake_api_server(port=port) as api:
                Cluster(FakeApi(api, token_file)).run("a", "10.0.0.1")
                await seen.until_names("a")
            await until(lambda: bool(seen.discoverer.trouble), "gone again")
            with fake_api_server(port=port) as api:  # from an empty store: it went back in time
                api.version = 10
                api.forgotten = 100
                Cluster(FakeApi(api, token_file)).run("b", "10.0.0.2")
                await seen.until_names("b")

    run_on("asyncio", main())


def test_several_namespaces_make_one_picture(api: FakeApiServer, token_file: Path) -> None:
    """It is whole when each was listed, and as old as the quietest of them."""
    for namespace in ("blue", "green"):
        with api.changed:
            made = pod("p", namespace=namespace)
            made["metadata"]["uid"] = namespace
            made["status"] = {
                "phase": "Running",
                "podIP": f"10.0.0.{len(namespace)}",
                "containerStatuses": [
                    {
                        "name": "vllm",
                        "containerID": "c://1",
                        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                    }
                ],
            }
            api.put("ADDED", made)
    api.refusals.extend([None, Refusal(403, "Forbidden"), None, Refusal(403, "Forbidden")])
    settings = Kubernetes(selector="app=vllm", namespaces=("blue", "green"))

    async def main() -> None:
        async with watching(api.url, token_file, settings=settings) as seen:
            await seen.until(lambda _: True, "a picture")
            assert {"blue/p", "green/p"} == seen.lives().keys()
            assert seen.discoverer.heard_at is not None
        everywhere = Kubernetes(selector="app=vllm", namespaces=("*",))
        async with watching(api.url, token_file, settings=everywhere) as seen:
            await seen.until(lambda _: True, "a picture")
            assert {"blue/p", "green/p"} == seen.lives().keys()

    run_on("asyncio", main())
    assert {"/api/v1/namespaces/blue/pods", "/api/v1/namespaces/green/pods", "/api/v1/pods"} == {
        p for p, _ in api.asked
    }


def test_engines_are_asked_where_only_they_can_tell(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """One that loads its model is waited for; one that is ready and says nothing publishes where settings say."""
    answers: dict[str, Mapping[int, Endpoints]] = {}
    asked: list[str] = []

    async def ask(address: str) -> Mapping[int, Endpoints]:
        asked.append(address)
        if address not in answers:
            raise NotTold("no answer")
        return answers[address]

    quiet = {"spec": {"containers": [container(args=["m"])], "nodeName": "node-1"}}
    cluster.run("loading", "10.0.0.1", {**pod(), **quiet}, ready=False)
    cluster.run("silent", "10.0.0.2", {**pod(), **quiet})

    async def main() -> None:
        async with watching(api.url, token_file, ask=ask) as seen:
            await seen.until(lambda _: True, "a picture")
            first = seen.pictures[0].pending
            assert {"10.0.0.1:8000": False, "10.0.0.2:8000": True} == {pod: each.ready for pod, each in first.items()}
            await seen.until_names("silent")
            assert {"10.0.0.1:8000"} == seen.now.pending.keys()
            assert "tcp://10.0.0.2:5557" == seen.now.found[SourceId("10.0.0.2:8000", 0)].descriptor.endpoint
            assert {"serving/loading"} == seen.now.remarks.keys()
            answers["10.0.0.1:8000"] = {3: Endpoints("tcp://10.0.0.1:40003", None)}
            await seen.until_names("loading", "silent")
            assert "tcp://10.0.0.1:40003" == seen.now.found[SourceId("10.0.0.1:8000", 3)].descriptor.endpoint
            before = len(asked)
            cluster.tell("loading", "10.0.0.1", vllm=cluster.process())  # another process, elsewhere
            answers["10.0.0.1:8000"] = {3: Endpoints("tcp://10.0.0.1:40009", None)}
            await seen.until(
                lambda now: any(f.descriptor.endpoint == "tcp://10.0.0.1:40009" for f in now.found.values()), "anew"
            )
            assert len(asked) > before
            cluster.delete("loading", 0)
            await seen.until_names("silent")

    run_on("asyncio", main())


def test_the_age_of_a_picture_is_that_of_what_it_tells(
    api: FakeApiServer, cluster: Cluster, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a change is known and not told yet, nobody may take the picture of before for the word of now."""
    monkeypatch.setattr(discoverer, "BETWEEN_PICTURES_S", 3_600.0)
    cluster.run("a", "10.0.0.1")

    async def main() -> None:
        async with watching(api.url, token_file) as seen:
            await seen.until_names("a")
            (scope,) = seen.discoverer._scopes.values()
            first = seen.discoverer.heard_at
            assert first is not None
            await until(lambda: seen.discoverer.heard_at != first, "a bookmark")
            cluster.run("b", "10.0.0.2")
            await until(lambda: len(scope.readings) == 2, "the other pod")
            told, heard = seen.discoverer.heard_at, scope.heard_at
            await until(lambda: scope.heard_at != heard, "a bookmark")
            assert told == seen.discoverer.heard_at
            assert 1 == len(seen.now.found)

    run_on("asyncio", main())


def test_it_can_be_run_again(api: FakeApiServer, cluster: Cluster, token_file: Path) -> None:
    """By the next watcher in the same process: from nothing, and it leaves no task behind."""
    cluster.run("a", "10.0.0.1")

    async def main() -> None:
        async with watching(api.url, token_file, settings=SETTINGS) as seen:
            await seen.until_names("a")
            same = seen.discoverer
        assert 1 == len(asyncio.all_tasks())
        cluster.delete("a", 0)
        cluster.run("b", "10.0.0.2")
        async with asyncio.TaskGroup() as tasks:
            again = tasks.create_task(same.run(seen.pictures.append))
            await seen.until_names("b")
            again.cancel()
        assert 1 == len(asyncio.all_tasks())

    run_on("asyncio", main())
