"""Children of our own: pinned to a core, asked through a pipe.

    with Child(Publisher, 8, core=1) as engines:
        engines.call(Publisher.endpoints)

A child lives in a fresh interpreter. Its object is made there; methods are called by name there, one after the other.
An object that is an asynchronous context manager lives on a uvloop, and its methods may be coroutines. Does I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import multiprocessing
import os
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast, overload

import uvloop

from loadtest.machine import pin

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

WAIT_MAX_S: Final = 300.0
"""Longest wait for one answer of a child. A scenario that takes longer has gone wrong."""
_STOP: Final = ""


class ChildFailed(Exception):
    """A method raised there (the message is its traceback), or the child is gone or silent."""


class Pending(Generic[R]):
    """An answer that is on its way. Must be taken before the next question."""

    def __init__(self, receive: Callable[[], object]) -> None:
        self._receive = receive

    def result(self) -> R:
        """Wait for it."""
        return cast("R", self._receive())


class Child(Generic[T]):
    """One process with one object of type `T`."""

    def __init__(self, factory: Callable[..., T], *args: object, core: int | None = None, **named: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, functools.partial(factory, *args, **named), core), daemon=True
        )
        self._process.start()
        theirs.close()
        self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def ask(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **named: P.kwargs
    ) -> Pending[R]: ...
    @overload
    def ask(self, method: Callable[Concatenate[T, P], R], *args: P.args, **named: P.kwargs) -> Pending[R]: ...
    def ask(self, method: Callable[..., object], *args: object, **named: object) -> Pending[Any]:
        """Begin a call there."""
        self._send(method.__name__, args, named)
        return Pending(self._receive)

    @overload
    def call(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **named: P.kwargs
    ) -> R: ...
    @overload
    def call(self, method: Callable[Concatenate[T, P], R], *args: P.args, **named: P.kwargs) -> R: ...
    def call(self, method: Callable[..., object], *args: object, **named: object) -> object:
        """Call there, wait for the result."""
        self._send(method.__name__, args, named)
        return self._receive()

    def kill(self) -> None:
        """SIGKILL: it has no time for anything. Returns when it is gone."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End it: by asking, then by force."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._pipe.send((_STOP, (), {}))
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    def _send(self, name: str, args: tuple[object, ...], named: dict[str, object]) -> None:
        try:
            self._pipe.send((name, args, named))
        except OSError:
            self._receive()  # its last words, raised
            raise

    def _receive(self) -> object:
        if not self._pipe.poll(WAIT_MAX_S):
            raise ChildFailed(f"no answer within {WAIT_MAX_S:g} s")
        try:
            failed, result = self._pipe.recv()
        except EOFError:
            raise ChildFailed("the process is gone") from None
        if failed:
            raise ChildFailed(result)
        return result


def _serve(pipe: Connection, make: functools.partial[Any], core: int | None) -> None:
    """The child's whole life."""
    try:
        pin(core)
        if hasattr(make.func, "__aenter__"):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve_on_loop(pipe, make))
        else:
            asyncio.run(_answer(pipe, make(), on_loop=False))
    except Exception:  # noqa: BLE001  told to the parent, which raises it
        pipe.send((True, traceback.format_exc()))


async def _serve_on_loop(pipe: Connection, make: functools.partial[Any]) -> None:
    async with make() as target:
        await _answer(pipe, target, on_loop=True)


async def _answer(pipe: Connection, target: object, *, on_loop: bool) -> None:
    pipe.send((False, None))
    while True:
        if on_loop:
            await _readable(pipe)
        name, args, named = pipe.recv()
        if name == _STOP:
            return
        try:
            result = getattr(target, name)(*args, **named)
            if inspect.isawaitable(result):
                result = await result
        except Exception:  # noqa: BLE001  told to the parent, which raises it
            pipe.send((True, traceback.format_exc()))
        else:
            pipe.send((False, result))


async def _readable(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(pipe.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)  # uvloop made it non-blocking
