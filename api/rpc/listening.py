"""[I/O] Where a gRPC server listens: all addresses of a host, on one port, and why not, where it cannot."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from indexer.errors import SettingsError

if TYPE_CHECKING:
    import grpc


class ListeningPlace:
    """`setting`: the name of what says which port. `schemes`: of addresses as told, without TLS and with it."""

    def __init__(self, host: str, port: int, *, setting: str, schemes: tuple[str, str]) -> None:
        self._host = host
        self._port = port
        self._setting = setting
        self._schemes = schemes

    def listen(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> list[str]:
        """The addresses. Raises `SettingsError`."""
        port, addresses = self._port, []
        for host in _hosts(self._host):
            self._check_free(host, port)
            try:
                if credentials is None:
                    port = server.add_insecure_port(f"{host}:{port}")
                else:
                    port = server.add_secure_port(f"{host}:{port}", credentials)
            except RuntimeError:
                raise SettingsError(self._setting, f"{port} on {host} cannot be had") from None
            addresses.append(f"{self._schemes[credentials is not None]}://{host}:{port}")
        return addresses

    def _check_free(self, host: str, port: int) -> None:
        """Raise `SettingsError`, with the reason, which gRPC does not tell."""
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host.strip("[]"), port))
            except OSError as error:
                why = {
                    errno.EADDRINUSE: f"{port} on {host} is in use by another process",
                    errno.EACCES: f"{port} is not open to this user; take one above 1023",
                }.get(error.errno or 0, f"{host}: {error.strerror}")
                raise SettingsError(self._setting, why) from None


def _hosts(host: str) -> list[str]:
    """The host's addresses, as gRPC writes them."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise SettingsError("server.host", f"{host} is no address or name known here") from None
    named = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return [f"[{address}]" if family == socket.AF_INET6 else address for family, address in named]
