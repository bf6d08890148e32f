"""What the Kubernetes discoverer makes of pods, without any API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indexer.discovery.kubernetes.picture import Pictures
from indexer.discovery.kubernetes.pod import read_pod
from indexer.discovery.kubernetes.reading import Reading, Rules, read
from indexer.settings.discovery import Kubernetes
from indexer.settings.in_cluster import is_one_namespace

if TYPE_CHECKING:
    from indexer.discovery.found import Found, Picture
    from indexer.discovery.kubernetes.picture import Answered
    from tests.support.pods import Object


def rules(settings: Kubernetes | None = None, **others: object) -> Rules:
    """As a replica with these settings has them."""
    settings = settings or Kubernetes(selector="app=vllm")
    said = {
        "settings": settings,
        "one_namespace": is_one_namespace(settings),
        "model_aliases": {},
        "learns_models": False,
        "silent_models": (),
    }
    return Rules(**{**said, **others})  # type: ignore[arg-type]


def reading_of(pod: Object, of: Rules | None = None) -> Reading:
    """Of one that an API server tells."""
    return read(read_pod(msgspec.json.encode(pod)), of or rules())


def picture(*pods: Object, of: Rules | None = None, answered: Answered = "waited for") -> Picture:
    """Of these; `answered`: what each engine says that is asked."""
    of = of or rules()
    return Pictures(of.settings).of([reading_of(pod, of) for pod in pods], lambda _: answered)


def only(told: Picture) -> Found:
    """Its one source."""
    (found,) = told.found.values()
    return found
