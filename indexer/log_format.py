"""Lines of the log as they are written: for people at a console, or a JSON object each."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from indexer.log_lines import line_of
from indexer.moments import utc_text

TEXT_MAX: Final = 500
"""Of a name; a line is bounded, whatever an engine is called."""
MESSAGE_MAX: Final = 16_384
"""Of the sentence, and of a traceback."""
CONSOLE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """`ts, level, event`, then what applies of `source, model, replica, partition, request_id, trace_id`.

    Behind them the sentence as `message`, who logs as `logger`, and where it failed as `traceback`. `replica` is this
    process, where there are several.
    """

    def __init__(self, replica: str | None = None) -> None:
        super().__init__()
        self._replica = replica

    def format(self, record: logging.LogRecord) -> str:
        """One object, in one line."""
        event, names = line_of(record)
        at = utc_text(record.created)
        said: dict[str, object] = {"ts": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "event": event}
        named = {
            "source": names.get("source"),
            "model": names.get("model"),
            "replica": self._replica,
            "partition": names.get("partition"),
            "request_id": names.get("request_id"),
            "trace_id": names.get("trace_id"),
        }
        said |= {
            key: value if isinstance(value, int) else _clean(str(value)[:TEXT_MAX])
            for key, value in named.items()
            if value is not None
        }
        said |= {"message": _clean(record.getMessage()[:MESSAGE_MAX]), "logger": record.name}
        if record.exc_info:
            said["traceback"] = _clean(self.formatException(record.exc_info)[-MESSAGE_MAX:])
        return _ENCODE(said).decode()


def _clean(text: str) -> str:
    """Without halves of characters, which stand in names that were no text."""
    return text.encode("utf-8", "backslashreplace").decode()


_ENCODE: Final = msgspec.json.Encoder().encode
