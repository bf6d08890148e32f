"""Pods as a kubelet and an operator write them: JSON objects of the Kubernetes API, made of a few words."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Object = dict[str, Any]
LABELS: Final = {"app": "vllm"}
STARTED: Final = "2026-11-30T10:00:00Z"
LATER: Final = "2026-11-30T10:05:00Z"


def events_config(port: int = 5557, replay: int | None = None, **others: object) -> str:
    """What stands behind `--kv-events-config`."""
    said: dict[str, object] = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{port}"}
    if replay is not None:
        said["replay_endpoint"] = f"tcp://*:{replay}"
    return json.dumps({**said, **others})


def engine_args(port: int = 8000, events: str | None = None, *others: str, model: str = "llama") -> list[str]:
    """Of an image whose entry point is `vllm serve`."""
    return [
        "--model",
        "meta/llama-8b",
        "--served-model-name",
        model,
        f"--port={port}",
        "--kv-events-config",
        events_config() if events is None else events,
        *others,
    ]


def container(name: str = "vllm", args: Sequence[str] | None = None, **others: object) -> Object:
    """As a pod asks for it."""
    return {"name": name, "image": "engine", "args": engine_args() if args is None else list(args), **others}


def pod(
    name: str = "vllm-0",
    *containers: Object,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "serving",
    **spec: object,
) -> Object:
    """As an operator creates it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**LABELS, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"containers": list(containers) or [container()], "nodeName": "node-1", **spec},
    }


def running(started: str = STARTED, container_id: str = "containerd://" + "a1" * 32) -> Object:
    """Of a container's status."""
    return {"ready": True, "containerID": container_id, "state": {"running": {"startedAt": started}}}


def waiting(
    started: str = STARTED, container_id: str = "containerd://" + "a1" * 32, why: str = "CrashLoopBackOff"
) -> Object:
    """It ended, and is not back yet."""
    return {
        "ready": False,
        "containerID": container_id,
        "state": {"waiting": {"reason": why, "message": "back-off"}},
        "lastState": terminated(started, container_id)["state"],
    }


def terminated(started: str = STARTED, container_id: str = "containerd://" + "a1" * 32, why: str = "Error") -> Object:
    """It ended."""
    ended = {"startedAt": started, "finishedAt": LATER, "reason": why, "exitCode": 1, "containerID": container_id}
    return {"ready": False, "containerID": container_id, "state": {"terminated": ended}}


def status(
    ip: str | None = "10.0.0.1",
    *,
    ready: bool = True,
    phase: str = "Running",
    why: str | None = None,
    **of_containers: Object,
) -> Object:
    """As its node tells of it; `vllm` alone runs where nothing is said of containers."""
    statuses = [
        {"name": name, "restartCount": 0, "image": "engine", "imageID": "", **told}
        for name, told in (of_containers or {"vllm": running()}).items()
    ]
    condition = {"type": "Ready", "status": "True" if ready else "False", **({"reason": why} if why else {})}
    told: Object = {"phase": phase, "conditions": [condition], "containerStatuses": statuses}
    if ip is not None:
        told |= {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "192.0.2.1"}
    return told


def told(made: Object, its_status: Object | None = None, *, uid: str = "uid-1", deleted: bool = False) -> Object:
    """As an API server tells it."""
    out = copy.deepcopy(made)
    out["metadata"] |= {"uid": uid, "resourceVersion": "7", "creationTimestamp": STARTED}
    if deleted:
        out["metadata"] |= {"deletionTimestamp": LATER, "deletionGracePeriodSeconds": 30}
    out["status"] = status() if its_status is None else its_status
    return out
