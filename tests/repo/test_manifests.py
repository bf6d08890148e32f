"""The manifests in `k8s/inference-pool` are what the cluster's and the gateway's API take, and fit each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from indexer.settings import load

FOLDER: Final = Path(__file__).parents[2] / "k8s" / "inference-pool"
POD_PORT: Final = {"number!": int}
LABELS: Final = {str: str}
SHAPES: Final[dict[tuple[str, str], dict[Any, Any]]] = {
    ("inference.networking.k8s.io/v1", "InferencePool"): {
        "selector!": {"matchLabels!": LABELS},
        "targetPorts!": [POD_PORT],
        "appProtocol": {"http", "kubernetes.io/h2c"},
        "endpointPickerRef": {
            "group": str,
            "kind": str,
            "name!": str,
            "port": POD_PORT,
            "failureMode": {"FailOpen", "FailClose"},
        },
    },
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): {
        "parentRefs": [{"group": str, "kind": str, "namespace": str, "name!": str, "sectionName": str, "port": int}],
        "hostnames": [str],
        "rules": [
            {
                "matches": [{"path": {"type": {"PathPrefix", "Exact", "RegularExpression"}, "value": str}}],
                "backendRefs": [{"group": str, "kind": str, "name!": str, "port": int, "weight": int}],
                "timeouts": {"request": str, "backendRequest": str},
            }
        ],
    },
}
"""Of `spec`, as the resource definitions of both projects have it: `!` must be there, sets are the words allowed."""


def _documents() -> dict[str, dict[str, Any]]:
    """By kind; each kind stands once."""
    found = [each for file in FOLDER.glob("*.yaml") for each in yaml.safe_load_all(file.read_text())]
    assert len(found) == len({each["kind"] for each in found})
    return {each["kind"]: each for each in found}


DOCUMENTS: Final = _documents()
POOL, ROUTE = DOCUMENTS["InferencePool"], DOCUMENTS["HTTPRoute"]
SERVICE, DEPLOYMENT, CONFIG = DOCUMENTS["Service"], DOCUMENTS["Deployment"], DOCUMENTS["ConfigMap"]
POD: Final = DEPLOYMENT["spec"]["template"]
CONTAINER: Final = POD["spec"]["containers"][0]


def _problems(value: object, shape: object, at: str) -> list[str]:
    """What of a value is not of that shape."""
    if isinstance(shape, type):
        return [] if type(value) is shape else [f"{at}: {value!r} is no {shape.__name__}"]
    if isinstance(shape, set):
        return [] if value in shape else [f"{at}: {value!r} is none of {sorted(shape)}"]
    if isinstance(shape, list):
        if not isinstance(value, list) or not value:
            return [f"{at}: {value!r} is no list of some"]
        return [problem for i, each in enumerate(value) for problem in _problems(each, shape[0], f"{at}[{i}]")]
    assert isinstance(shape, dict)
    if not isinstance(value, dict):
        return [f"{at}: {value!r} is no map"]
    if str in shape:
        return [problem for name, each in value.items() for problem in _problems(each, shape[str], f"{at}.{name}")]
    known = {name.removesuffix("!"): each for name, each in shape.items()}
    lacking = [f"{at}.{name[:-1]} is not there" for name in shape if name.endswith("!") and name[:-1] not in value]
    unknown = [f"{at}.{name} is unknown" for name in value if name not in known]
    both = value.keys() & known.keys()
    return lacking + unknown + [each for name in both for each in _problems(value[name], known[name], f"{at}.{name}")]


@pytest.mark.parametrize("kind", sorted(kind for _, kind in SHAPES))
def test_a_resource_is_of_the_shape_that_its_definition_has(kind: str) -> None:
    """Of that version, with no field that is unknown there."""
    document = DOCUMENTS[kind]
    shape = SHAPES[document["apiVersion"], kind]

    assert [] == _problems(document["spec"], shape, "spec")


def test_the_shapes_tell_the_old_fields_from_the_new() -> None:
    """What v1alpha2 had is unknown, and what v1 wants is missed."""
    old = {"selector": {"app": "llama"}, "targetPortNumber": 8000, "extensionRef": {"name": "kvindexer"}}
    problems = _problems(old, SHAPES[POOL["apiVersion"], "InferencePool"], "spec")

    assert {"spec.targetPorts is not there", "spec.targetPortNumber is unknown", "spec.extensionRef is unknown"} <= set(
        problems
    )
    assert "spec.selector.matchLabels is not there" in problems


def test_the_pool_names_the_picker_and_goes_on_without_it() -> None:
    """By a port of its service that leads to the port where the picker listens; the route leads to the pool."""
    picker = POOL["spec"]["endpointPickerRef"]
    (port,) = (each for each in SERVICE["spec"]["ports"] if each["port"] == picker["port"]["number"])
    (backend,) = ROUTE["spec"]["rules"][0]["backendRefs"]

    assert (SERVICE["metadata"]["name"], "FailOpen") == (picker["name"], picker["failureMode"])
    assert ("epp", "http2") == (port["targetPort"], port["appProtocol"])
    assert POOL["apiVersion"].split("/")[0] == backend["group"]
    assert ("InferencePool", POOL["metadata"]["name"]) == (backend["kind"], backend["name"])


def test_the_service_finds_the_pod_and_each_of_its_ports() -> None:
    """By label and by name; probes, too."""
    named = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    probed = [CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]

    assert SERVICE["spec"]["selector"].items() <= POD["metadata"]["labels"].items()
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    assert set() == {each["targetPort"] for each in SERVICE["spec"]["ports"]} - named.keys()
    assert [("/healthz", "http"), ("/readyz", "http")] == [(each["path"], each["port"]) for each in probed]


def test_the_settings_of_the_picker_are_some(tmp_path: Path) -> None:
    """They are read by the service, from the file that it is told, and name the ports that the pod shows."""
    (name, text), (mount,) = next(iter(CONFIG["data"].items())), CONTAINER["volumeMounts"]
    file = tmp_path / name
    file.write_text(text)
    settings = load(file, {})
    named = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}

    assert ["serve", "--config", f"{mount['mountPath']}/{name}"] == CONTAINER["args"]
    assert CONFIG["metadata"]["name"] == POD["spec"]["volumes"][0]["configMap"]["name"]
    assert "epp" in settings.server.roles
    assert (settings.server.epp_port, settings.server.port) == (named["epp"], named["http"])
    assert (f"tcp://*:{named['events']}",) == settings.events.source_bind
