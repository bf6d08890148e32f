"""`kvindexer serve`: node and faces up together and down together."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import uvloop

from api.access.gates import access_remarks, gates_of
from api.epp.limits import EppLimits
from api.rest.limits import RestLimits
from api.rpc.limits import RpcLimits
from api.server import ServerSettings, serve
from indexer.clock import SystemClock
from indexer.errors import LimitReachedError, SettingsError, SourceConflictError
from indexer.log_format import CONSOLE, JsonLines
from indexer.log_lines import about
from indexer.node import Node
from indexer.settings import BadSettings, check_files, refuse_what_is_not_there, remarks, replica_name, unread_variables
from indexer.store.address import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from indexer.settings import Settings


_log = logging.getLogger("kvindexer.serve")


def run(settings: Settings, stop_on_signal: Callable[[asyncio.Event], None]) -> int:
    """Serve until a signal says stop. Raises `BadSettings` for what cannot be had or is not there yet.

    `stop_on_signal` is called on the event loop, with the event that it sets.
    """
    refuse_what_is_not_there(settings)
    check_files(settings)
    gates_of(settings)  # before anything is started: what is wrong with its files is told at once
    log_from(settings.telemetry.log_level, json_of=_json_of(settings))
    for remark in (*remarks(settings), *access_remarks(settings), *unread_variables(os.environ)):
        _tell_remark(remark, settings)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        stop_on_signal(stop)
        await run_service(settings, stop, lambda addresses: _announce(addresses, settings))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped())
    return 0


def log_from(level: str, json_of: JsonLines | None = None) -> None:
    """Log what is of that level or above: lines for people, or objects.

    What a library says of each request to an engine is below all of them.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(json_of or logging.Formatter(CONSOLE))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(json_of is not None)
    for library in ("httpx", "httpcore"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _json_of(settings: Settings) -> JsonLines | None:
    """What writes objects, where these are wanted; each names this replica, where there may be others."""
    if settings.telemetry.log_format == "console":
        return None
    alone = settings.redis.url is None
    return JsonLines(None if alone else replica_name(settings, socket.gethostname(), os.getpid()))


def _tell_remark(remark: str, settings: Settings) -> None:
    if settings.telemetry.log_format == "console":
        print(f"kvindexer: warning: {remark}", file=sys.stderr)
    else:
        _log.warning("%s", remark, extra=about("settings_remark"))


async def run_service(
    settings: Settings, stop: asyncio.Event, announce: Callable[[Sequence[str]], None] = lambda _: None
) -> None:
    """One node and its faces, until `stop` is set. Raises `BadSettings` for an address or a source that cannot be had.

    `announce` is called with the addresses once connections are accepted.
    """
    gates = gates_of(settings)
    try:
        node = Node(settings, SystemClock())
        node.bind()  # first: whoever reads that the service listens may believe that all of it does
    except SettingsError as error:
        raise BadSettings([error]) from error
    except (SourceConflictError, LimitReachedError) as error:
        raise BadSettings([SettingsError("sources", str(error))]) from error

    def listens(addresses: Sequence[str]) -> None:
        node.listens_at(addresses)
        announce(addresses)

    answered = asyncio.Event()

    async def faces() -> None:
        if not stop.is_set():
            await serve(node, server_settings(settings), stop, gates=gates, announce=listens)
        answered.set()

    try:
        await _unless_stopped(stop, node.check_store())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.run(stop, answered), name="node")
            tasks.create_task(faces(), name="faces")
            tasks.create_task(_tell_stop(stop, settings), name="tell-stop")
    except* SettingsError as group:
        raise BadSettings(_leaves(group)) from None
    _log.info("stopped", extra=about("stopped"))


async def _tell_stop(stop: asyncio.Event, settings: Settings) -> None:
    """The stop may take a while: whoever watches the log sees that it is under way."""
    await stop.wait()
    within_s = settings.server.lame_duck_s + settings.server.drain_s
    hands_over = "" if settings.redis.url is None else "; what it owns is handed over"
    text = "told to stop: draining, what is under way may end within %g s%s"
    _log.info(text, within_s, hands_over, extra=about("stopping"))


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Do it; where the stop comes first it is left."""
    async with asyncio.TaskGroup() as tasks:
        working, stopping = tasks.create_task(work, name="check"), tasks.create_task(stop.wait(), name="check-stop")
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        stopping.cancel()


def server_settings(settings: Settings) -> ServerSettings:
    """What the faces need of all settings."""
    server, limits = settings.server, settings.limits
    return ServerSettings(
        host=server.host,
        port=server.port,
        uds=server.uds,
        slim="collect" not in server.roles,
        uds_anonymous=settings.auth.uds == "anonymous",
        grpc_port=server.grpc_port,
        epp_port=server.epp_port if "epp" in server.roles else None,
        drain_s=server.drain_s,
        lame_duck_s=server.lame_duck_s,
        keep_alive_s=server.keep_alive_s,
        limits=msgspec.convert(msgspec.to_builtins(limits), RestLimits),
        tls=settings.auth.tls,
        rpc_limits=msgspec.convert(msgspec.to_builtins(limits), RpcLimits),
        epp_limits=_epp_limits(settings),
    )


def _epp_limits(settings: Settings) -> EppLimits:
    limits = settings.limits
    return EppLimits(
        **msgspec.structs.asdict(settings.epp),
        body_bytes=limits.body_bytes,
        held_bytes=limits.pending_bytes,
        tokens=limits.tokens,
        unread_wait_s=limits.unread_wait_s,
    )


def _leaves(group: BaseExceptionGroup[SettingsError]) -> list[SettingsError]:
    leaves: list[SettingsError] = []
    for error in group.exceptions:
        leaves.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return leaves


def _announce(addresses: Sequence[str], settings: Settings) -> None:
    told = f"kvindexer listens on {', '.join(addresses)}; sources: {len(settings.sources)}"
    told += "".join(f", and those that {name} tells of" for name in settings.discovery.asked)
    if settings.redis.url is not None:
        roles = ", ".join(settings.server.roles)
        told += f"; roles: {roles}; store: {parse(settings.redis.url).place}, namespace {settings.redis.namespace}"
    if (json_of := _json_of(settings)) is not None:
        record = _log.makeRecord(_log.name, logging.INFO, __file__, 0, told, (), None, extra=dict(about("listening")))
        told = json_of.format(record)
    print(told, flush=True)
