"""Bodies on their way: whole at their last byte, and bounded together."""

from hypothesis import given
from hypothesis import strategies as st

from api.admission import Shares
from api.rest.arrivals import ARRIVAL_BYTES_MAX, Arrivals
from api.rest.heads import Head

HEAD = Head(lambda *_: None, b"", {})


@given(st.binary(min_size=1, max_size=100), st.lists(st.integers(1, 40)))
def test_a_body_is_the_same_however_it_comes(body: bytes, sizes: list[int]) -> None:
    """And bytes behind it are not taken."""
    arrival = Arrivals(Shares("x", 1_000)).begin("a", HEAD, b"head", len(body), fresh=False)
    assert arrival is not None
    sent = 0
    for size in [*sizes, len(body)]:
        taken = arrival.take((body + b"more")[sent : sent + size])
        sent += taken
        assert b"head" + body[:sent] == arrival.received()

    assert body == arrival.body
    assert not arrival.rest


def test_room_is_bounded() -> None:
    """One by one, and with all else that is unfinished; what has ended counts no more, and nobody is refused for it."""
    reached: list[str] = []
    pending = Shares("limits.x", 100, reached=reached.append)
    arrivals = Arrivals(pending)
    assert pending.take("another", 40)
    first = arrivals.begin("a", HEAD, b"", 50, fresh=False)
    assert first is not None
    assert not pending.take("another", 20)
    assert arrivals.begin("b", HEAD, b"", 11, fresh=False) is None
    arrivals.end(first)
    pending.give_back("another", 40)

    assert arrivals.begin("a", HEAD, b"", 100, fresh=False) is not None
    assert ["limits.x"] == reached
    assert Arrivals(Shares("x", 2**40)).begin("a", HEAD, b"", ARRIVAL_BYTES_MAX + 1, fresh=False) is None
