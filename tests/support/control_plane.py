"""A real etcd and a real kube-apiserver on loopback, as `make kube-apiserver` keeps them; no controllers, no kubelets.

What the service asks of Kubernetes it asks here: service accounts with tokens that end, RBAC, lists in pages, watches
with bookmarks, and revisions that etcd has compacted away.
"""

from __future__ import annotations

import contextlib
import ssl
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from tests.support.certificates import Authority
from tests.support.redis_servers import free_port, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BUILD: Final = Path(__file__).parents[1] / "k8s" / "apiserver" / "build.sh"
ADMIN: Final = "admin-of-the-test"
"""The token of whoever may do everything."""
DEADLINE_S: Final = 60.0
STOP_S: Final = 10.0
START_S: Final = 180.0
"""It takes four seconds of a core that it has for itself."""
_ISSUER: Final = "https://kubernetes.default.svc"


@cache
def programs() -> Path:
    """The folder that holds them. Fails where they were not built."""
    done = subprocess.run(["bash", BUILD, "--where"], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return Path(done.stdout.strip())


class ControlPlane:
    """A context manager. `options` are more words for kube-apiserver.

    Its address and its keys stay the same when it is killed and started again.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._programs, self._folder, self._options = programs(), folder, options
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        authority = Authority(folder)
        self.ca = authority.file
        """Of the authority that its certificate is from."""
        self._certificate, self._key = authority.issue()
        self._account_key = authority.issue(files="accounts")[1]
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n')
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._admin = self.client(ADMIN)

    def __enter__(self) -> Self:
        try:
            etcd = f"http://127.0.0.1:{self._etcd_port}"
            peer = f"http://127.0.0.1:{self._peer_port}"
            self._etcd = self._run(
                "etcd",
                f"--data-dir={self._folder / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            )
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()
        self.kill()
        if self._etcd is not None:
            _end(self._etcd)
            self._etcd = None

    @property
    def url(self) -> str:
        """Of the API."""
        return f"https://127.0.0.1:{self.port}"

    # -- its processes ------------------------------------------------------------------------------------------------

    def start(self, port: int | None = None) -> None:
        """The API server begins, at another port if one is given; returns when it is ready and has its namespaces."""
        assert self._server is None
        self._server = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=10.99.0.1",  # endpoints may not be loopback
            f"--secure-port={port or self.port}",
            f"--tls-cert-file={self._certificate}",
            f"--tls-private-key-file={self._key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-signing-key-file={self._account_key}",
            f"--service-account-key-file={self._account_key}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",  # pods of the tests have none
            f"--cert-dir={self._folder / 'certs'}",
            *self._options,
        )
        base = f"https://127.0.0.1:{port or self.port}"
        wait_for(lambda: self._is_ready(base), "kube-apiserver to be ready", START_S)

    def _is_ready(self, base: str) -> bool:
        for process, name in ((self._server, "kube-apiserver"), (self._etcd, "etcd")):
            assert process is not None
            assert process.poll() is None, self._log(name)
        try:
            return all(
                200 == self._admin.get(f"{base}{path}").status_code
                for path in ("/readyz", "/api/v1/namespaces/default")
            )
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """SIGKILL to the API server: connections end, and nothing listens there."""
        if self._server is not None:
            _end(self._server)
            self._server = None

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[str]:
        """Instead of where it was, at another address, until the block ends; nobody who watches it knows that one."""
        self.kill()
        port = free_port()
        self.start(port)
        try:
            with self._admin_at(port):
                yield f"https://127.0.0.1:{port}"
        finally:
            self.kill()

    @contextlib.contextmanager
    def _admin_at(self, port: int) -> Iterator[None]:
        self._admin.base_url = f"https://127.0.0.1:{port}"
        try:
            yield
        finally:
            self._admin.base_url = self.url

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen([self._programs / program, *words], stdout=log, stderr=log, cwd=self._folder)

    def _log(self, program: str) -> str:
        return (self._folder / f"{program}.log").read_text()[-3000:]

    # -- what it holds ------------------------------------------------------------------------------------------------

    def client(self, token: str) -> httpx.Client:
        """Of somebody with that token."""
        return httpx.Client(
            base_url=self.url,
            verify=ssl.create_default_context(cafile=self.ca),
            headers={"authorization": f"Bearer {token}"},
            timeout=DEADLINE_S,
        )

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
        allowed: Sequence[int] = (),
    ) -> dict[str, Any]:
        """As administrator. Any answer but a success fails, unless it is one of those that are allowed."""
        answered = self._admin.request(method, path, json=body, headers={"content-type": kind})
        assert answered.is_success or answered.status_code in allowed, f"{method} {path}: {answered.text}"
        told: dict[str, Any] = answered.json()
        return told

    def merge(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch."""
        return self.call("PATCH", path, body, kind="application/merge-patch+json")

    def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """A new one of that service account, as a kubelet projects it into a pod."""
        asked = {"spec": {"expirationSeconds": seconds, "audiences": [_ISSUER]}}
        told = self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)
        token: str = told["status"]["token"]
        return token

    def compact(self) -> None:
        """Revisions up to now are gone from etcd; they are some more than the API server knows of."""
        self._etcdctl("put", "/of-the-test", "x")
        told = self._etcdctl("get", "/of-the-test", "--write-out=fields")
        (revision,) = [line.split(":")[1].strip() for line in told.splitlines() if line.startswith('"Revision"')]
        self._etcdctl("compact", revision)

    def _etcdctl(self, *words: str) -> str:
        told = subprocess.run(
            [self._programs / "etcdctl", f"--endpoints=http://127.0.0.1:{self._etcd_port}", *words],
            env={"ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert 0 == told.returncode, told.stderr
        return told.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(STOP_S)
