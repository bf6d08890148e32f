"""The service's settings: read once, frozen, checked against each other.

`sections` is the reference: every key, its default and what it means. `layers` reads YAML < environment < flags into
it, `source_flag` is the grammar of `--source`, `printed` shows the effective settings with secrets masked.
Does no I/O but reading the one file it is told to, and looking whether those are there that settings name.
"""

from indexer.settings.files import check_files
from indexer.settings.followed import followed_models
from indexer.settings.later import refuse_what_is_not_there
from indexer.settings.layers import BadSettings, load
from indexer.settings.printed import masked
from indexer.settings.remarks import remarks, unread_variables
from indexer.settings.replica import replica_name
from indexer.settings.sections import (
    Auth,
    Compat,
    Events,
    Limits,
    Metrics,
    Models,
    Redis,
    Server,
    Settings,
    Staleness,
    Telemetry,
    TierTtls,
    TierWeights,
    Tls,
)
from indexer.settings.source_flag import parse_source_flag

__all__ = [
    "Auth",
    "BadSettings",
    "Compat",
    "Events",
    "Limits",
    "Metrics",
    "Models",
    "Redis",
    "Server",
    "Settings",
    "Staleness",
    "Telemetry",
    "TierTtls",
    "TierWeights",
    "Tls",
    "check_files",
    "followed_models",
    "load",
    "masked",
    "parse_source_flag",
    "refuse_what_is_not_there",
    "remarks",
    "replica_name",
    "unread_variables",
]
