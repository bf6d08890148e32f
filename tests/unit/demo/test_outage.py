"""What the demo says of a service that was killed and came back."""

from __future__ import annotations

from api.demo.facts import SourceFacts
from api.demo.outage import Outage


def _facts(blocks: int, **generations: str) -> dict[str, SourceFacts]:
    return {
        pod: SourceFacts(pod, blocks={"gpu": blocks - 1, "cpu": 1}, generation=generation)
        for pod, generation in generations.items()
    }


def test_generations_that_go_on_are_what_was_kept() -> None:
    """A service that begins anew gives new ones, whatever replay brings back."""
    outage = Outage.begin(_facts(600, a="1f", b="20"), now=5.0)
    outage.missed, outage.away_s = 92, 2.34
    said = [outage.said_killed(), outage.said_back()]
    outage.judge(_facts(650, a="1f", b="20"))

    assert outage.kept
    assert [
        "the service is killed (SIGKILL) while it knows 1,200 blocks; the engines go on",
        "it listens again after 2.3 s, 92 batches behind the engines",
        "nothing was lost: the same generations, 1,300 blocks; 92 batches came by replay",
    ] == [*said, outage.said_judged(_facts(650, a="1f", b="20"))]


def test_an_engine_that_began_anew_is_named() -> None:
    """So is one that is not there any more."""
    outage = Outage.begin(_facts(600, a="1f", b="20", c="21"), now=5.0)
    after = _facts(600, a="1f", b="ff")
    outage.judge(after)

    assert outage.kept is False
    assert "begun anew after the restart: b, c" == outage.said_judged(after)
