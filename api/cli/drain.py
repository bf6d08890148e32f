"""`kvindexer drain`: have a replica give up all partitions that it owns, and see it happen."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Final
from urllib.parse import quote

import msgspec

from api.cli.client import CommandFailed, ServiceClient, answer_as, client_of
from api.cli.output import counted
from schemas.rest import PartitionList, ReplicaDrained, ReplicaView

POLL_S: Final = 0.5
LIVE_POLLS_MAX: Final = 10
"""Each replica that may be asked learns of a drain with its next beat: until then it calls the drained one live."""
INTERRUPTED: Final = 130


def run(arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Ask, and wait until it is done. Raises `CommandFailed`."""
    if arguments.timeout is not None:
        arguments.answer_s = min(arguments.answer_s, arguments.timeout)
    client = client_of(arguments)
    name: str = arguments.replica
    path = f"/v1/replicas/{quote(name, safe='')}/drain"
    told = client.request("DELETE" if arguments.undo else "POST", path)
    answer = answer_as(told, ReplicaDrained, "none of a drain")
    if arguments.undo:
        _print(arguments, answer, f"{name} may own partitions again")
        return 0
    if answer.effect == "accepted" and arguments.no_wait:
        _print(arguments, answer, f"{name} is draining: {_left(answer.owned)}")
        return 0
    if answer.effect == "accepted" and not _Waiting(client, name, answer.owned).until_done(stop, arguments.timeout):
        return INTERRUPTED
    _print(
        arguments,
        msgspec.structs.replace(answer, owned=0, effect="done"),
        f"{name} owns nothing{' any more: it can be stopped' if answer.draining else ''}",
    )
    return 0


class _Waiting:
    """For the last partition of a replica to be handed over."""

    def __init__(self, client: ServiceClient, name: str, owned: int) -> None:
        self._client = client
        self._name = name
        self._owned = owned
        self._live_polls = 0
        self._shown = ""

    def until_done(self, stop: threading.Event, timeout_s: float | None) -> bool:
        """False where `stop` was set first. Raises `CommandFailed` where it will not be, or not in time."""
        ends_at = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        try:
            while self._owned:
                self._show()
                if stop.wait(min(POLL_S, max(0.0, ends_at - time.monotonic()))):
                    self._end_line()
                    print(f"kvindexer: not waited for: {self._goes_on()}", file=sys.stderr)
                    return False
                if time.monotonic() >= ends_at:
                    raise CommandFailed(f"not done after {timeout_s:g} s: {self._goes_on()}")
                self._look()
        finally:
            self._end_line()
        return True

    def _look(self) -> None:
        view = self._view()
        if view is None:  # it stopped, and is forgotten
            self._owned = 0
            return
        self._owned = view.owned
        if view.state == "silent":
            raise CommandFailed(f"{self._name} is silent: it hands nothing over, others take over what it owned")
        self._live_polls = self._live_polls + 1 if view.state == "live" else 0
        if self._live_polls > LIVE_POLLS_MAX:
            raise CommandFailed(f"{self._name} is not draining any more: taken back, or its process was started anew")

    def _view(self) -> ReplicaView | None:
        answer = self._client.request("GET", "/v1/partitions")
        listed = answer_as(answer, PartitionList, "no list of partitions")
        return next((view for view in listed.replicas if view.name == self._name), None)

    def _goes_on(self) -> str:
        return (
            f"the drain of {self._name} goes on, {_left(self._owned)} "
            f"(kvindexer drain {self._name} --undo takes it back)"
        )

    def _show(self) -> None:
        text = f"{self._name} is draining: {_left(self._owned)}"
        if text != self._shown:
            print(f"\r{text} " if sys.stderr.isatty() else f"{text}\n", end="", file=sys.stderr, flush=True)
            self._shown = text

    def _end_line(self) -> None:
        if self._shown and sys.stderr.isatty():
            print(file=sys.stderr)
        self._shown = ""


def _left(partitions: int) -> str:
    return f"{counted(partitions, 'partition')} left"


def _print(arguments: argparse.Namespace, answer: ReplicaDrained, text: str) -> None:
    print(msgspec.json.encode(answer).decode() if arguments.json else text)
