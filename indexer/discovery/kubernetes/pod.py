"""[pure] A pod as the API server tells it, as far as it is read here: fields that are not named are skipped unread.

Names are those of the Kubernetes API. A `Pod` lives for as long as one event is handled; what is kept of it is a
`Reading` (reading.py), which holds no argument and no value of its environment.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec


class _Part(msgspec.Struct, rename="camel"):
    """Of the answer of an API server. What is null there is as if it were left out."""


class Metadata(_Part):
    """Of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _FieldRef(_Part):
    field_path: str = ""


class _ValueFrom(_Part):
    field_ref: _FieldRef | None = None


class Variable(_Part):
    """Of a container's environment."""

    name: str = ""
    value: str | None = None
    value_from: _ValueFrom | None = None


class Container(_Part):
    """As it was asked for."""

    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None


class Spec(_Part):
    """A pod as it was asked for."""

    containers: list[Container] = []
    hostname: str | None = None
    subdomain: str | None = None
    node_name: str | None = None
    host_network: bool | None = None


class _Running(_Part):
    started_at: str | None = None


class _Waiting(_Part):
    reason: str | None = None


class _Terminated(_Part):
    reason: str | None = None
    started_at: str | None = None
    container_id: str | None = msgspec.field(default=None, name="containerID")


class ContainerState(_Part):
    """One of three."""

    running: _Running | None = None
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class ContainerStatus(_Part):
    """A container as its node tells of it."""

    name: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class Condition(_Part):
    """Something that holds of a pod, or does not."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class Status(_Part):
    """A pod as its node tells of it."""

    phase: str = ""
    reason: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class Pod(_Part):
    """One."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)


class _Continue(_Part):
    resource_version: str = ""
    token: str | None = msgspec.field(default=None, name="continue")


class PodPage(_Part):
    """A part of a list. Its pods are read one by one: one that cannot be read costs no other."""

    metadata: _Continue
    items: list[msgspec.Raw] | None = None


class WatchEvent(_Part):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class _Named(_Part):
    metadata: Metadata


class Failure(_Part):
    """What a `Status` object says: `code` as of HTTP."""

    code: int = 0
    reason: str | None = None


read_page: Final = msgspec.json.Decoder(PodPage).decode
read_pod: Final = msgspec.json.Decoder(Pod).decode
read_event: Final = msgspec.json.Decoder(WatchEvent).decode
read_named: Final = msgspec.json.Decoder(_Named).decode
read_failure: Final[Any] = msgspec.json.Decoder(Failure).decode
