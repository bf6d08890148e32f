"""ZMQ sockets with every limit set, and a context large enough for them. I/O."""

from __future__ import annotations

import errno
import logging
import resource
import struct
from enum import Enum, auto
from typing import Final

import zmq

from indexer.collect.options import CollectOptions
from indexer.log_lines import about

log = logging.getLogger(__name__)

SOCKETS_PER_SOURCE: Final = 6
"""SUB, our end of its monitor, and ZMQ's end of it, and the same for its pulse. ZMQ's default of 1,023 sockets is spent
after 170 sources."""
SOCKETS_BESIDE: Final = 64
"""Bound sockets and head room."""
FILES_PER_SOURCE: Final = 11
"""One wake-up descriptor per ZMQ socket, both connections, two that are being connected anew, and the one on which its
engine's metrics are read."""
FILES_BESIDE: Final = 512
"""For the rest of the process: listening sockets, connections of callers, logs."""
SOURCES_PER_IO_THREAD: Final = 512
IO_THREADS_MAX: Final = 4
PULSE_MESSAGE_MAX_BYTES: Final = 4_096
"""Handshake and heartbeats are shorter. What nobody asked for and is longer ends the connection."""

_UP: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_ACCEPTED
_EVENT: Final = struct.Struct("=Hi")
"""First frame of an event: its number, then (for these) a file descriptor or an error number."""


def open_context(options: CollectOptions) -> zmq.Context[zmq.Socket[bytes]]:
    """A context for `sources_max` sources and their replays.

    Both numbers are fixed when the first socket is made, hence computed for the largest fleet; a slot costs 8 bytes.
    """
    threads = min(IO_THREADS_MAX, 1 + options.sources_max // SOURCES_PER_IO_THREAD)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=threads)
    asking = options.replays_parallel + options.probes_parallel
    wanted = options.sources_max * SOCKETS_PER_SOURCE + 2 * asking + SOCKETS_BESIDE
    context.set(zmq.MAX_SOCKETS, min(wanted, context.get(zmq.SOCKET_LIMIT)))
    return context


def allow_files(sources: int, options: CollectOptions) -> bool:
    """Raise the soft limit on open files as far as that many sources need; False, and a log line, if it cannot be."""
    asking = options.replays_parallel + options.probes_parallel
    wanted = sources * FILES_PER_SOURCE + 2 * asking + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return True
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        text = "%d sources want %d open files, the hard limit allows %d: raise `ulimit -Hn`"
        log.warning(text, sources, wanted, hard, extra=about("files_limited"))
    return allowed >= wanted


def open_subscriber(
    context: zmq.Context[zmq.Socket[bytes]], options: CollectOptions, *, bound: bool = False
) -> zmq.Socket[bytes]:
    """A SUB socket for everything, neither connected nor bound yet: limits only act on connections made after them.

    A connecting one has no heartbeats, its pulse has them (decisions/0010); that the other host is gone is found out by
    TCP. To a bound one there is no other connection than the engine's, so it has heartbeats and a queue that is long
    enough not to fill up while the loop is held for a while.
    """
    socket = _open_sub(context, options, zmq.SUB)
    socket.set(zmq.RCVHWM, options.bound_rcvhwm_messages if bound else options.rcvhwm_messages)
    socket.set(zmq.MAXMSGSIZE, options.message_max_bytes)
    if bound:
        _set_heartbeats(socket, options)
    socket.set(zmq.TCP_KEEPALIVE, 1)
    socket.set(zmq.TCP_KEEPALIVE_IDLE, round(options.keepalive_idle_s))
    socket.set(zmq.TCP_KEEPALIVE_INTVL, round(options.keepalive_interval_s))
    socket.set(zmq.TCP_KEEPALIVE_CNT, options.keepalive_attempts)
    socket.set(zmq.SUBSCRIBE, b"")
    return socket


def open_pulse(context: zmq.Context[zmq.Socket[bytes]], options: CollectOptions) -> zmq.Socket[bytes]:
    """A socket that subscribes to nothing, with heartbeats, not connected yet.

    XSUB, which shows what comes unasked; a SUB would sort it out, for as long as it comes.
    """
    socket = _open_sub(context, options, zmq.XSUB)
    socket.set(zmq.MAXMSGSIZE, PULSE_MESSAGE_MAX_BYTES)
    _set_heartbeats(socket, options)
    return socket


def _open_sub(context: zmq.Context[zmq.Socket[bytes]], options: CollectOptions, kind: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RECONNECT_IVL, _ms(options.reconnect_min_s))
    socket.set(zmq.RECONNECT_IVL_MAX, _ms(options.reconnect_max_s))
    socket.set(zmq.CONNECT_TIMEOUT, _ms(options.connect_timeout_s))
    socket.set(zmq.HANDSHAKE_IVL, _ms(options.handshake_timeout_s))
    return socket


def _set_heartbeats(socket: zmq.Socket[bytes], options: CollectOptions) -> None:
    socket.set(zmq.HEARTBEAT_IVL, _ms(options.heartbeat_interval_s))
    socket.set(zmq.HEARTBEAT_TIMEOUT, _ms(options.heartbeat_timeout_s))
    socket.set(zmq.HEARTBEAT_TTL, _ms(options.heartbeat_ttl_s))


def open_dealer(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, options: CollectOptions) -> zmq.Socket[bytes]:
    """A DEALER connecting to a replay endpoint; it becomes writable only once the connection stands.

    Raises zmq.ZMQError where the address is none or sockets have run out.
    """
    socket = context.socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IMMEDIATE, 1)
    socket.set(zmq.RCVHWM, options.replay_rcvhwm_messages)
    socket.set(zmq.MAXMSGSIZE, options.message_max_bytes)
    socket.set(zmq.CONNECT_TIMEOUT, _ms(options.connect_timeout_s))
    socket.set(zmq.HANDSHAKE_IVL, _ms(options.handshake_timeout_s))
    socket.set(zmq.RECONNECT_IVL_MAX, _ms(options.reconnect_max_s))
    try:
        attach(socket, endpoint)
    except zmq.ZMQError:
        socket.close()
        raise
    return socket


def attach(socket: zmq.Socket[bytes], endpoint: str, *, bind: bool = False) -> None:
    """Connect (or bind).

    IPv6 only where the address says so: with it, `localhost` would mean ::1, where no engine on `tcp://*` listens.
    """
    socket.set(zmq.IPV6, int("[" in endpoint))
    if bind:
        socket.bind(endpoint)
    else:
        socket.connect(endpoint)


def descriptor_of(socket: zmq.Socket[bytes]) -> int:
    """The descriptor that becomes readable when the socket's state changes. Edges only: read until there is no more."""
    descriptor = socket.getsockopt(zmq.FD)
    assert isinstance(descriptor, int)  # noqa: S101  the option's type, which its signature leaves open
    return descriptor


def state_of(socket: zmq.Socket[bytes]) -> int:
    """POLLIN and POLLOUT as they stand now."""
    state = socket.getsockopt(zmq.EVENTS)
    assert isinstance(state, int)  # noqa: S101  as above
    return state


def attach_anew(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect again where ZMQ has given up, or may have."""
    try:
        socket.disconnect(endpoint)
    except zmq.ZMQError as error:
        if error.errno != errno.ENOENT:  # ENOENT: it has
            raise
    attach(socket, endpoint)


class Link(Enum):
    """What a monitor tells about a connection."""

    UP = auto()
    DOWN = auto()


class Monitor:
    """The connection events of one socket. Must be closed before its socket.

    A connecting socket is up once its handshake succeeded. A bound one tells its connections apart by their
    descriptors, which ZMQ names when it accepts and when it loses them, but not at the handshake.
    """

    def __init__(self, socket: zmq.Socket[bytes], *, bound: bool = False) -> None:
        self._watched = socket
        up = zmq.EVENT_ACCEPTED if bound else zmq.EVENT_HANDSHAKE_SUCCEEDED
        self.pair: zmq.Socket[bytes] = socket.get_monitor_socket(up | zmq.EVENT_DISCONNECTED)
        self.pair.set(zmq.LINGER, 0)
        self.descriptor = descriptor_of(self.pair)

    @property
    def pending(self) -> bool:
        """Whether `drain` would find something."""
        return bool(state_of(self.pair) & zmq.POLLIN)

    def drain(self) -> list[tuple[Link, int]]:
        """Every event since the last call, in order, with the descriptor of its connection."""
        found: list[tuple[Link, int]] = []
        while self.pending:
            event, descriptor = _EVENT.unpack(self.pair.recv_multipart(zmq.NOBLOCK)[0])
            found.append((Link.UP if event & _UP else Link.DOWN, descriptor))
        return found

    def close(self) -> None:
        """Stop listening."""
        self._watched.disable_monitor()
        self.pair.close()


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
