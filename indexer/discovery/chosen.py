"""Which discoverers the settings ask for, in the order in which they win."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexer.discovery.found import Discoverer
    from indexer.ports import Clock
    from indexer.settings import Settings


def discoverers(settings: Settings, clock: Clock) -> tuple[Discoverer, ...]:
    """None where nothing is asked for. What takes memory to import is imported only where it is."""
    found: list[Discoverer] = []
    if settings.discovery.kubernetes.selector is not None:
        found.append(_kubernetes(settings, clock))
    if settings.discovery.dns.names:
        found.append(_dns(settings, clock))
    return tuple(found)


def _kubernetes(settings: Settings, clock: Clock) -> Discoverer:
    from indexer.discovery.engine_sources import event_sources  # noqa: PLC0415 - only where it is asked for
    from indexer.discovery.kubernetes import KubernetesDiscoverer, rules_of  # noqa: PLC0415 - as above
    from indexer.http_clients import load  # noqa: PLC0415 - as above
    from indexer.settings.in_cluster import access_of  # noqa: PLC0415 - as above

    load()  # here, and not in a loop that answers
    return KubernetesDiscoverer(
        rules_of(settings),
        access_of(settings.discovery.kubernetes, os.environ),
        clock=clock,
        chance=random.Random(),  # noqa: S311  spreads load, and keeps no secret
        ask=event_sources,
    )


def _dns(settings: Settings, clock: Clock) -> Discoverer:
    from indexer.discovery.dns import DnsDiscoverer  # noqa: PLC0415 - only where it is asked for

    return DnsDiscoverer(settings.discovery.dns, clock, random.SystemRandom())  # nobody may guess a question's number
