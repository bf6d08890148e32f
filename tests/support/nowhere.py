"""Places that are none, in ways that libraries complain of otherwise than of a place where nobody is."""

from __future__ import annotations

from typing import Final

HOSTS: Final = ("xn--a", "a" * 70, "a..b")
"""No name that could be looked up: no IDNA, too long, with nothing between two dots."""
LOCATIONS: Final = ("http://xn--a/", "xn--a:80", "http://[", "http://\xff/", "http://h:99999/", "")
"""Where a redirect may send, if it comes to that."""
