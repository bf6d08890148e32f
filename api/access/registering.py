"""Who may change which engines this service follows, and where these may be. The same for every face.

Without access control only callers on this machine change sources, whatever else is configured; one thing is open to
others where `auth.endpoints` says so: to register a source within that list. With access control the scope `admin` is
what it takes (the doors ask for it), but until there is a list callers elsewhere register nothing: else whoever holds
such a token could have this service connect to wherever it can and the caller cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api.access.endpoints import EndpointRules
from api.rest.callers import require_local, require_no_foreign_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import Scope

    from indexer.model import Descriptor

_THIS_MACHINE: Final = EndpointRules(("127.0.0.0/8", "::1", "localhost", "ipc:///"))


class Registering:
    """`endpoints` None: there is no list. One instance a process."""

    def __init__(self, endpoints: EndpointRules | None = None, *, controlled: bool = False) -> None:
        self._endpoints = endpoints
        self._controlled = controlled

    def require_may_change(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise `RequestRefused` 403 unless the caller may clear, remove, cordon, drain or look into blocks."""
        if not self._controlled:
            require_local(scope, headers)

    def require_may_register(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise `RequestRefused` 403 unless the caller may register sources, as far as that is known without them."""
        if self._endpoints is None:
            require_local(scope, headers)
        elif not self._controlled:
            require_no_foreign_page(headers)

    def require_may_replace(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """The same for a whole list, which removes sources, too."""
        self.require_may_change(scope, headers)
        self.require_may_register(scope, headers)

    def require_may_change_here(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """The first of these where nobody can show who he is: callers on this machine."""
        require_local(scope, headers)

    def require_may_register_here(self, scope: Scope, headers: Mapping[bytes, bytes], descriptor: Descriptor) -> None:
        """Raise `RequestRefused` 403 unless that source may be registered where nobody can show who he is.

        Without a list: by callers on this machine, and sources on this machine.
        """
        rules = self._endpoints
        if rules is None:
            require_local(scope, headers)
            rules = _THIS_MACHINE
        require_no_foreign_page(headers)
        rules.check(descriptor)

    def check(self, descriptors: Sequence[Descriptor], *, listed: bool = False) -> None:
        """Raise `RequestRefused` 403 where an endpoint is outside the list. `listed`: fields are named by place."""
        if self._endpoints is not None:
            for place, descriptor in enumerate(descriptors):
                self._endpoints.check(descriptor, f"[{place}]." if listed else "")
