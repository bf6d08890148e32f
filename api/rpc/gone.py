"""Callers that are gone while something is sent to them: no fault of ours, and none of gRPC's.

Its server writes an error with a traceback wherever the end of the call reaches it behind the failure to send.
"""

from __future__ import annotations

import logging
from typing import Final

import grpc

from indexer.log_lines import about

_log = logging.getLogger(__name__)
_THEIRS: Final = logging.getLogger("grpc._cython.cygrpc")
_NOT_SENT: Final = 'Failed "execute_batch"'
"""What was begun and then failed; what could not even be begun is a fault, and told."""


def tell_no_more_of_callers_gone() -> None:
    """From now on such a record of gRPC's is a line at the level of debugging."""
    _THEIRS.addFilter(_worth_telling)


def _worth_telling(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, grpc.aio.InternalError) or not str(error).startswith(_NOT_SENT):
        return True
    _log.debug("a caller went before what was sent to it", extra=about("caller_gone"))
    return False
