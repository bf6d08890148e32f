"""Pods as an API server tells them → sources: each way in which a pod comes, changes and goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.discovery.found import Found
from indexer.model import Descriptor, SourceId
from indexer.settings.discovery import Kubernetes
from tests.support.pod_pictures import only, picture, reading_of, rules
from tests.support.pods import (
    LATER,
    Object,
    container,
    engine_args,
    events_config,
    pod,
    running,
    status,
    terminated,
    told,
    waiting,
)

if TYPE_CHECKING:
    from indexer.discovery.kubernetes.picture import Answered
    from indexer.discovery.kubernetes.reading import Rules

OTHER = "containerd://" + "b2" * 32
NAME = SourceId("10.0.0.1:8000", 0)


def test_a_ready_pod_is_a_source() -> None:
    """All of it: names, ports, model and life."""
    assert {
        NAME: Found(
            descriptor=Descriptor(
                pod="10.0.0.1:8000",
                endpoint="tcp://10.0.0.1:5557",
                model="llama",
                address="10.0.0.1:8000",
                aliases=("serving/vllm-0", "vllm-0"),
                origin="discovery",
            ),
            ready=True,
            life="uid-1/2026-11-30T10:00:00Z/a1a1a1a1a1a1",
        )
    } == picture(told(pod())).found


# -- how a pod lives -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("its_status", "deleted", "why"),
    [
        pytest.param(status(ready=False), False, "pod is not ready", id="not ready"),
        pytest.param(
            status(ready=False, why="ContainersNotReady"), False, "pod is not ready (ContainersNotReady)", id="why"
        ),
        pytest.param(
            status(), True, "pod is terminating", id="terminating with grace, though it says that it is ready"
        ),
        pytest.param(status(ready=False), True, "pod is terminating", id="terminating, and not ready"),
        pytest.param(
            {**status(ready=False), "reason": "NodeLost"}, False, "pod is not ready (NodeLost)", id="node lost"
        ),
        pytest.param(
            {**status(ready=False), "reason": "NodeLost"}, True, "pod is terminating", id="stuck on a lost node"
        ),
        pytest.param({**status(), "phase": "Unknown"}, False, "pod is Unknown", id="of unknown phase"),
        pytest.param({**status(), "phase": "Pending"}, False, "pod is Pending", id="pending"),
        pytest.param({**status(), "conditions": None}, False, "pod is not ready", id="no conditions"),
        pytest.param(
            status(vllm=waiting()), False, "container vllm is not running (CrashLoopBackOff)", id="restarting"
        ),
        pytest.param(
            status(vllm=terminated(why="OOMKilled")), False, "container vllm is not running (OOMKilled)", id="ended"
        ),
        pytest.param(
            status(vllm=waiting(why="a secret: 7")),
            False,
            "container vllm is not running",
            id="no word of the kubelet's",
        ),
    ],
)
def test_a_pod_that_is_not_ready_stays_and_is_not_scored(its_status: Object, deleted: bool, why: str) -> None:
    """It goes on learning; which process it is stays known, too."""
    ready = only(picture(told(pod())))

    found = only(picture(told(pod(), its_status, deleted=deleted)))

    assert (ready.descriptor, ready.life, False, why) == (found.descriptor, found.life, found.ready, found.why)


@pytest.mark.parametrize(
    "its_status",
    [
        pytest.param(status(phase="Succeeded", vllm=terminated(why="Completed")), id="completed"),
        pytest.param({**status(phase="Failed", vllm=terminated()), "reason": "Evicted"}, id="evicted"),
        pytest.param(status(ip=None, phase="Pending"), id="without an address"),
        pytest.param({"phase": "Pending"}, id="just scheduled"),
        pytest.param({}, id="nothing is told of it"),
        pytest.param(status(vllm={"state": {"waiting": {"reason": "ContainerCreating"}}}), id="never ran"),
        pytest.param(status(vllm={"state": {"running": {"startedAt": None}}}), id="since nobody knows when"),
        pytest.param({**status(), "containerStatuses": None}, id="no containers told"),
    ],
)
def test_a_pod_that_is_over_or_never_ran_is_no_source(its_status: Object) -> None:
    """And nothing to remark on: it is as it should be."""
    assert ({}, {}, {}) == tuple(picture(told(pod(), its_status)))


def test_lives() -> None:
    """The engine's own restart is another life; that of a sidecar is none, and neither is a change of the pod."""
    two = pod("vllm-0", container(), container("proxy", ["--x"]))
    history = [
        (status(vllm=running(), proxy=running()), "1"),
        (status(vllm=running(), proxy=running(LATER, OTHER)), "1"),  # the sidecar restarted
        (status(vllm=running(), proxy=waiting()), "1"),
        (status(ready=False, vllm=waiting(), proxy=running()), "1"),  # the engine is down
        (status(ready=False, vllm=terminated(), proxy=running()), "1"),
        (status(vllm=running(LATER, OTHER), proxy=running()), "1"),  # and back
        (status(vllm=running(LATER, OTHER), proxy=running()), "2"),  # another pod of this name
        (status(vllm=running(LATER), proxy=running()), "1"),  # within one second, yet another container
    ]
    lives = [only(picture(told(two, its_status, uid=uid))).life for its_status, uid in history]

    assert 1 == len(set(lives[:5]))
    assert 4 == len(set(lives[4:]))


def test_a_name_that_returns_at_another_address_is_another_source() -> None:
    """A pod of a StatefulSet: its names go with it."""
    before = only(picture(told(pod())))
    after = only(picture(told(pod(), status("10.0.0.9"), uid="uid-2")))

    assert before.descriptor.pod != after.descriptor.pod
    assert before.descriptor.aliases == after.descriptor.aliases
    assert before.life != after.life


def test_an_address_that_returns_belongs_to_the_pod_that_lives() -> None:
    """The leftover may stand for long, on a node that is lost; in whichever order they are told."""
    old = told(pod("vllm-old"), uid="uid-1", deleted=True)
    new = told(pod("vllm-new"), status(ready=False, vllm=running(LATER, OTHER)), uid="uid-2")

    for pods in ((old, new), (new, old)):
        now = picture(*pods)
        assert [("uid-2/2026-11-30T10:05:00Z/b2b2b2b2b2b2", False)] == [(f.life, f.ready) for f in now.found.values()]
        assert {"serving/vllm-old": "a leftover: pod serving/vllm-new has its address now; no source"} == now.remarks

    not_deleted = told(pod("vllm-old"), uid="uid-1")  # its node was lost a moment ago
    assert "uid-2" in only(picture(not_deleted, new)).life


def test_pods_on_their_nodes_network_share_an_address() -> None:
    """Ports tell them apart; one port has one of them."""
    one = told(pod("a", container(args=engine_args(8000)), hostNetwork=True), status("192.0.2.1"), uid="1")
    two = told(
        pod("b", container(args=engine_args(8001, events_config(5600))), hostNetwork=True), status("192.0.2.1"), uid="2"
    )
    same = told(
        pod("c", container(args=engine_args(8000)), hostNetwork=True, hostname="n", subdomain="s"),
        status("192.0.2.1", ready=False, vllm=waiting()),
        uid="3",
    )

    now = picture(one, two, same)

    assert {"192.0.2.1:8000": ("serving/a", "a"), "192.0.2.1:8001": ("serving/b", "b")} == {
        key.pod: found.descriptor.aliases for key, found in now.found.items()
    }
    assert {"serving/c": "a leftover: pod serving/a has its address now; no source"} == now.remarks


@pytest.mark.parametrize(
    ("labels", "annotations", "is_source"),
    [
        ({"leaderworkerset.sigs.k8s.io/worker-index": "0"}, {}, True),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "1"}, {}, False),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "12"}, {}, False),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "1"}, {"kvindexer.io/ignore": "false"}, True),
        ({}, {"kvindexer.io/ignore": "true"}, False),
        ({"kvindexer.io/ignore": "true"}, {}, False),
        ({"kvindexer.io/ignore": "true"}, {"kvindexer.io/ignore": "false"}, True),
    ],
)
def test_workers_and_what_is_ignored_are_no_sources(
    labels: dict[str, str], annotations: dict[str, str], is_source: bool
) -> None:
    """Nor is anything remarked."""
    now = picture(told(pod(labels=labels, annotations=annotations)))

    assert is_source is bool(now.found)
    assert {} == now.remarks


# -- where it publishes ----------------------------------------------------------------------------------------------


def endpoints(
    *pods: Object, of: Rules | None = None, answered: Answered = "waited for"
) -> dict[int, tuple[str | None, str | None]]:
    """By rank."""
    return {
        key.dp_rank: (found.descriptor.endpoint, found.descriptor.replay_endpoint)
        for key, found in picture(*pods, of=of, answered=answered).found.items()
    }


def of_args(*others: str, events: str | None = None, annotations: dict[str, str] | None = None) -> Object:
    """One whose arguments tell of its events."""
    return told(pod("vllm-0", container(args=engine_args(8000, events, *others)), annotations=annotations))


def silent(annotations: dict[str, str] | None = None, *args: str) -> Object:
    """Nothing is said of its events."""
    return told(pod("vllm-0", container(args=["m", *args]), annotations=annotations))


def test_several_ranks_are_several_sources_at_ports_one_after_another() -> None:
    """Each at the base of the ports plus its number."""
    assert {
        2: ("tcp://10.0.0.1:5559", "tcp://10.0.0.1:6559"),
        3: ("tcp://10.0.0.1:5560", "tcp://10.0.0.1:6560"),
    } == endpoints(of_args("-dp", "4", "-dpl", "2", "-dpr", "2", events=events_config(replay=6557)))


def test_annotations_are_believed_before_arguments() -> None:
    """And that the two differ is remarked on."""
    said = {"kvindexer.io/events-port": "7000", "kvindexer.io/replay-port": "8000", "kvindexer.io/ranks": "0-1"}
    now = picture(of_args(annotations=said))

    assert {
        0: ("tcp://10.0.0.1:7000", "tcp://10.0.0.1:8000"),
        1: ("tcp://10.0.0.1:7001", "tcp://10.0.0.1:8001"),
    } == endpoints(of_args(annotations=said))
    assert {
        "serving/vllm-0": "its kvindexer.io/ranks are others than its arguments say; "
        "kvindexer.io/events-port is 7000, and its arguments say 5557"
    } == now.remarks


@pytest.mark.parametrize(("said", "ranks"), [("1", [0]), ("3", [0, 1, 2]), ("4-5", [4, 5]), ("3-3", [3])])
def test_a_bare_number_of_ranks_is_how_many_there_are(said: str, ranks: list[int]) -> None:
    """As `discovery.kubernetes.ranks` is: one word must not mean two things."""
    pods = told(pod("vllm-0", container(args=[]), annotations={"kvindexer.io/ranks": said}))

    assert {rank: (f"tcp://10.0.0.1:{5557 + rank}", None) for rank in ranks} == endpoints(pods, answered=None)


@pytest.mark.parametrize(
    ("annotations", "replay"),
    [
        ({"kvindexer.io/replay-port": "none"}, None),
        ({"kvindexer.io/replay-port": "7557"}, "tcp://10.0.0.1:7557"),
        ({}, "tcp://10.0.0.1:6557"),
        ({"kvindexer.io/events-port": "5557"}, "tcp://10.0.0.1:6557"),
    ],
)
def test_replay(annotations: dict[str, str], replay: str | None) -> None:
    """By annotation, which may say that there is none, else by arguments."""
    pods = of_args(events=events_config(replay=6557), annotations=annotations)

    assert {0: ("tcp://10.0.0.1:5557", replay)} == endpoints(pods)


@pytest.mark.parametrize("made", [silent(), of_args(events=events_config(0)), of_args("-dp", "$(N)")])
def test_an_engine_that_alone_can_tell_is_asked_and_waited_for(made: Object) -> None:
    """The settings' ports would be a guess while it may still answer."""
    assert reading_of(made).offer is not None
    assert {"serving/vllm-0": "its engine is being asked where it publishes; no source yet"} == picture(made).remarks
    assert {} == picture(made).found


def test_what_an_engine_answers_counts() -> None:
    """Where nobody else says it; of the ranks that are its own."""
    answer = {0: ("tcp://10.0.0.1:40001", None), 1: ("tcp://10.0.0.1:40002", "tcp://10.0.0.1:40003")}

    assert answer == endpoints(silent(), answered=answer)
    assert answer == endpoints(of_args("-dp=2", events=events_config(0)), answered=answer)
    assert {0: answer[0]} == endpoints(of_args("-dp=1", events=events_config(0)), answered=answer)
    assert {1: answer[1]} == endpoints(silent({"kvindexer.io/ranks": "1-1"}), answered=answer)


def test_ranks_that_an_engine_answers_are_at_the_ports_that_are_known() -> None:
    """An answer fills in what is not known, and nothing else."""
    answer = {4: ("tcp://10.0.0.1:1", None), 5: ("tcp://10.0.0.1:2", None)}

    assert {4: ("tcp://10.0.0.1:5561", None), 5: ("tcp://10.0.0.1:5562", None)} == endpoints(
        of_args("-dp", "$(N)"), answered=answer
    )


def test_of_an_engine_without_an_answer_the_settings_count() -> None:
    """Ports and ranks."""
    settings = Kubernetes(selector="a", events_port=6000, replay_port=7000, ranks=2)

    assert {
        0: ("tcp://10.0.0.1:6000", "tcp://10.0.0.1:7000"),
        1: ("tcp://10.0.0.1:6001", "tcp://10.0.0.1:7001"),
    } == endpoints(silent({}, "-dp", "$(N)"), of=rules(settings), answered=None)


def test_without_any_port_there_is_no_source() -> None:
    """And a remark says what to do."""
    of = rules(Kubernetes(selector="a", events_port=None))

    assert {
        "serving/vllm-0": "where it publishes is not known: kvindexer.io/events-port says it; no source"
    } == picture(silent(), of=of, answered=None).remarks


def test_an_engine_that_is_told_to_publish_nothing_is_no_source() -> None:
    """But where its model is one of those that announce nothing: then it is a source without an endpoint."""
    made = of_args("-dp=2", events=events_config(enable_kv_cache_events=False))

    assert {} == picture(made).found
    assert "announces nothing: no source" in picture(made).remarks["serving/vllm-0"]
    assert {0: (None, None), 1: (None, None)} == endpoints(made, of=rules(silent_models={"llama"}))
    assert {0: ("tcp://10.0.0.1:7000", None)} == endpoints(
        of_args(events=events_config(publisher="null"), annotations={"kvindexer.io/events-port": "7000"})
    )


def test_ports_end() -> None:
    """Ranks beyond the last port are left out, and told."""
    now = picture(of_args("-dp=3", events=events_config(65_534)))

    assert [0, 1] == [key.dp_rank for key in now.found]
    assert "beyond 65535" in now.remarks["serving/vllm-0"]


def test_an_address_of_six_is_in_brackets() -> None:
    """In its name and in its endpoint."""
    found = only(picture(told(pod(), status("fd00::7"))))

    assert ("[fd00::7]:8000", "tcp://[fd00::7]:5557") == (found.descriptor.pod, found.descriptor.endpoint)


def test_the_first_of_two_addresses_counts() -> None:
    """The one that the cluster prefers."""
    both = {**status("10.0.0.1"), "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::7"}]}

    assert "10.0.0.1:8000" == only(picture(told(pod(), both))).descriptor.pod


# -- which container -------------------------------------------------------------------------------------------------

PROXY = container("proxy", ["--port", "8000"])
ENGINE = container("engine", engine_args(8200))
PLAIN = container("plain", ["m"])
BOTH = status(engine=running(), proxy=running(LATER, OTHER), plain=running(), vllm=running())


@pytest.mark.parametrize(
    ("containers", "annotations", "settings", "endpoint"),
    [
        pytest.param([PROXY, ENGINE], {}, {}, "tcp://10.0.0.1:5557", id="the one that publishes"),
        pytest.param([ENGINE, PROXY], {}, {}, "tcp://10.0.0.1:5557", id="whichever comes first"),
        pytest.param([PROXY, PLAIN], {}, {}, None, id="none publishes"),
        pytest.param([PROXY, PLAIN], {}, {"container": "plain"}, "tcp://10.0.0.1:5557", id="by the settings"),
        pytest.param(
            [PROXY, PLAIN], {"kvindexer.io/container": "plain"}, {}, "tcp://10.0.0.1:5557", id="by annotation"
        ),
        pytest.param([PROXY, ENGINE], {"kvindexer.io/container": "nobody"}, {}, None, id="by an annotation of none"),
        pytest.param([container(), ENGINE], {}, {}, None, id="two publish"),
        pytest.param(
            [container(), ENGINE], {}, {"container": "engine"}, "tcp://10.0.0.1:5557", id="two, by the settings"
        ),
        pytest.param([container(), ENGINE], {}, {"container": "proxy"}, None, id="two, and the settings name neither"),
        pytest.param([PLAIN], {}, {}, "tcp://10.0.0.1:5557", id="the only one"),
    ],
)
def test_the_engines_container_is_found(
    containers: list[Object], annotations: dict[str, str], settings: dict[str, str], endpoint: str | None
) -> None:
    """By annotation, by its arguments, by the settings, or as the only one."""
    of = rules(Kubernetes(selector="a", **settings))  # type: ignore[arg-type]
    now = picture(told(pod("p", *containers, annotations=annotations), BOTH), of=of, answered=None)

    assert ([] if endpoint is None else [endpoint]) == [found.descriptor.endpoint for found in now.found.values()]
    assert (endpoint is None) is bool(now.remarks)


def test_a_sidecar_among_the_init_containers_is_never_the_engine() -> None:
    """Its arguments and its status do not count."""
    made = pod("p", PROXY, initContainers=[{**ENGINE, "restartPolicy": "Always"}])

    assert "tcp://10.0.0.1:5557" == only(picture(told(made, BOTH), answered=None)).descriptor.endpoint
    assert only(picture(told(made, BOTH), answered=None)).life.endswith("b2b2b2b2b2b2")


def test_a_gateway_in_front_of_the_engine_is_named_by_its_port() -> None:
    """Routers call the pod by the port that is annotated, and the engine's own is a further name."""
    made = pod("p", PROXY, ENGINE, annotations={"kvindexer.io/port": "8000", "kvindexer.io/metrics-port": "8200"})

    described = only(picture(told(made, BOTH))).descriptor

    assert ("10.0.0.1:8000", "10.0.0.1:8200") == (described.pod, described.address)
    assert ("serving/p", "p", "10.0.0.1:8200") == described.aliases


# -- what it is and serves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "annotations", "role", "remark"),
    [
        ({}, {}, "both", ""),
        ({"llm-d.ai/role": "prefill"}, {}, "prefill", ""),
        ({"llm-d.ai/role": "prefill-decode"}, {}, "both", ""),
        ({"llm-d.ai/role": "decode"}, {"kvindexer.io/role": "prefill"}, "prefill", ""),
        ({"kvindexer.io/role": "decode"}, {}, "decode", ""),
        ({"llm-d.ai/role": "encode"}, {}, "both", "llm-d.ai/role is none of"),
        ({"llm-d.ai/role": "prefill"}, {"kvindexer.io/role": "nobody"}, "both", "kvindexer.io/role is none of"),
    ],
)
def test_roles(labels: dict[str, str], annotations: dict[str, str], role: str, remark: str) -> None:
    """Of an annotation or label of ours, or of that of llm-d."""
    now = picture(told(pod(labels=labels, annotations=annotations)))

    assert role == only(now).descriptor.role
    assert remark in now.remarks.get("serving/vllm-0", "")
    assert bool(remark) is bool(now.remarks)


@pytest.mark.parametrize(
    ("annotations", "others", "model", "remark"),
    [
        ({}, {}, "llama", ""),
        ({"kvindexer.io/model": "llama"}, {}, "llama", ""),
        ({"kvindexer.io/model": "other"}, {}, "other", "none of the names"),
        ({"kvindexer.io/model": ""}, {}, "llama", "no name of a model"),
    ],
)
def test_models(annotations: dict[str, str], others: dict[str, str], model: str, remark: str) -> None:
    """An annotation counts before arguments."""
    now = picture(told(pod(annotations=annotations)))

    assert model == only(now).descriptor.model
    assert remark in now.remarks.get("serving/vllm-0", "")
    assert bool(remark) is bool(now.remarks)


def test_a_model_that_nobody_names_is_that_of_the_settings() -> None:
    """Or nobody knows it."""
    made = told(pod("p", container(args=["--port", "8000"])))

    assert "m" == only(picture(made, of=rules(Kubernetes(selector="a", model="m")), answered=None)).descriptor.model
    assert only(picture(made, answered=None)).descriptor.model is None


def test_further_names_of_a_model_are_remarked_on_where_nobody_learns_them() -> None:
    """A source has one name of its model."""
    made = told(pod("p", container(args=["m", "--served-model-name", "a", "b", "--kv-events-config", events_config()])))

    assert "more names" in picture(made).remarks["serving/p"]
    assert {} == picture(made, of=rules(learns_models=True)).remarks
    assert {} == picture(made, of=rules(model_aliases={"b": "a"})).remarks
    assert "a" == only(picture(made)).descriptor.model


@pytest.mark.parametrize(
    ("allowed", "told_tenant", "tenant", "remarked"),
    [
        (False, "acme", "default", True),
        (True, "acme", "acme", False),
        (False, "default", "default", False),
        (True, "", "default", True),
    ],
)
def test_tenants_count_only_where_pods_may_choose(allowed: bool, told_tenant: str, tenant: str, remarked: bool) -> None:
    """Else whoever may start a pod could take part in another tenant."""
    of = rules(Kubernetes(selector="a", tenant_annotation=allowed))
    now = picture(told(pod(annotations={"kvindexer.io/tenant": told_tenant})), of=of)

    assert tenant == only(now).descriptor.tenant
    assert remarked is bool(now.remarks)


def test_only_labels_that_are_asked_for_are_taken() -> None:
    """Each change of one is a write that all replicas read."""
    made = told(pod(labels={"team": "a", "pod-template-hash": "7"}))

    assert {} == only(picture(made)).descriptor.labels
    assert {"team": "a"} == only(
        picture(made, of=rules(Kubernetes(selector="a", labels=("team", "none"))))
    ).descriptor.labels


def test_names() -> None:
    """Unique whatever other pods there are: where several namespaces are looked at, by namespace."""
    made = told(pod("vllm-0", hostname="vllm-0", subdomain="vllm"))
    several = Kubernetes(selector="a", namespaces=("serving", "others"))

    def names(settings: Kubernetes) -> tuple[str, tuple[str, ...]]:
        described = only(picture(made, of=rules(settings))).descriptor
        return described.pod, described.aliases

    qualified = ("vllm-0.vllm.serving:8000", "vllm-0.vllm.serving.svc:8000")
    assert ("10.0.0.1:8000", ("serving/vllm-0", "vllm-0", "vllm-0.vllm:8000", *qualified)) == names(
        Kubernetes(selector="a")
    )
    assert ("10.0.0.1:8000", ("serving/vllm-0", *qualified)) == names(several)
    assert ("vllm-0", ("serving/vllm-0", "vllm-0.vllm:8000", *qualified, "10.0.0.1:8000")) == names(
        Kubernetes(selector="a", name="pod")
    )
    assert ("serving/vllm-0", (*qualified, "10.0.0.1:8000")) == names(
        Kubernetes(selector="a", name="pod", namespaces=("*",))
    )


def test_variables_that_stand_in_the_pod_are_filled_in() -> None:
    """Of its own fields, too; those of secrets are not known here."""
    env = [
        {"name": "PORT", "value": "9000"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SERVED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['model']"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    args = ["$(KEY)", "--port", "$(PORT)", "--served-model-name=$(SERVED)", "--kv-events-config"]
    made = pod("p", container(args=[*args, events_config(topic="kv@$(IP):8000@x")], env=env), labels={"model": "q"})

    described = only(picture(told(made))).descriptor

    assert ("10.0.0.1:9000", "q") == (described.pod, described.model)


def test_nothing_of_a_containers_arguments_or_environment_is_kept() -> None:
    """But what is named: a remark or a reading could end in a log."""
    env = [{"name": "KEY", "value": "sesame"}, {"name": "OTHER", "value": "sesame"}]
    args = [*engine_args(), "--api-key", "sesame", "--hf-token=$(KEY)", "--port", "sesame"]
    made = told(pod("p", container(args=args, env=env), annotations={"kvindexer.io/ranks": "sesame", "x": "sesame"}))

    assert "sesame" not in repr((reading_of(made), picture(made)))


@pytest.mark.parametrize(
    ("annotations", "remark"),
    [
        ({"kvindexer.io/port": "http"}, "kvindexer.io/port is no port"),
        ({"kvindexer.io/port": "0"}, "kvindexer.io/port is no port"),
        ({"kvindexer.io/events-port": "65536"}, "kvindexer.io/events-port is no port"),
        ({"kvindexer.io/replay-port": "x"}, "kvindexer.io/replay-port is no port"),
        ({"kvindexer.io/metrics-port": "\u0661"}, "kvindexer.io/metrics-port is no port"),
        ({"kvindexer.io/block-size": "0"}, "kvindexer.io/block-size is no number of tokens"),
        ({"kvindexer.io/ranks": "8-1"}, "kvindexer.io/ranks is neither a number of ranks nor FIRST-LAST"),
        ({"kvindexer.io/ranks": "0"}, "kvindexer.io/ranks is neither a number of ranks nor FIRST-LAST"),
        ({"kvindexer.io/ranks": "1025"}, "kvindexer.io/ranks is neither a number of ranks nor FIRST-LAST"),
        ({"kvindexer.io/ignore": "yes"}, "kvindexer.io/ignore is true or false"),
        (
            {"kvindexer.io/evnts-port": "1"},
            "kvindexer.io/evnts-port is nothing that is read (did you mean events-port?)",
        ),
        ({"kvindexer.io/x": "1"}, "kvindexer.io/x is nothing that is read"),
    ],
)
def test_an_annotation_that_is_wrong_is_told_and_not_counted(annotations: dict[str, str], remark: str) -> None:
    """What comes next in the order of belief counts."""
    now = picture(told(pod(annotations=annotations)))

    assert only(picture(told(pod()))).descriptor.endpoint == only(now).descriptor.endpoint
    assert remark in now.remarks["serving/vllm-0"]


def test_the_size_of_blocks_is_told() -> None:
    """By an annotation before the arguments, and a difference between the two is told."""
    args = [*engine_args(), "--block-size", "32"]
    of_arguments = picture(told(pod("p", container(args=args))))
    annotated = picture(told(pod("p", container(args=args), annotations={"kvindexer.io/block-size": "64"})))

    assert (32, 64) == (only(of_arguments).block_size, only(annotated).block_size)
    assert {} == of_arguments.remarks
    assert "is 64, and its arguments say 32" in annotated.remarks["serving/p"]


def test_a_port_that_cannot_be_known_is_told() -> None:
    """That of the settings is taken."""
    now = picture(told(pod("p", container(args=[*engine_args(), "--port", "$(P)"]))))

    assert "10.0.0.1:8000" == only(now).descriptor.pod
    assert "its --port cannot be known" in now.remarks["serving/p"]


def test_remarks_are_bounded() -> None:
    """What is wrong with a thousand pods is one mistake."""
    pods = [
        told(pod(f"p{n:04}", annotations={"kvindexer.io/port": "x"}), status(f"10.0.{n // 250}.{n % 250}"), uid=str(n))
        for n in range(200)
    ]

    assert 200 == len(picture(*pods).found)
    assert 64 == len(picture(*pods).remarks)
