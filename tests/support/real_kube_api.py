"""A real kube-apiserver as tests of discovery want an API server (`tests.support.cluster.ApiServer`).

The account of the service is made by what `k8s/base` ships: its ServiceAccount, Role and RoleBinding. A proxy stands
before the server, by which connections end while it goes on.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import yaml

from tests.support.cluster import NAMESPACE
from tests.support.control_plane import ADMIN, ControlPlane
from tests.support.proxy import ProxyThread
from tests.support.redis_servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE: Final = Path(__file__).parents[2] / "k8s" / "base"
ACCOUNT: Final = "kvindexer"
_PLACES: Final = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
_EXISTS: Final = 409


class RealApiServer:
    """In front of a control plane, which may be there for many tests."""

    kind = "real"
    admin_token = ADMIN

    def __init__(self, plane: ControlPlane, folder: Path, proxy: ProxyThread) -> None:
        self.plane = plane
        self._proxy = proxy
        self.url = f"https://127.0.0.1:{proxy.port}"
        self.ca_file: Path | None = plane.ca
        self.token_file = folder / "token"
        self._pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self._prepare()

    def _prepare(self) -> None:
        """A namespace without pods, and the account that may look at them."""
        self.plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, allowed=[_EXISTS])
        for document in _documents(BASE):
            place = _PLACES.get(document["kind"])
            if place is not None:
                self.plane.call("POST", place.format(NAMESPACE), document, allowed=[_EXISTS])
        for pod in self.plane.call("GET", self._pods)["items"]:
            self.plane.call("DELETE", f"{self._pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        self.renew_token()
        wait_for(lambda: self._status() == httpx.codes.OK, "the account to be permitted")

    def renew_token(self) -> None:
        """Another one stands in the file."""
        self.token_file.write_text(self.plane.token(NAMESPACE, ACCOUNT))

    def revoke_tokens(self) -> None:
        """Those that were issued count no more: the account is another one of the same name."""
        place = f"{_PLACES['ServiceAccount'].format(NAMESPACE)}"
        (account,) = [d for d in _documents(BASE) if (d["kind"], d["metadata"]["name"]) == ("ServiceAccount", ACCOUNT)]
        self.plane.call("DELETE", f"{place}/{ACCOUNT}")
        self.plane.call("POST", place, account)
        wait_for(lambda: self._status() == httpx.codes.UNAUTHORIZED, "the token to be refused")

    def _status(self) -> int:
        """Of a list of pods with the token in the file."""
        with self.plane.client(self.token_file.read_text()) as client:
            return client.get(self._pods, params={"limit": 1}).status_code

    def forget(self) -> None:
        """The server is killed, etcd forgets its history, and the server is back."""
        self.plane.kill()
        self.plane.compact()
        self.plane.start()

    def cut(self) -> None:
        """All connections end; the server goes on."""
        self._proxy.set("reset")
        self._proxy.set("pass")


def _documents(folder: Path) -> list[dict[str, Any]]:
    """Of all files in a folder that are objects, as kustomize makes them of those: in the namespace."""
    found = [document for path in sorted(folder.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]
    objects = [document for document in found if document and "kind" in document and "metadata" in document]
    for document in objects:
        for subject in document.get("subjects", ()):
            subject["namespace"] = NAMESPACE
    return objects


@contextlib.contextmanager
def real_api_server(plane: ControlPlane, folder: Path) -> Iterator[RealApiServer]:
    """One that runs until the block ends."""
    with ProxyThread(plane.port) as proxy:
        yield RealApiServer(plane, folder, proxy)
