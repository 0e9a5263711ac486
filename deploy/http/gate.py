"""The gate for browsers: who is signed in, links that sign in once, and failed attempts.

Nothing is kept about those who are signed in (see `protocol/trust/page_access.py`), so a scheduler
that is started again knows them. Links that were used are remembered as long as they are valid;
links that were made before this process began are refused, as it cannot know whether they were
used.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol.trust.page_access import CLOCK_SKEW_S, COOKIE_LIFE_S, LINK_LIFE_S, PageAccess

if TYPE_CHECKING:
    import tornado.web

#: So many attempts to sign in may fail from one address, and then one more in so many seconds.
MAX_FAILED: Final = 10
FORGIVEN_AFTER_S: Final = 6.0
#: Addresses that are remembered for that.
_MAX_ADDRESSES: Final = 1000


class Attempts:
    """Failed attempts by address; each is forgiven after a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: {address: when its last failure is forgiven}, in the order of the last failures
        self._forgiven: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long this address has to wait before its next attempt; 0 = it need not."""
        left_s = self._forgiven.get(address, 0.0) - self._clock()
        return max(left_s - (MAX_FAILED - 1) * FORGIVEN_AFTER_S, 0.0)

    def note_failure(self, address: str) -> None:
        """Count an attempt that failed."""
        now = self._clock()
        since = max(self._forgiven.pop(address, now), now)
        self._forgiven[address] = since + FORGIVEN_AFTER_S
        while len(self._forgiven) > _MAX_ADDRESSES:
            self._forgiven.popitem(last=False)


class Gate:
    """Decides whether a browser may see the pages, and lets it in."""

    def __init__(self, token: bytes, clock: Callable[[], float] = time.time) -> None:
        self._access = PageAccess(token)
        self._clock = clock
        self._began = int(clock())
        #: {parameter of a link that was used: when the link ends}, in order of use
        self._used: OrderedDict[str, float] = OrderedDict()
        self.attempts = Attempts()

    def is_open_for(self, page: tornado.web.RequestHandler) -> bool:
        """Return whether a request has a valid cookie; renew one that is half over."""
        cookie = page.get_cookie(self._access.cookie_name)
        if not cookie:
            return False
        left_s = self._access.cookie_left_s(cookie, self._clock())
        if 0 < left_s < COOKIE_LIFE_S / 2:
            self.let_in(page)
        return left_s > 0

    def let_in(self, page: tornado.web.RequestHandler) -> None:
        """Give a browser the cookie."""
        cookie = self._access.cookie(self._clock())
        _set_cookie(page, self._access.cookie_name, cookie, COOKIE_LIFE_S)

    def let_out(self, page: tornado.web.RequestHandler) -> None:
        """Take the cookie away."""
        _set_cookie(page, self._access.cookie_name, "", 0)

    def take_link(self, access: str) -> str:
        """Use up a link, by its parameter; return why it is not accepted, "" = it is."""
        now = self._clock()
        while self._used and next(iter(self._used.values())) < now:
            self._used.popitem(last=False)
        made = self._access.link_made_at(access)
        if made is None:
            return "This link was not made by this cluster."
        if made > now + CLOCK_SKEW_S:
            return "This link comes from the future: compare the clocks of the two machines."
        if made < max(now - LINK_LIFE_S, self._began - CLOCK_SKEW_S):
            return (
                "This link has expired: it was made more than an hour ago, or for a scheduler "
                "that was started again since."
            )
        if access in self._used:
            return "This link was used before, and works once."
        self._used[access] = now + LINK_LIFE_S + 2 * CLOCK_SKEW_S
        return ""


def _set_cookie(page: tornado.web.RequestHandler, name: str, value: str, life_s: int) -> None:
    # A proxy that ends TLS sends the header; a browser that made it up would only harm itself.
    proto = page.request.headers.get("X-Forwarded-Proto", page.request.protocol)
    page.set_cookie(
        name,
        value,
        path="/",
        max_age=life_s,
        httponly=True,
        samesite="Strict",
        secure=proto == "https",
    )
