"""The replicas as a part of the demo's table: what was done to them, what they own, how often they answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from api.demo.screen import WIDE, Column, table

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from api.demo.cluster import Replica, Replicas

COLUMNS: Final = (
    Column("replica"),
    Column("process"),
    Column("owns", right=True),
    Column("stands by", right=True),
    Column("answers", right=True),
    Column("applies the events of", width_min=WIDE),
)
_STYLES: Final = {"up": "green", "killed": "bold red", "paused": "bold red", "starting": "cyan"}


def replica_table(replicas: Replicas, answers: Counter[str], width: int) -> Table:
    """A row each. `answers`: how many, by address."""
    return table(COLUMNS, [_row(replicas, each, answers) for each in replicas.all], width)


def _row(replicas: Replicas, replica: Replica, answers: Counter[str]) -> Sequence[RenderableType]:
    engines = [pod for pod, facts in replicas.sources.items() if facts.owner == replica.name]
    return (
        Text(replica.name),
        Text(replica.standing, style=_STYLES[replica.standing]),
        f"{replicas.sharing.owned(replica.name)} of {len(replicas.sharing.partitions)}",
        str(replicas.sharing.stood_by(replica.name)),
        f"{answers[replica.client.url]:,}",
        Text(" ".join(engines)),
    )
