"""The manifests of `k8s/base`, `k8s/components` and `k8s/engines`: what of them has to fit together does."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from api.cli.parser import build_parser
from indexer.__main__ import _settings
from indexer.metric_texts import ADVICE
from indexer.settings import Settings, load
from indexer.sizing.formulas import Plan, Wanted, planned
from indexer.sizing.measured import MEASURED
from tests.repo.test_manifests import _problems
from tests.support.pod_pictures import picture, rules
from tests.support.pods import told

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "k8s"
VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OF_OTHERS: Final = ("envoy", "observe")
"""Folders that hold other things than what runs in the cluster."""
TEXTS: Final = {
    file: file.read_text()
    for file in sorted(FOLDER.rglob("*.yaml"))
    if file.relative_to(FOLDER).parts[0] not in OF_OTHERS
}
KUSTOMIZED: Final = [file.parent for file in TEXTS if file.name == "kustomization.yaml"]
MARGIN_S: Final = 10
"""Beside what the servers take to stop: handing over, and the end of the process."""


def _documents(path: str) -> dict[str, Any]:
    """Of a file, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(TEXTS[FOLDER / path])}


def _one(path: str) -> Any:  # noqa: ANN401  YAML
    (document,) = _documents(path).values()
    return document


BASE: Final = _one("base/deployment.yaml")
POD: Final = BASE["spec"]["template"]
CONTAINER: Final = POD["spec"]["containers"][0]
LABELS: Final = POD["metadata"]["labels"]
PORTS: Final = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
STORE: Final = _one("components/store/address.yaml")["spec"]["template"]["spec"]["containers"][0]
VALKEY: Final = _documents("components/valkey/valkey.yaml")
ENGINES: Final = _documents("engines/vllm.yaml")
ENGINE: Final = ENGINES["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
AUTOSCALER: Final = _one("components/hpa/autoscaler.yaml")["spec"]
SCALED: Final = _one("components/keda/scaled-object.yaml")["spec"]
PODS_OF_OTHERS: Final = ("sidecar/gateway.yaml", "inference-pool/picker.yaml")
"""Beside those of an overlay of their own."""

SHAPES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "components/keda/scaled-object.yaml": (
        "keda.sh/v1alpha1",
        {
            "scaleTargetRef!": {"apiVersion": str, "kind": str, "name!": str},
            "minReplicaCount": int,
            "maxReplicaCount": int,
            "pollingInterval": int,
            "cooldownPeriod": int,
            "fallback": {"failureThreshold!": int, "replicas!": int},
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": dict}},
            "triggers!": [{"type!": str, "metricType": {"AverageValue", "Value"}, "metadata!": {str: str}}],
        },
    ),
    "components/service-monitor/service-monitor.yaml": (
        "monitoring.coreos.com/v1",
        {
            "jobLabel": str,
            "selector!": {"matchLabels": {str: str}},
            "endpoints!": [{"port": str, "path": str, "interval": str, "scrapeTimeout": str}],
        },
    ),
}
"""Of `spec`, where Kubernetes itself has no schema: as the definitions have it, for the fields that are used."""


def _base_settings() -> Settings:
    return load(FOLDER / "base" / "kvindexer.yaml", {})


def _plan() -> tuple[str, Plan]:
    """The command that the Deployment's comment names, and what it says."""
    (command,) = re.findall(r"kvindexer (plan [-\w .]+?) says", TEXTS[FOLDER / "base" / "deployment.yaml"])
    given = build_parser("1").parse_args(command.split())
    names = {"engines", "blocks", "rate", "lookups", "replicas"}
    return command, planned(Wanted(**{name: getattr(given, name) for name in names}), MEASURED)


def _mib(quantity: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(\w+)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * {"Mi": 1, "mb": 1, "Gi": 1024}[unit]


@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda folder: folder.relative_to(FOLDER).as_posix())
def test_a_kustomization_names_what_is_there(folder: Path) -> None:
    """Each resource and component is a file, or a folder with a kustomization of its own; and no file is left out."""
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    patches = [each["path"] for each in said.get("patches", []) if "path" in each]
    settings = [file for each in said.get("configMapGenerator", []) for file in each["files"]]
    named = [*said.get("resources", []), *said.get("components", []), *patches, *settings]
    folders = [name for name in named if not name.endswith(".yaml")]

    assert [] == [name for name in folders if not (folder / name / "kustomization.yaml").is_file()]
    assert {each.name for each in folder.glob("*.yaml")} - {"kustomization.yaml"} == set(named) - set(folders)


def test_each_image_has_a_version_and_ours_is_this_one() -> None:
    """Never the latest, whatever that is; where a manifest leaves ours out its kustomization sets it."""
    found = [
        (file, image) for file, text in TEXTS.items() for image in re.findall(r"^\s+image: (\S+)", text, re.MULTILINE)
    ]
    ours = {file for file, image in found if image.split(":")[0] == "kvindexer"}
    set_to = {
        file.parent: each["newTag"]
        for file, text in TEXTS.items()
        if file.name == "kustomization.yaml"
        for each in yaml.safe_load(text).get("images", [])
    }

    assert [] == [(file, image) for file, image in found if file not in ours and ":" not in image]
    assert [] == [(file, image) for file, image in found if image.endswith(":latest")]
    assert set_to == dict.fromkeys({file.parent for file in ours}, VERSION)
    assert {image for _, image in found if image.startswith("kvindexer:")} <= {f"kvindexer:{VERSION}"}


def test_no_secret_stands_in_the_tree() -> None:
    """They are named, and made by whoever has them."""
    kinds = {each["kind"] for text in TEXTS.values() if "kind:" in text for each in yaml.safe_load_all(text)}

    assert {"Deployment", "StatefulSet"} <= kinds
    assert "Secret" not in kinds
    for variable in (STORE["env"][0], VALKEY["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["env"][0]):
        assert "kvindexer-store" == variable["valueFrom"]["secretKeyRef"]["name"]


def test_the_settings_are_some_and_name_the_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read by the service, from the file that it is told; with a store's address beside them, too."""
    generator = yaml.safe_load(TEXTS[FOLDER / "base" / "kustomization.yaml"])["configMapGenerator"][0]
    (mount,) = CONTAINER["volumeMounts"]
    file = tmp_path / "kvindexer.yaml"
    file.write_text(TEXTS[FOLDER / "base" / "kvindexer.yaml"])
    for variable in STORE["env"]:
        monkeypatch.setenv(variable["name"], "redis://:p@store" if variable["name"].endswith("URL") else "kvindexer-1")
    args = [str(file) if each == f"{mount['mountPath']}/{file.name}" else each for each in CONTAINER["args"]]
    with_store = _settings(build_parser("1").parse_args(args))
    server = _base_settings().server

    assert str(file) in args
    assert (generator["name"], [file.name]) == (POD["spec"]["volumes"][0]["configMap"]["name"], generator["files"])
    assert {"http": server.port, "grpc": server.grpc_port} == PORTS
    assert "0.0.0.0" == server.host  # noqa: S104  what is wanted in a pod
    assert ("redis://:p@store", "kvindexer-1") == (with_store.redis.url, with_store.redis.replica)
    assert _base_settings().sources == with_store.sources


def test_a_pod_is_given_the_time_that_its_stop_takes() -> None:
    """The grace covers both waits of the stop, and the first one is longer than readiness takes to be seen."""
    server, ready = _base_settings().server, CONTAINER["readinessProbe"]

    assert server.lame_duck_s + server.drain_s + MARGIN_S <= POD["spec"]["terminationGracePeriodSeconds"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < server.lame_duck_s
    assert server.ready_wait_s < BASE["spec"]["progressDeadlineSeconds"]
    assert {"maxUnavailable": 0, "maxSurge": 1} == BASE["spec"]["strategy"]["rollingUpdate"]


def test_whatever_selects_the_pods_finds_them() -> None:
    """By their labels and the names of their ports."""
    service, monitor = _one("base/service.yaml"), _one("components/service-monitor/service-monitor.yaml")
    selectors = [
        BASE["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        _one("base/disruption-budget.yaml")["spec"]["selector"]["matchLabels"],
        _one("base/network-policy.yaml")["spec"]["podSelector"]["matchLabels"],
        _one("components/store/network-policy.yaml")["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in POD["spec"]["topologySpreadConstraints"]),
    ]
    probes = {kind: CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}

    assert [] == [each for each in selectors if not each or not each.items() <= LABELS.items()]
    assert PORTS == {each["targetPort"]: each["port"] for each in service["spec"]["ports"]}
    assert {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"} == {
        kind: each["path"] for kind, each in probes.items() if each["port"] == "http"
    }
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [("http", "/metrics")] == [(each["port"], each["path"]) for each in monitor["spec"]["endpoints"]]
    assert _one("base/service-account.yaml")["metadata"]["name"] == POD["spec"]["serviceAccountName"]


def _pods() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What of ours, and of the store, runs in a pod, by the file that says so: the pod, and the container."""
    templates = {
        path: document["spec"]["template"]["spec"]
        for path in ("base/deployment.yaml", "components/valkey/valkey.yaml", *PODS_OF_OTHERS)
        for kind, document in _documents(path).items()
        if kind in {"Deployment", "StatefulSet"}
    }
    return {path: (pod, pod["containers"][-1]) for path, pod in templates.items()}


@pytest.mark.parametrize("path", sorted(_pods()))
def test_a_pod_has_no_rights_that_it_does_not_need(path: str) -> None:
    """No root, nothing that can be written, no capability; a token of the cluster where engines are looked for."""
    pod, container = _pods()[path]
    context = {**pod["securityContext"], **container["securityContext"]}

    assert container["name"] in {"kvindexer", "valkey"}
    assert pod["automountServiceAccountToken"] is (path == "base/deployment.yaml")
    assert {"type": "RuntimeDefault"} == context["seccompProfile"]
    assert (True, True, False) == tuple(
        context[name] for name in ("runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation")
    )
    assert not context.get("privileged")
    assert ["ALL"] == context["capabilities"]["drop"]
    assert "memory" in container["resources"]["limits"]


def test_what_is_requested_is_what_was_measured() -> None:
    """For the fleet that the comment names, with the figures that it gives."""
    command, plan = _plan()
    items = {each.name: each for each in plan.each_replica}
    memory_mib, cores = items["memory"].value, items["CPU"].value
    requests = CONTAINER["resources"]["requests"]

    assert [] == plan.trouble, command
    assert f"says {cores:.2f} cores and {memory_mib:.0f} MiB" in TEXTS[FOLDER / "base" / "deployment.yaml"]
    assert memory_mib <= _mib(requests["memory"])
    assert cores <= float(requests["cpu"])


def test_the_store_keeps_what_it_is_given_and_has_room_for_it() -> None:
    """It evicts nothing; it holds what the plan says; its container, more."""
    (container,) = VALKEY["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    options = dict(each.removeprefix("--").split(" ", 1) for each in container["args"])
    planned_mib = next(each.value for each in _plan()[1].store if each.name == "memory")
    urls = re.findall(r"url=(\S+)", TEXTS[FOLDER / "overlays" / "redis" / "kustomization.yaml"])
    (port,) = VALKEY["Service"]["spec"]["ports"]

    assert "noeviction" == options["maxmemory-policy"]
    assert f"says {planned_mib:.0f}mb" in TEXTS[FOLDER / "components" / "valkey" / "valkey.yaml"]
    assert planned_mib <= _mib(options["maxmemory"]) < _mib(container["resources"]["limits"]["memory"])
    assert [f"redis://:PASSWORD@{VALKEY['Service']['metadata']['name']}:{port['port']}"] == urls
    assert VALKEY["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == LABELS
    assert [{"port": port["port"]}] == _one("components/store/network-policy.yaml")["spec"]["egress"][0]["ports"]


def test_the_engines_are_found_by_the_settings() -> None:
    """Their pods have the labels, and say where they publish, which they may be reached at; and what they serve."""
    settings = _base_settings().discovery.kubernetes
    template = ENGINES["StatefulSet"]["spec"]["template"]
    made = {"metadata": {"name": "vllm-0", **template["metadata"]}, "spec": {**template["spec"], "subdomain": "vllm"}}
    (source,) = picture(told(made), of=rules(settings)).found.values()
    args = ENGINE["args"]
    events = json.loads(args[args.index("--kv-events-config") + 1])
    ports = {each["name"]: each["containerPort"] for each in ENGINE["ports"]}
    allowed = _one("base/network-policy.yaml")["spec"]["egress"][-1]

    assert settings.selector == ",".join(f"{key}={value}" for key, value in template["metadata"]["labels"].items())
    assert (f"tcp://10.0.0.1:{ports['events']}", f"tcp://10.0.0.1:{ports['replay']}") == (
        source.descriptor.endpoint,
        source.descriptor.replay_endpoint,
    )
    assert (f"10.0.0.1:{ports['http']}", "llama") == (source.descriptor.pod, source.descriptor.model)
    assert f"vllm-0.vllm:{ports['http']}" in source.descriptor.aliases
    assert events["topic"] == f"kv@$(POD_NAME).vllm:{ports['http']}@{source.descriptor.model}"
    assert ENGINES["StatefulSet"]["spec"]["serviceName"] == ENGINES["Service"]["metadata"]["name"]
    assert "--enable-prefix-caching" in args
    assert allowed["to"][0]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert set(ports.values()) == {each["port"] for each in allowed["ports"]}


def test_the_account_may_see_pods_and_nothing_else() -> None:
    """In the namespace of the overlay; the pod has its token, and is let out to the API."""
    access = _documents("base/access.yaml")
    account, (subject,) = _one("base/service-account.yaml"), access["RoleBinding"]["subjects"]
    out = [each["port"] for each in _one("base/network-policy.yaml")["spec"]["egress"][1]["ports"]]

    assert [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}] == access["Role"]["rules"]
    assert ("Role", access["Role"]["metadata"]["name"]) == tuple(
        access["RoleBinding"]["roleRef"][name] for name in ("kind", "name")
    )
    assert (account["kind"], account["metadata"]["name"]) == (subject["kind"], subject["name"])
    assert account["metadata"]["name"] == POD["spec"]["serviceAccountName"]
    assert account["automountServiceAccountToken"] is False
    assert [443, 6443] == out


@pytest.mark.parametrize("overlay", ["cluster", "memory", "redis", "sidecar"])
def test_an_overlay_says_its_namespace(overlay: str) -> None:
    """All of it lies there, and so does the account that is given rights, whose namespace no command fills in."""
    said = yaml.safe_load(TEXTS[FOLDER / "overlays" / overlay / "kustomization.yaml"])

    assert "default" == said["namespace"]
    assert "default" == _documents("base/access.yaml")["RoleBinding"]["subjects"][0]["namespace"]


@pytest.mark.parametrize("path", sorted(SHAPES))
def test_what_kubernetes_itself_does_not_know_has_its_shape(path: str) -> None:
    """No field is unknown there, none that is wanted is missing."""
    document, (version, shape) = _one(path), SHAPES[path]

    assert version == document["apiVersion"]
    assert [] == _problems(document["spec"], shape, "spec")


def test_both_autoscalers_mean_the_same_and_what_is_counted() -> None:
    """The Deployment, within the same bounds and as slowly; the metric is one of ours, the threshold is measured."""
    target = AUTOSCALER["scaleTargetRef"]
    (trigger,) = SCALED["triggers"]
    metric = re.search(r"kvindexer_\w+", trigger["metadata"]["query"])
    budget = AUTOSCALER["metrics"][0]["resource"]["target"]["averageUtilization"] / 100

    assert (BASE["kind"], BASE["metadata"]["name"]) == (target["kind"], target["name"])
    assert BASE["metadata"]["name"] == SCALED["scaleTargetRef"]["name"]
    assert (AUTOSCALER["minReplicas"], AUTOSCALER["maxReplicas"]) == (
        SCALED["minReplicaCount"],
        SCALED["maxReplicaCount"],
    )
    assert AUTOSCALER["behavior"] == SCALED["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert metric
    assert metric[0] in ADVICE
    assert float(trigger["metadata"]["threshold"]) * MEASURED.lookup_us[8192] / 1e6 <= budget
