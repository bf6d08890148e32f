"""An authority of the test's own, and the files that settings name."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from indexer.settings import Tls


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA(organization_name=name)
        self._folder = folder
        self.file = folder / f"{name}.pem"
        """For `--ca` and `auth.tls.client_ca`."""
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str = "127.0.0.1", *, files: str = "server") -> tuple[Path, Path]:
        """A certificate and its key, in files of that name, which are written over."""
        issued = self._ca.issue_cert(name)
        certificate, key = self._folder / f"{files}.pem", self._folder / f"{files}.key"
        certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key

    def tls(self, *, client_ca: Path | None = None) -> Tls:
        """Settings of a server with a certificate of this authority for loopback."""
        certificate, key = self.issue()
        return Tls(certificate=str(certificate), key=str(key), client_ca=None if client_ca is None else str(client_ca))

    def encrypted(self, key: Path) -> Path:
        """The same key in a file that takes a password."""
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        path = key.with_suffix(".encrypted")
        path.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"x"),
            )
        )
        return path
