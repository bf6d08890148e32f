"""METRICS.md out of the lists in the code: metrics, and events of the log. `make metrics` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from indexer.log_lines import EVENTS
from indexer.metric_texts import ADVICE
from indexer.telemetry import METRICS

FILE: Final = Path(__file__).parents[2] / "METRICS.md"
HEAD: Final = """# What the service tells of itself

Made by `make metrics` out of `indexer/telemetry.py`, `indexer/metric_texts.py` and `indexer/log_lines.py`; change it
there.

## Metrics

`GET /metrics`, in Prometheus' form. Base units are in the names. No label holds anything of a prompt, an adapter, a
tenant or a request. Series of a source go with it.
"""
LOG: Final = """
## Events of the log

With `telemetry.log_format: json` each line is an object: `ts` (UTC, milliseconds), `level`, `event`, what applies of
`source`, `model`, `replica` (this one), `partition`, `request_id` and `trace_id`, then `message` and `logger`. The
sentence may change from version to version, the event does not. A change of state is one line, a lookup is none.
"""


def reference() -> str:
    """The whole document."""
    lines = ["| metric | labels | meaning | when it moves |", "|---|---|---|---|"]
    for name, meaning in METRICS.items():
        advice = ADVICE[name]
        labels = "; ".join(f"`{label}`: {holds}" for label, holds in advice.labels.items())
        lines.append(f"| `{name}` | {labels or '–'} | {meaning} | {advice.todo} |")
    events = ["| event | meaning |", "|---|---|", *(f"| `{event}` | {meaning} |" for event, meaning in EVENTS.items())]
    return "\n".join([HEAD, *lines, LOG, *events, ""])


if __name__ == "__main__":
    FILE.write_text(reference())
