"""An engine's event publisher without the engine: what `demo`, `replay` and the tests subscribe to.

One thread owns the sockets, as in vLLM: it sends, keeps and answers one replay request between two batches.
Everything else only queues work for it, so the methods may be called from any thread.

Promises: numbers count from 0 in each life; what is queued is done in that order; no method waits longer than
`WAIT_MAX_S` unless told to; after `close` no thread, socket or context is left.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Self

import zmq

from api.demo.publisher import VLLM_NOW, Publisher, ReplayFault, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUEUE_MAX: Final = 100_000
"""vLLM's default for `max_queue_size`. Full means `publish` waits, as it does in the engine's scheduler."""

LINGER_MS: Final = 1_000
"""As vLLM's own shutdown: so long what is still in the sockets may leave."""

WAIT_MAX_S: Final = 10.0
"""Longest wait of any method. Only a machine that stands still gets there, and then it raises instead of hanging."""


class EngineFailed(Exception):
    """The simulated engine could not do what was asked, or not in time. `__cause__` holds the error, if any."""


class EngineSimulator:
    """One engine's PUB socket and, unless told otherwise, its replay ROUTER.

    Port 0 binds a free port, which is kept over restarts. Also a context manager: started on entry, closed on exit.

        with EngineSimulator(topic=b"kv@pod@model") as engine:
            engine.wait_subscribers(1)
            engine.publish(payload)
    """

    def __init__(
        self,
        endpoint: str = "tcp://127.0.0.1:0",
        replay_endpoint: str | None = "tcp://127.0.0.1:0",
        *,
        topic: bytes = b"",
        wire: Wire = VLLM_NOW,
    ) -> None:
        """Nothing is opened before `start`. `replay_endpoint` None: no replay, as is vLLM's default."""
        self._topic = topic
        self._publisher = Publisher(endpoint, replay_endpoint, wire)
        self._changed = threading.Condition()
        # All below is guarded by `_changed`.
        self._work: deque[Callable[[], None]] = deque()
        self._next_sequence = 0
        self._faults: deque[ReplayFault] = deque()
        self._replays_answered = 0
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._wake: socket.socket | None = None
        self._wake_sender: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """Where to subscribe. The real port once started."""
        return self._publisher.endpoint

    @property
    def replay_endpoint(self) -> str | None:
        """Where to ask for replay, the real port once started; None where this engine has none."""
        return self._publisher.replay_endpoint

    @property
    def sequence(self) -> int:
        """Number of the last batch of this life, -1 before the first."""
        return self._next_sequence - 1

    @property
    def subscribers(self) -> int:
        """Subscriptions that are open now, as the publishing socket saw them."""
        return self._publisher.subscribers

    @property
    def replays_answered(self) -> int:
        """Replay requests answered so far, over all lives, those with a fault too."""
        return self._replays_answered

    def start(self) -> None:
        """Bind both sockets and begin. Raises `EngineFailed` where a port is taken; the engine is closed then."""
        if self._thread is not None:
            msg = "an engine starts once; `restart` begins another life"
            raise EngineFailed(msg)
        self._wake, self._wake_sender = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"engine {self.endpoint}", daemon=True)
        self._thread.start()
        try:
            self._do(self._publisher.open)
        except EngineFailed:
            self.close()
            raise

    def publish(self, payload: bytes, *, topic: bytes | None = None, lost: bool = False) -> int:
        """Number `payload`, send it and keep it for replay; returns its number.

        `lost`: numbered and kept, but never sent: what a subscriber misses while it is not connected. Waits while
        `QUEUE_MAX` batches are queued.
        """
        with self._changed:
            self._wait_for(lambda: len(self._work) < QUEUE_MAX, "room in the queue")
            sequence = self._next_sequence
            self._next_sequence += 1
            topic_frame = self._topic if topic is None else topic
            self._enqueue(lambda: self._publisher.send_batch(sequence, topic_frame, payload, lost=lost))
        return sequence

    def publish_raw(self, frames: Sequence[bytes]) -> None:
        """Send these frames as they are, not numbered and not kept: what no vLLM would send."""
        with self._changed:
            self._wait_for(lambda: len(self._work) < QUEUE_MAX, "room in the queue")
            self._enqueue(lambda: self._publisher.send(frames))

    def drop(self, count: int = 1) -> None:
        """Use up numbers for batches neither sent nor kept, as an engine does that fails to encode them."""
        with self._changed:
            self._next_sequence += count

    def fault_next_replay(self, fault: ReplayFault) -> None:
        """Answer the next replay request with this fault; called again, the one after it, and so on."""
        with self._changed:
            self._faults.append(fault)

    def restart(self, *, linger_ms: int = LINGER_MS) -> None:
        """Begin a new process on the same ports: numbers from 0, nothing to replay. Returns when it is bound."""
        self.stop(linger_ms=linger_ms)
        self._do(self._publisher.open)

    def stop(self, *, linger_ms: int = LINGER_MS) -> None:
        """End the process: sockets closed, numbers and buffer forgotten. `restart` brings the next life.

        What was published is still delivered, as an engine that shuts down does it; 0 is an engine that is killed.
        """
        with self._changed:
            self._next_sequence = 0
        self._do(self._publisher.forget, lambda: self._publisher.shut(linger_ms))

    def hang_up(self) -> None:
        """Close the sockets while the engine lives on: what is published now is numbered and kept, not sent."""
        self._do(self._publisher.shut)

    def come_back(self) -> None:
        """Bind again after `hang_up`, on the same ports, with the same numbers and buffer."""
        self._do(self._publisher.open)

    def flush(self) -> None:
        """Return when everything published so far was handed to the sockets."""
        self._do()

    def wait_subscribers(self, count: int = 1, timeout_s: float = WAIT_MAX_S) -> None:
        """Return when `count` subscriptions are open. Raises `EngineFailed` at the end of `timeout_s`."""
        with self._changed:
            self._wait_for(lambda: self.subscribers >= count, f"{count} subscribers", timeout_s)

    def close(self, *, linger_ms: int = 0) -> None:
        """Do what is queued, close everything, end the thread. `linger_ms` is for messages still in the sockets."""
        if self._thread is None or self._closing:
            return
        with self._changed:
            self._append(lambda: self._publisher.shut(linger_ms))
            self._closing = True
        self._thread.join(WAIT_MAX_S + linger_ms / 1000)
        if self._thread.is_alive():
            msg = f"the publisher of {self.endpoint} did not end"
            raise EngineFailed(msg)
        for each in (self._wake, self._wake_sender):
            if each is not None:
                each.close()

    def _enqueue(self, work: Callable[[], None]) -> None:
        """Caller holds the lock."""
        self._check()
        self._append(work)

    def _append(self, work: Callable[[], None]) -> None:
        if not self._work and self._wake_sender is not None:  # one wake-up is enough: the thread drains the queue
            self._wake_sender.send(b"!")
        self._work.append(work)

    def _do(self, *steps: Callable[[], None]) -> None:
        """Queue `steps` and wait until the thread has done them, and all before. Raises what they raise, wrapped."""
        outcome: list[Exception | None] = []

        def run_steps() -> None:
            error: Exception | None = None
            try:
                for step in steps:
                    step()
            except (zmq.ZMQError, OSError) as raised:
                error = raised
            with self._changed:
                outcome.append(error)
                self._changed.notify_all()

        with self._changed:
            self._enqueue(run_steps)
            self._wait_for(lambda: bool(outcome), "the publisher")
        if outcome[0] is not None:
            msg = f"{self.endpoint}: {outcome[0]}"
            raise EngineFailed(msg) from outcome[0]

    def _wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_MAX_S) -> None:
        """Caller holds the lock."""
        self._check()
        met = self._changed.wait_for(lambda: self._failure is not None or condition(), timeout_s)
        self._check()
        if not met:
            msg = f"waited {timeout_s:g} s for {what} of {self.endpoint}"
            raise EngineFailed(msg)

    def _check(self) -> None:
        if self._failure is not None:
            msg = f"the publisher of {self.endpoint} ended: {self._failure}"
            raise EngineFailed(msg) from self._failure
        if self._thread is None or self._closing:
            msg = f"the publisher of {self.endpoint} is not running"
            raise EngineFailed(msg)

    # From here on: in the thread.

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001  raised again, to whoever calls next
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        finally:
            self._publisher.end()

    def _serve(self) -> None:
        while True:
            self._wait_for_something()
            if self._publisher.note_subscriptions():
                with self._changed:
                    self._changed.notify_all()
            self._answer_one_replay()
            with self._changed:
                work = self._work.popleft() if self._work else None
                if len(self._work) == QUEUE_MAX - 1:
                    self._changed.notify_all()
                if work is None and self._closing:
                    return
            if work is not None:
                work()

    def _wait_for_something(self) -> None:
        if self._work or self._closing or self._wake is None:
            return
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for each in self._publisher.sockets():
            poller.register(each, zmq.POLLIN)
        if self._wake.fileno() in dict(poller.poll()):
            self._wake.recv(64)

    def _answer_one_replay(self) -> None:
        request = self._publisher.next_replay_request()
        if request is None:
            return
        with self._changed:
            fault = self._faults.popleft() if self._faults else ReplayFault()
            self._replays_answered += 1
        self._publisher.answer_replay(*request, fault)
