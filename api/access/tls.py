"""[I/O] TLS for all faces: certificate and key from files, and callers' certificates where they are asked for.

The files are looked at with each new connection, so that a renewed certificate needs no restart. A pair that cannot be
used, as one of which only half is written yet, leaves the one before in force. Each version of the files has a context
of its own: no session of before is resumed under it.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from api.access.files import FileUnusable, content, marks
from indexer.errors import SettingsError
from indexer.log_lines import about

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from indexer.settings import Tls

HANDSHAKE_S: Final = 10.0
"""From an accepted connection to the end of its handshake. Beyond: it ends."""

_log = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """One version of the files, checked together."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext


class Certificates:
    """What `auth.tls` names, as it is now. May be asked from any thread."""

    def __init__(self, tls: Tls, read: Callable[[bool], None] | None = None) -> None:
        """`read`: called with whether changed files could be used. Raises `SettingsError` where there is no pair."""
        self._tls = tls
        self._read = read
        self._paths = [Path(path) for path in (tls.certificate, tls.key, tls.client_ca) if path is not None]
        self._marks = marks(self._paths)
        try:
            self._loaded = _load(tls)
        except FileUnusable as error:
            raise SettingsError("auth.tls", str(error)) from error

    def now(self) -> Loaded:
        """The newest usable version. What cannot be used is said once."""
        found = marks(self._paths)
        if found != self._marks:
            self._marks = found  # before reading: what is written meanwhile differs from this
            usable = self._read_anew()
            if self._read is not None:
                self._read(usable)
        return self._loaded

    def _read_anew(self) -> bool:
        try:
            self._loaded = _load(self._tls)
        except FileUnusable as error:
            _log.error(
                "auth.tls: the new files cannot be used, the old certificate stays: %s",
                error,
                extra=about("certificate_unusable"),
            )
            return False
        _log.info("auth.tls: the certificate was read anew", extra=about("certificate_read"))
        return True


class _Newest(ssl.SSLContext):
    """A context for listeners, each of whose connections is wrapped by the newest one."""

    certificates: Certificates

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Called once a connection."""
        context = self.certificates.now().context
        return context.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def listening_context(tls: Tls, read: Callable[[bool], None] | None = None) -> ssl.SSLContext | None:
    """For an asyncio server; None where no certificate is configured. `read` as above. Raises `SettingsError`."""
    if tls.certificate is None:
        return None
    context = _Newest(ssl.PROTOCOL_TLS_SERVER)
    context.certificates = Certificates(tls, read)
    return context


def grpc_credentials(tls: Tls) -> grpc.ServerCredentials | None:
    """The same for a gRPC server; None where no certificate is configured. Raises `SettingsError`."""
    if tls.certificate is None:
        return None
    import grpc  # noqa: PLC0415 - takes time, and a service without TLS does not need it here

    certificates = Certificates(tls)
    shown = certificates.now()

    def configuration(loaded: Loaded) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(loaded.key, loaded.certificate)], loaded.client_ca)

    def newest() -> grpc.ServerCertificateConfiguration | None:
        """Called with each handshake, in a thread of gRPC's: None where nothing changed."""
        nonlocal shown
        loaded = certificates.now()
        if loaded is shown:
            return None
        shown = loaded
        return configuration(loaded)

    return grpc.dynamic_ssl_server_credentials(
        configuration(shown),
        newest,  # type: ignore[arg-type]  # None is promised in its documentation
        require_client_authentication=tls.client_ca is not None,
    )


def _load(tls: Tls) -> Loaded:
    """Raises `FileUnusable`."""
    certificate, key = Path(str(tls.certificate)), Path(str(tls.key))
    client_ca = None if tls.client_ca is None else Path(tls.client_ca)
    loaded = Loaded(
        content(certificate),
        content(key),
        None if client_ca is None else content(client_ca),
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
    )
    context = loaded.context
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise FileUnusable(f"{certificate} and {key} are no pair of PEM files: {_why(error)}") from error
    if loaded.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cadata=loaded.client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise FileUnusable(f"{client_ca} holds no certificates in PEM form: {_why(error)}") from error
    return loaded


def _no_password() -> str:
    """An encrypted key is refused; without this, OpenSSL would ask on the terminal and wait."""
    return ""


def _why(error: Exception) -> str:
    """OpenSSL's reason; never the content of a file."""
    reason = getattr(error, "reason", None)
    return reason.lower().replace("_", " ") if isinstance(reason, str) else "no PEM is found in it"
