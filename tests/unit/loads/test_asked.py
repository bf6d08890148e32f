"""Where an engine's metrics are read, and where not."""

from __future__ import annotations

import pytest

from indexer.loads.asked import Place, place_of
from indexer.model import Descriptor


@pytest.mark.parametrize(
    ("pod", "endpoint", "address", "expected"),
    [
        ("a", "tcp://10.0.0.1:5557", "10.0.0.1:8000", Place("10.0.0.1:8000", is_given=True)),
        ("10.0.0.9:1", "tcp://10.0.0.1:5557", "host:8000", Place("host:8000", is_given=True)),
        ("10.0.0.1:8000", "tcp://10.0.0.1:5557", None, Place("10.0.0.1:8000", is_given=False)),
        ("http://10.0.0.1:8000/", "tcp://10.0.0.1:5557", None, Place("10.0.0.1:8000", is_given=False)),
        ("[fd00::A]:8000", "tcp://[fd00::a]:5557", None, Place("[fd00::A]:8000", is_given=False)),
        ("10.0.0.2:8000", "tcp://10.0.0.1:5557", None, None),
        ("10.0.0.1:8000", None, None, None),
        ("10.0.0.1:8000", "ipc://a", None, None),
        ("engine-0", "tcp://engine-0:5557", None, None),
        ("engine-0:8000", "tcp://engine-0:5557", None, None),
        ("https://10.0.0.1:8000", "tcp://10.0.0.1:5557", None, None),
    ],
)
def test_only_registered_places_are_asked(
    pod: str, endpoint: str | None, address: str | None, expected: Place | None
) -> None:
    """Its address, else a name that is a place at the host of its events; who came by a topic is never called."""
    assert expected == place_of(Descriptor(pod=pod, endpoint=endpoint, address=address))
