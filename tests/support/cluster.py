"""A cluster as its operator and its kubelets see it, over the API server's own HTTP: whichever server that is."""

from __future__ import annotations

import itertools
import json
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.support.pods import pod, running, status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.pods import Object

NAMESPACE: Final = "serving"
DEADLINE_S: Final = 30.0
MERGE: Final = "application/merge-patch+json"


class ApiServer(Protocol):
    """A server that a test can be run against: the fake one, or a real one with etcd behind it."""

    kind: str
    url: str
    admin_token: str
    """May do everything."""
    token_file: Path
    """Of the account that the service has: get, list and watch of pods in `NAMESPACE`, and nothing else."""
    ca_file: Path | None

    def forget(self) -> None:
        """What happened so far is forgotten: who asks to go on from there is told 410."""
        ...

    def cut(self) -> None:
        """End all connections, as where the server is killed; it is there again at once, at the same place."""
        ...


class Cluster:
    """Pods in `NAMESPACE`, and what their kubelets tell of them."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._tls = None
        if server.ca_file is not None:
            self._tls = ssl.create_default_context(cafile=str(server.ca_file))
        self._ids = itertools.count(1)

    def run(self, name: str, ip: str | None, made: Object | None = None, **of_status: Any) -> Object:  # noqa: ANN401  parts of a status
        """A pod that is started and, unless it is said otherwise, runs and is ready."""
        made = made if made is not None else pod(name)
        made["metadata"] |= {"name": name, "namespace": NAMESPACE}
        self.call("POST", "", made)
        if ip is None:
            return made
        return self.tell(name, ip, **of_status)

    def tell(self, name: str, ip: str, **of_status: Any) -> Object:  # noqa: ANN401  as above
        """As its kubelet tells of it from now on."""
        of_status.setdefault("vllm", self.process())
        return self.call("PATCH", f"/{name}/status", {"status": status(ip, **of_status)})

    def process(self, started: str | None = None) -> Object:
        """Of a container: it runs another process than ever before."""
        started = started or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return running(started, f"containerd://{next(self._ids):012x}{0:052x}")

    def patch(self, name: str, what: Mapping[str, Any]) -> Object:
        """Labels, annotations."""
        return self.call("PATCH", f"/{name}", what)

    def delete(self, name: str, grace_s: int | None = None) -> None:
        """With grace it is terminating until its kubelet says that it is over, by deleting it with 0."""
        self.call("DELETE", f"/{name}", {} if grace_s is None else {"gracePeriodSeconds": grace_s})

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        """Of the admin."""
        request = urllib.request.Request(  # noqa: S310  a test's own server
            f"{self._server.url}/api/v1/namespaces/{NAMESPACE}/pods{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "authorization": f"Bearer {self._server.admin_token}",
                "content-type": MERGE if method == "PATCH" else "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=self._tls) as answer:  # noqa: S310
            told: Object = json.load(answer)
        return told
