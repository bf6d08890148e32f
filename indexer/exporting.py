"""What is sent to a collector: spans of what was traced, and the metrics, where settings ask for them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping

    from indexer.index.registry import Registry
    from indexer.otlp.metric_sending import MetricSending
    from indexer.otlp.metric_writing import MetricWriting
    from indexer.otlp.sending import Sending
    from indexer.ports import Clock
    from indexer.settings.sections import Telemetry as Wanted
    from indexer.source_log import SourceLog
    from indexer.telemetry import Telemetry
    from indexer.tracing import Tracing


class Measured(NamedTuple):
    """What there is to send, and where its fate is told. `measure` has `telemetry` know what others count."""

    telemetry: Telemetry
    registry: Registry
    log: SourceLog
    measure: Callable[[], None]


class Exporting:
    """Nothing is traced or sent where no collector is named. `about`: what tells this process from others."""

    def __init__(
        self,
        wanted: Wanted,
        clock: Clock,
        measured: Measured,
        about: Mapping[str, str],
        chance: random.Random,
    ) -> None:
        self.tracing: Tracing | None = None
        self._measured = measured
        self._senders: dict[str, Sending | MetricSending] = {}
        if wanted.otlp_endpoint is not None:
            self._prepare(wanted, wanted.otlp_endpoint, clock, about, chance)

    def _prepare(
        self, wanted: Wanted, endpoint: str, clock: Clock, about: Mapping[str, str], chance: random.Random
    ) -> None:
        """What it takes is loaded only where there is a collector: 8 MB."""
        from indexer.otlp.collector import Collector  # noqa: PLC0415 - as said above, and all below
        from indexer.otlp.metric_sending import MetricSending  # noqa: PLC0415
        from indexer.otlp.metric_writing import MetricWriting  # noqa: PLC0415
        from indexer.otlp.sending import Sending  # noqa: PLC0415
        from indexer.tracing import SCOPE, Tracing  # noqa: PLC0415

        collector = Collector(endpoint, wanted.otlp_headers)
        telemetry, say = self._measured.telemetry, self._measured.log.say
        spans = Sending(collector, clock, telemetry.spans, reached=telemetry.limit_reached, say=say)
        quick = random.Random(chance.getrandbits(128))  # noqa: S311 - ids of traces are no secret, and each lookup draws
        self.tracing = Tracing(spans, clock, quick, ratio=wanted.trace_ratio, about=dict(about))
        self._senders["spans"] = spans
        if wanted.otlp_metrics_s is None:
            return
        writing = MetricWriting(telemetry, clock, {"service.name": SCOPE, **about})
        self._senders["metrics"] = MetricSending(
            collector,
            clock,
            lambda: self._requests(writing),
            telemetry.exports,
            every_s=wanted.otlp_metrics_s,
            say=say,
        )

    def start(self, tasks: asyncio.TaskGroup, ended: asyncio.Event) -> None:
        """Send until `ended` is set, and what is left then."""
        for name, sender in self._senders.items():
            tasks.create_task(sender.run(ended), name=name)

    def _requests(self, writing: MetricWriting) -> Iterator[bytes | None]:
        self._measured.measure()
        return writing.requests(list(self._measured.registry.sources.values()))
