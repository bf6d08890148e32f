"""[I/O] Serves the faces: sockets up together, down together: REST over TCP and a Unix socket, gRPC, endpoint picker.

Signals are none of its business: whoever calls `serve` sets `stop`. From then on `/readyz` says 503, new work is
refused by closing the listeners, what runs may end within `drain_s`, then everything is cut. Nothing of it is left
when `serve` returns, also when it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from api.access.gates import Gates, open_gates, socket_gates
from api.access.tls import grpc_credentials, listening_context
from api.admission import Shares
from api.epp.limits import EppLimits
from api.pending import Pending
from api.ports import NodePort
from api.rest.app import create_app
from api.rest.arrivals import Arrivals
from api.rest.connections import Connections
from api.rest.front import Front
from api.rest.heads import KnownHeads
from api.rest.lane import LookupLaneProtocol
from api.rest.limits import RestLimits
from api.rest.reads import reading
from api.rest.readying import Readying
from api.rpc.limits import RpcLimits
from api.tls_listener import TlsListener
from api.unix_listener import unix_socket
from api.uvicorn_parts import Config, Server
from indexer.errors import SettingsError
from indexer.settings import Tls

if TYPE_CHECKING:
    from api.epp.server import EppServer
    from api.rpc.server import RpcServer

CUT_WAIT_S = 5
"""From cut connections to cancelled tasks."""
HURRY_S: Final = 0.3
"""Of the drain, left for the answers to those who wait for the tokens of a text to the last."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, and how to end.

    `port`, `grpc_port` and `epp_port` 0 take a free one; without the first REST is served at `uds` alone, without the
    last two there is no gRPC and no endpoint picker. `uds_anonymous`: who shows no token there is let in
    (`socket_gates`).
    `keep_alive_s`: idle connections of routers are kept longer than their pools keep them.
    `lame_duck_s`: from `/readyz` 503 to closed listeners, for load balancers that look now and then.
    """

    host: str = "127.0.0.1"
    port: int | None = 8080
    uds: str | None = None
    uds_anonymous: bool = False
    slim: bool = False
    """For a process that is to take little memory (api/rest/app.py)."""
    grpc_port: int | None = None
    epp_port: int | None = None
    drain_s: float = 5.0
    lame_duck_s: float = 0.0
    keep_alive_s: float = 75
    backlog: int = 2_048
    limits: RestLimits = RestLimits()
    tls: Tls = Tls()
    """For the TCP sockets. The Unix socket stays plain: its file's permissions say who may."""
    rpc_limits: RpcLimits = RpcLimits()
    epp_limits: EppLimits = EppLimits()


async def serve(
    node: NodePort,
    settings: ServerSettings,
    stop: asyncio.Event,
    *,
    gates: Gates | None = None,
    announce: Callable[[Sequence[str]], None] = lambda _: None,
) -> None:
    """Serve until `stop` is set. Raises `SettingsError` when an address or a certificate cannot be had.

    `announce` is called once, when connections are accepted, with the addresses: `http://127.0.0.1:8080`, `unix:/path`,
    `grpc://127.0.0.1:50051`, `epp://127.0.0.1:9002`.
    """
    stopping = asyncio.Event()
    gates = gates or open_gates()
    gates.access.count(lambda usable: node.count_reload("tokens", usable=usable))
    readying = Readying(node, settings.limits, stopping)

    def application(gates: Gates) -> Front:
        return create_app(node, settings.limits, stopping=stopping, gates=gates, readying=readying, slim=settings.slim)

    tls = listening_context(settings.tls, lambda usable: node.count_reload("tls", usable=usable))
    async with contextlib.AsyncExitStack() as stack:
        sockets = stack.enter_context(_listeners(settings))
        rpc, rpc_addresses = await stack.enter_async_context(_rpc(node, settings, gates, readying))
        epp, epp_addresses = await stack.enter_async_context(_epp(node, settings, gates, readying))
        addresses = [*(_address(sock, tls) for sock in sockets), *rpc_addresses, *epp_addresses]
        configs, limits = _configs(application, gates, settings, readying.pending, node.limit_reached), settings.limits
        shaking = Shares("limits.handshakes", limits.handshakes, reached=node.limit_reached)
        tasks = asyncio.TaskGroup()
        server = _Server(configs, tasks, tls, shaking, lambda: announce(addresses))
        try:
            async with tasks:
                running = tasks.create_task(server.serve(sockets), name="rest")
                watching = tasks.create_task(_end(server, stop, stopping, readying, settings), name="rest-stop")
                if rpc is not None:
                    tasks.create_task(rpc.run(stop), name="rpc")
                if epp is not None:
                    tasks.create_task(epp.run(stop), name="epp")
                looking = tasks.create_task(gates.access.watch(), name="tokens")
                await running
                watching.cancel()
                looking.cancel()
        finally:
            server.cut()


@contextlib.asynccontextmanager
async def _rpc(
    node: NodePort, settings: ServerSettings, gates: Gates, readying: Readying
) -> AsyncIterator[tuple[RpcServer | None, list[str]]]:
    """The gRPC server, where one is wanted, and its addresses."""
    if settings.grpc_port is None:
        yield None, []
        return
    from api.rpc.server import RpcSettings, rpc_server  # noqa: PLC0415 - 20 MB and 0.2 s, only where it is served

    wanted = RpcSettings(
        host=settings.host,
        port=settings.grpc_port,
        drain_s=settings.drain_s,
        lame_duck_s=settings.lame_duck_s,
        pod_scores=gates.faces,
        limits=settings.rpc_limits,
    )
    credentials = grpc_credentials(settings.tls)
    async with rpc_server(node, wanted, access=gates.access, credentials=credentials, readying=readying) as started:
        yield started


@contextlib.asynccontextmanager
async def _epp(
    node: NodePort, settings: ServerSettings, gates: Gates, readying: Readying
) -> AsyncIterator[tuple[EppServer | None, list[str]]]:
    """The endpoint picker, where one is wanted and may be, and its addresses."""
    if settings.epp_port is None or not gates.faces:
        yield None, []
        return
    from api.epp.server import EppSettings, epp_server  # noqa: PLC0415 - as above

    wanted = EppSettings(
        host=settings.host,
        port=settings.epp_port,
        drain_s=settings.drain_s,
        lame_duck_s=settings.lame_duck_s,
        limits=settings.epp_limits,
    )
    async with epp_server(node, wanted, readying, credentials=grpc_credentials(settings.tls)) as started:
        yield started


async def _end(
    server: _Server, stop: asyncio.Event, stopping: asyncio.Event, readying: Readying, settings: ServerSettings
) -> None:
    await stop.wait()
    stopping.set()
    await asyncio.sleep(settings.lame_duck_s)
    server.should_exit = True
    to_answer_s = min(HURRY_S, settings.drain_s)
    await asyncio.sleep(settings.drain_s - to_answer_s)
    readying.hurry()
    await asyncio.sleep(to_answer_s)
    server.cut()  # whoever still waits for a body now learns that its caller is gone, and ends


class _Server(Server):
    """uvicorn's server without its signal handlers, which only the process's entry may install."""

    def __init__(
        self,
        configs: _Configs,
        tasks: asyncio.TaskGroup,
        tls: ssl.SSLContext | None,
        shaking: Shares,
        started: Callable[[], None],
    ) -> None:
        super().__init__(configs.over_tcp)
        self.servers = []
        self._configs = configs
        self._tasks = tasks
        self._tls = tls
        self._shaking = shaking
        self._tell_started = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so. uvicorn's own has one context for all sockets, and no bound on handshakes."""
        loop = asyncio.get_running_loop()
        for sock in sockets or []:
            config = self._configs.at_socket if sock.family == socket.AF_UNIX else self.config
            if not config.loaded:
                config.load()
            make = cast("Callable[..., asyncio.Protocol]", config.http_protocol_class)
            protocol = functools.partial(make, config=config, server_state=self.server_state, app_state={})
            if self._tls is None or sock.family == socket.AF_UNIX:
                self.servers.append(await loop.create_server(protocol, sock=sock, backlog=config.backlog))
                continue
            listener = TlsListener(sock, self._tls, protocol, self._shaking)
            listener.start(self._tasks, config.backlog)
            self.servers.append(cast("asyncio.Server", listener))
        self.started = True
        self._tell_started()

    def cut(self) -> None:
        """End what a graceful end has left, or a cancelled one never came to."""
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class _Configs(NamedTuple):
    """Of the TCP sockets and of the Unix socket: one and the same, unless who calls there is let in otherwise."""

    over_tcp: Config
    at_socket: Config


def _configs(
    application: Callable[[Gates], Front],
    gates: Gates,
    settings: ServerSettings,
    pending: Pending,
    reached: Callable[[str], None],
) -> _Configs:
    """An application for each way in that has gates of its own: what is looked at with each request stays as it is."""
    local = socket_gates(gates) if settings.uds_anonymous else gates
    at_socket = _config(application(local), settings, pending, reached)
    if local is gates or settings.port is None:
        return _Configs(at_socket, at_socket)
    return _Configs(_config(application(gates), settings, pending, reached), at_socket)


def _config(
    app: Front, settings: ServerSettings, pending: Pending, reached: Callable[[str], None] = lambda _: None
) -> Config:
    limits = settings.limits
    lane = functools.partial(
        LookupLaneProtocol,
        answers=app.answers,
        heads=KnownHeads(),
        arrivals=Arrivals(pending),
        places=Connections(limits, reached),
    )
    return Config(
        app,
        http=cast("type[asyncio.Protocol]", reading(lane)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # below that it logs a line for every malformed request
        access_log=False,
        proxy_headers=False,  # a caller is who connects, not who it says it is
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # it takes any time
        timeout_graceful_shutdown=math.ceil(settings.drain_s) + CUT_WAIT_S,
        backlog=settings.backlog,
    )


@contextlib.contextmanager
def _listeners(settings: ServerSettings) -> Iterator[list[socket.socket]]:
    """Bound sockets, not yet listening; closed, and the Unix socket's file removed, at the end."""
    with contextlib.ExitStack() as stack:
        sockets = [] if settings.port is None else _tcp_sockets(settings.host, settings.port, stack)
        if settings.uds is not None:
            sockets.append(unix_socket(settings.uds, stack))
        yield sockets


def _tcp_sockets(host: str, port: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    """One socket for each address of the host, all on one port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise SettingsError("server.host", f"{host} is no address or name known here") from None
    sockets = []
    for family, address in dict.fromkeys((info[0], info[4]) for info in found):
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind((address[0], port, *address[2:]))
        except OSError as error:
            raise _unbindable(host, port, error) from None
        port = sock.getsockname()[1]
        sockets.append(sock)
    return sockets


def _unbindable(host: str, port: int, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError("server.port", f"{port} on {host} is in use by another process")
    if error.errno == errno.EACCES:
        return SettingsError("server.port", f"{port} is not open to this user; take one above 1023")
    return SettingsError("server.host", f"{host}: {error.strerror}")


def _address(sock: socket.socket, tls: ssl.SSLContext | None) -> str:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if sock.family == socket.AF_INET6 else name[0]
    return f"{'http' if tls is None else 'https'}://{host}:{name[1]}"
