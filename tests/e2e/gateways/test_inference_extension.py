"""What the endpoint picker protocol asks of picker and data plane together, with a real Envoy as the data plane.

The gateway follows the choice, in its order, and goes on without a picker: `test_gateways.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.support.gateway_fleet import GONE, Fleet, running_fleet
from tests.support.gateways import Gateway
from tests.support.openai_engines import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.slow
MODES: Final = ("ext-proc.yaml", "ext-proc-duplex.yaml")
FILTER: Final = "          - name: envoy.filters.http.ext_proc\n"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One for all."""
    with running_fleet() as made:
        yield made


def _answer(
    kind: str, fleet: Fleet, engines: Sequence[int], prompt: list[int], subset: object = None
) -> httpx.Response:
    """Of a gateway before these engines, which hints at a subset of them where there is one."""

    def with_hint(text: str) -> str:
        value = json.dumps({"x-gateway-destination-endpoint-subset": subset})
        hint = (
            "          - name: envoy.filters.http.set_metadata\n            typed_config:\n"
            '              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config\n'
            f"              metadata: [{{metadata_namespace: envoy.lb.subset_hint, value: {value}}}]\n"
        )
        return text if subset is None else text.replace(FILTER, hint + FILTER)

    body, before = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 1}).encode(), _served(fleet)
    with Gateway(kind, fleet.picker, engines, edited=with_hint, patient=True) as gateway:
        answer = httpx.post(f"http://127.0.0.1:{gateway.port}/v1/completions", content=body, timeout=60)
    if answer.status_code == 200:  # counted a moment behind the answer: else in the middle of the next test
        fleet.service.wait_for(lambda: _served(fleet) == before + 1, "who served to be counted")
    return answer


def _served(fleet: Fleet) -> float:
    """Requests of which it was told who served them."""
    return sum(n for name, n in fleet.service.metrics().items() if name.startswith("kvindexer_epp_served_total"))


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize(("gone", "by"), [(False, "first"), (True, "fallback")], ids=["first", "fallback"])
def test_the_picker_hears_which_endpoint_served(kind: str, gone: bool, by: str, fleet: Fleet) -> None:
    """The one that was chosen, or the next one where that is gone."""
    sample = f'kvindexer_epp_served_total{{by="{by}"}}'
    before = fleet.service.metrics().get(sample, 0)
    engines = [fleet.gone, *fleet.ports[1:]] if gone else fleet.ports
    answer = _answer(kind, fleet, engines, fleet.prompt(GONE if gone else 1))

    assert (200, str(fleet.ports[1])) == (answer.status_code, answer.headers["x-engine"])
    assert before + 1 == fleet.service.metrics().get(sample, 0)


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("form", [list, ",".join], ids=["list", "text"])
def test_only_endpoints_of_the_subset_are_sent_to(kind: str, form: type[list[str]], fleet: Fleet) -> None:
    """Also where another one holds the prompt."""
    answer = _answer(kind, fleet, fleet.ports, fleet.prompt(0), form([fleet.pods[2]]))

    assert (200, str(fleet.ports[2])) == (answer.status_code, answer.headers["x-engine"])


@pytest.mark.parametrize("kind", MODES)
def test_a_subset_without_an_endpoint_that_is_known_is_503(kind: str, fleet: Fleet) -> None:
    """As the protocol wants it, and by the picker, whose answer it is."""
    answer = _answer(kind, fleet, fleet.ports, fleet.prompt(0), ["10.9.9.9:1"])

    assert 503 == answer.status_code
    assert "x-engine" not in answer.headers
