"""Settings of discovery: who tells which engines there are. Everything is off unless it is asked for."""

from __future__ import annotations

from indexer.settings.forms import Section


class Kubernetes(Section, frozen=True):
    """Pods of a Kubernetes cluster."""


class Dns(Section, frozen=True):
    """Names whose addresses, or SRV records, are the engines."""


class Discovery(Section, frozen=True):
    """Engines that nobody lists.

    Those that an orchestrator or a name server tells of are registered, origin `discovery`, and go when they are told
    of no more.
    """

    kubernetes: Kubernetes = Kubernetes()
    dns: Dns = Dns()
