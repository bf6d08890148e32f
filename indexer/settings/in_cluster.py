"""Where a Kubernetes cluster's API server is, as the settings say or as a pod is told. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.settings.kubernetes_rules import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.settings.discovery import Kubernetes

HOST_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
PORT_VARIABLE: Final = "KUBERNETES_SERVICE_PORT"
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the token of its service account, who vouches for the API server, and its namespace."""


class Access(NamedTuple):
    """How the API server is reached. Files are paths, read when they are needed: their contents change."""

    url: str
    token_file: str | None
    ca_file: str | None
    namespace_file: str | None
    """Where the namespace to look in stands; None: `namespaces` are given."""


def access_of(settings: Kubernetes, environment: Mapping[str, str]) -> Access | None:
    """None where this is no pod and no `url` is set."""
    namespace_file = None if settings.namespaces else f"{ACCOUNT}/namespace"
    if settings.url is not None:
        return Access(settings.url.rstrip("/"), settings.token_file, settings.ca_file, namespace_file)
    host, port = environment.get(HOST_VARIABLE), environment.get(PORT_VARIABLE, "443")
    if not host or not port.isdigit():
        return None
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        settings.token_file or f"{ACCOUNT}/token",
        settings.ca_file or f"{ACCOUNT}/ca.crt",
        namespace_file,
    )


def is_one_namespace(settings: Kubernetes) -> bool:
    """Whether names of pods are unique."""
    return len(settings.namespaces) <= 1 and EVERYWHERE not in settings.namespaces
