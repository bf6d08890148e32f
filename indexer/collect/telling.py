"""What passes between a session and the core's sink: where it begins, and its commands. Pure but for the sink."""

from __future__ import annotations

from typing import assert_never

from indexer.collect.commands import BeginLife, CoreCommand, Count, Doubt, Prove, ReportGap, SetSyncing, Suspect, Warn
from indexer.model import RawBatch
from indexer.ports import EventSink, Resume


def left_off(sink: EventSink) -> Resume | None:
    """Where a process before this one left off, unless the sink was told anything since."""
    resume = sink.resume
    return resume if resume is not None and resume.sequence == sink.cursor else None


def tell_core(command: CoreCommand, sink: EventSink) -> None:
    """Carry out a command that concerns the core."""
    match command:
        case RawBatch():
            sink.apply(command)
        case BeginLife(reason):
            sink.restart(reason)
        case ReportGap(first, last):
            sink.gap(first, last)
        case SetSyncing(active):
            sink.syncing(active)
        case Prove():
            sink.proved()
        case Doubt() | Suspect() | Count() | Warn():
            _remark(command, sink)
        case _:
            assert_never(command)


def _remark(command: Doubt | Suspect | Count | Warn, sink: EventSink) -> None:
    match command:
        case Doubt(reason):
            sink.doubt(reason)
        case Suspect(reason, active):
            sink.suspect(reason, active)
        case Count(what, n, replayed):
            sink.count(what, n)
            if replayed is not None:
                sink.replayed(replayed)
        case Warn(key, text):
            sink.warn(text, key=key)
        case _:
            assert_never(command)
