"""Who may change sources while there is no access control."""

import pytest

from api.problems import RequestRefused
from api.rest.callers import require_local


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (("127.0.0.1", 5), {}),
        (("127.8.8.8", 5), {}),
        (("::1", 5), {}),
        (("::ffff:127.0.0.1", 5), {}),
        (None, {}),
        (("127.0.0.1", 5), {b"origin": b"http://localhost:8080"}),
        (("127.0.0.1", 5), {b"origin": b"http://[::1]:8080"}),
    ],
)
def test_this_machine_may(client: tuple[str, int] | None, headers: dict[bytes, bytes]) -> None:
    """By loopback or Unix socket, a page served from here included."""
    require_local({"client": client}, headers)


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (("10.0.0.1", 5), {}),
        (("2001:db8::1", 5), {}),
        (("::ffff:10.0.0.1", 5), {}),
        (("testclient", 5), {}),
        (("127.0.0.1", 5), {b"x-forwarded-for": b"10.0.0.1"}),
        (("127.0.0.1", 5), {b"forwarded": b"for=127.0.0.1"}),
        (("127.0.0.1", 5), {b"origin": b"https://elsewhere.example"}),
        (("127.0.0.1", 5), {b"origin": b"null"}),
        (("127.0.0.1", 5), {b"origin": b"http://[x"}),
        (("127.0.0.1", 5), {b"origin": b"\xff"}),
    ],
)
def test_nobody_else_may(client: tuple[str, int], headers: dict[bytes, bytes]) -> None:
    """Other machines, what a proxy forwards, and pages of other sites."""
    with pytest.raises(RequestRefused) as caught:
        require_local({"client": client}, headers)

    assert (403, "caller.not_local") == (caught.value.status, caught.value.code)
