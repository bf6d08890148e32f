"""What may be asked for at most. Without imports: the command line reads it before it knows what it is to do."""

from __future__ import annotations

from typing import Final

REPLICAS_MAX: Final = 64
PARTITIONS_MAX: Final = 1_024
