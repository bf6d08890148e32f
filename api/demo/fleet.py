"""One simulated engine a recorded pod, and the pace at which a recording is played. Socket I/O by the engines alone."""

from __future__ import annotations

import random
import re
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.demo.engine import EngineSimulator
from api.demo.publisher import VLLM_NOW, Wire

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from api.demo.trace import Trace, TraceHeader, TraceMessage, TracePod

_BASE: Final = re.compile(r"^(?P<host>tcp://[^\s]+):(?P<port>[0-9]{1,5})$")
LATER_S: Final = 600.0
"""From one process of an engine to its next: longer than any recording."""
_STAMP: Final = struct.Struct(">d")
_STAMPED_BATCH: Final = b"\x93\xcb"
"""MessagePack: an array of three that begins with a float of 64 bits."""
_LOOK_S: Final = 0.02
"""How often we look whether all have subscribed; the wait itself has no end but the caller's."""


class BadEndpointBase(Exception):
    """Not `tcp://HOST:PORT`, or no room for so many ports above it."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What the topic says of a recorded engine: the name its router uses, and its model."""

    pod: str
    model: str | None
    dp_rank: int

    @classmethod
    def of(cls, recorded: TracePod) -> PodIdentity:
        """From `kv@POD@MODEL`; a model name may contain `@`. Any other topic: the recorded name."""
        kind, _, rest = recorded.topic.partition("@")
        pod, _, model = rest.partition("@")
        if kind == "kv" and pod and model:
            return cls(pod, model, recorded.data_parallel_rank)
        return cls(recorded.name or f"pod-{recorded.pod}", None, recorded.data_parallel_rank)


class TraceFleet:
    """The engines of one recording. Pod i publishes on `endpoint_base` + i and replays on `replay_base` + i.

    A base with port 0 takes free ports. `replay_base` None: no replay, as is vLLM's default.
    """

    def __init__(
        self,
        header: TraceHeader,
        endpoint_base: str,
        replay_base: str | None,
        *,
        wire: Wire = VLLM_NOW,
        now: Callable[[], float] | None = None,
    ) -> None:
        """Raises `BadEndpointBase`. Nothing is bound before `start`.

        `now`: seconds since 1970, for time stamps of the moment instead of the recorded ones.
        """
        endpoints = ports_above(endpoint_base, len(header.pods))
        replays = [None] * len(header.pods) if replay_base is None else ports_above(replay_base, len(header.pods))
        both = [endpoint for endpoint in (*endpoints, *replays) if endpoint and not endpoint.endswith(":0")]
        if len(both) != len(set(both)):
            raise BadEndpointBase(f"{endpoint_base} and {replay_base} are closer than the {len(header.pods)} pods need")
        self._capacities = {pod.pod: pod.num_gpu_blocks for pod in header.pods}
        self.identities = {pod.pod: PodIdentity.of(pod) for pod in header.pods}
        self.engines = {
            pod.pod: EngineSimulator(endpoint, replay, topic=pod.topic.encode(), wire=wire)
            for pod, endpoint, replay in zip(header.pods, endpoints, replays, strict=True)
        }
        self._lives = dict.fromkeys(self.engines, 0)
        self._later_s = 0.0
        self._now = now

    def start(self) -> None:
        """Bind all. Raises `EngineFailed`; then none is left open."""
        try:
            for engine in self.engines.values():
                engine.start()
        except Exception:
            self.close()
            raise

    def close(self, *, linger_ms: int = 0) -> None:
        """Close all."""
        for engine in self.engines.values():
            engine.close(linger_ms=linger_ms)

    def flush(self) -> None:
        """Return when everything published so far was sent, and can be replayed."""
        for engine in self.engines.values():
            engine.flush()

    def restart_all(self) -> None:
        """Every engine begins a new process: what stands before a recording is played again.

        Its clock has gone on: batches of the same number and time stamp would be those of the process before.
        """
        self._later_s += LATER_S
        for pod, engine in self.engines.items():
            engine.restart()
            self._lives[pod] = 0

    def source_flags(self) -> list[str]:
        """Values for `--source` that subscribe to this fleet."""
        flags = []
        for pod, engine in self.engines.items():
            identity = self.identities[pod]
            parts = [f"{identity.pod}={engine.endpoint}"]
            if engine.replay_endpoint is not None:
                parts.append(f"replay={engine.replay_endpoint}")
            if identity.model is not None:
                parts.append(f"model={identity.model}")
            if identity.dp_rank:
                parts.append(f"rank={identity.dp_rank}")
            capacity = self._capacities[pod]
            if capacity is not None:
                parts.append(f"blocks={capacity}")
            flags.append(",".join(parts))
        return flags

    def enter_life(self, message: TraceMessage) -> bool:
        """Restart the engine as a new process if this message is the first of one; returns whether it was."""
        if message.life == self._lives[message.pod]:
            return False
        self.engines[message.pod].restart()
        self._lives[message.pod] = message.life
        return True

    def publish(self, message: TraceMessage, *, lost: bool = False) -> None:
        """Publish one recorded message under its recorded number, in its own life."""
        self.enter_life(message)
        payload = self._stamped(message.payload)
        sequence = self.engines[message.pod].publish(payload, topic=message.topic, lost=lost)
        if sequence != message.sequence:
            raise ValueError(f"pod {message.pod}: number {message.sequence} recorded where {sequence} is due")

    def _stamped(self, payload: bytes) -> bytes:
        if self._now is not None:
            return stamped(payload, self._now())
        return restamped(payload, self._later_s) if self._later_s else payload

    def wait_subscribers(self, stop: threading.Event) -> bool:
        """Return True when every engine has a subscriber, False when `stop` is set before."""
        while any(engine.subscribers < 1 for engine in self.engines.values()):
            if stop.wait(_LOOK_S):
                return False
        return not stop.is_set()


def restamped(payload: bytes, later_s: float) -> bytes:
    """The same batch so many seconds later; unchanged where it does not begin with a float, as engines write it."""
    if payload[:2] != _STAMPED_BATCH:
        return payload
    (stamp,) = _STAMP.unpack_from(payload, len(_STAMPED_BATCH))
    return stamped(payload, stamp + later_s)


def stamped(payload: bytes, at_s: float) -> bytes:
    """The same batch as of that moment; unchanged as above."""
    if payload[:2] != _STAMPED_BATCH:
        return payload
    end = len(_STAMPED_BATCH) + _STAMP.size
    return _STAMPED_BATCH + _STAMP.pack(at_s) + payload[end:]


def ports_above(base: str, count: int) -> list[str]:
    """`count` endpoints at consecutive ports from that of `base` on. Raises `BadEndpointBase`."""
    match = _BASE.match(base)
    if match is None:
        raise BadEndpointBase(f"tcp://HOST:PORT wanted, got {base!r}")
    first = int(match["port"])
    if first + count - 1 > 65_535:  # noqa: PLR2004  the last port
        raise BadEndpointBase(f"{base} has no room for {count} ports")
    return [f"{match['host']}:{first + index if first else 0}" for index in range(count)]


def paced(trace: Trace, stop: threading.Event, speed: float | None) -> Iterator[TraceMessage]:
    """The messages of a recording at `speed` times its own pace, None for as fast as they are taken.

    Ends early when `stop` is set.
    """
    started = time.monotonic()
    for message in trace.messages():
        due = started if speed is None else started + message.t_us / 1_000_000 / speed
        wait_s = due - time.monotonic()
        if stop.wait(wait_s) if wait_s > 0 else stop.is_set():
            return
        yield message


def losses(probability: float, seed: int) -> Iterator[bool]:
    """For each batch in turn, whether it is lost: the same ones for the same seed."""
    chance = random.Random(seed)  # noqa: S311  no secret depends on it
    while True:
        yield chance.random() < probability
