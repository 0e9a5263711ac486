"""The gate for browsers: who is signed in, links that sign in once, and failed attempts.

Nothing is kept about those who are signed in (see `protocol/trust/page_access.py`), so a scheduler
that is started again knows them. Links that were used are remembered as long as they are valid. The
scheduler's process remembers them as well, for the next HTTP process; the next scheduler refuses
links that were made before its start. So a link works twice in one case only: the clock of its
maker is ahead, by at most `CLOCK_SKEW_S`, and the scheduler is started again within that time.

A failed attempt locks no user out: the right token is always accepted at once. Behind a proxy all
browsers have one address, so a limit for each address would be one for all of them. Guessing has no
prospect, because a token has 256 random bits and is compared in constant time. A wrong token in the
form is answered late, unless many wait already. The log has the number of wrong tokens and links.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ...protocol.trust.page_access import COOKIE_LIFE_S, PageAccess
from ...protocol.trust.page_claims import CLOCK_SKEW_S, LINK_LIFE_S
from ...protocol.wording import counted

if TYPE_CHECKING:
    import tornado.web

_log = logging.getLogger("weft.http")

#: A wrong token in the form is answered after so long, unless so many wait already.
FAILURE_DELAY_S: Final = 0.5
MAX_DELAYED: Final = 50
#: Failed attempts are logged at most this often.
LOG_INTERVAL_S: Final = 60.0


class UsedLinks:
    """Links that were used, as long as they are valid; for the gate and for its parent process.

    Args:
        known: `{parameter of a link: when it ends}`, in order of use.
    """

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        self._ends = dict(known or {})

    def __contains__(self, access: str) -> bool:
        return access in self._ends

    def add(self, access: str, now: float) -> None:
        """Note that a link was used now; forget those that have ended."""
        while self._ends and self._ends[first := next(iter(self._ends))] < now:
            del self._ends[first]
        self._ends[access] = now + LINK_LIFE_S + 2 * CLOCK_SKEW_S

    def to_plain(self) -> dict[str, float]:
        """Return them for the next gate."""
        return self._ends


class FailedAttempts:
    """Counts failed attempts to sign in, for the log, and delays their answers.

    The first one is logged at once, and the number of those that follow at the end of the interval.
    """

    def __init__(self) -> None:
        self._n_new = self._n_delayed = 0
        self._last = ""
        #: The end of the interval that the latest line began; None = there is none.
        self._next_line: asyncio.TimerHandle | None = None

    async def delay(self, address: str) -> None:
        """Count a failed attempt, and wait before it is answered."""
        self.note(address)
        if self._n_delayed < MAX_DELAYED:
            self._n_delayed += 1
            try:
                await asyncio.sleep(FAILURE_DELAY_S)
            finally:
                self._n_delayed -= 1

    def note(self, address: str) -> None:
        """Count a failed attempt, on the event loop."""
        self._n_new += 1
        self._last = address
        if self._next_line is None:
            self._log()

    def _log(self) -> None:
        """Log the attempts since the last line; end the interval if there were none."""
        self._next_line = None
        if not self._n_new:
            return
        n, self._n_new = self._n_new, 0
        _log.warning(
            "%s to sign in to the pages failed, the last one from %s; the next line about it comes "
            "after a minute at the earliest",
            counted(n, "attempt"),
            self._last,
            extra={"code": "sign-in-failed"},
        )
        self._next_line = asyncio.get_running_loop().call_later(LOG_INTERVAL_S, self._log)

    def close(self) -> None:
        """Log what was counted since the last line, and log no more."""
        if self._next_line is not None:
            self._next_line.cancel()
            self._log()
        if self._next_line is not None:
            self._next_line.cancel()


class Gate:
    """Decides whether a browser may see the pages, and lets it in.

    Args:
        token: the cluster's view token.
        clock: returns the time.
        began: when the scheduler began; None = now. Links that were made before are refused.
        used: links that were used since then.
        on_used: called with each link that is used.
    """

    def __init__(
        self,
        token: bytes,
        clock: Callable[[], float] = time.time,
        began: float | None = None,
        used: UsedLinks | None = None,
        on_used: Callable[[str], None] = lambda access: None,
    ) -> None:
        self._access = PageAccess(token)
        self._clock = clock
        self._began = int(clock() if began is None else began)
        self._used = used or UsedLinks()
        self._on_used = on_used
        self.failed = FailedAttempts()

    def is_open_for(self, page: tornado.web.RequestHandler) -> bool:
        """Return whether a request has a valid cookie; renew one that is half over."""
        cookie = page.get_cookie(self._access.cookie_name)
        if not cookie:
            return False
        left_s = self._access.cookie_left_s(cookie, self._clock())
        if 0 < left_s < COOKIE_LIFE_S / 2:
            self.let_in(page)
        return left_s > 0

    def note_failure(self, page: tornado.web.RequestHandler) -> None:
        """Count a request with a wrong token or link, which is answered at once."""
        self.failed.note(page.request.remote_ip or "?")

    def let_in(self, page: tornado.web.RequestHandler) -> None:
        """Give a browser the cookie."""
        cookie = self._access.cookie(self._clock())
        _set_cookie(page, self._access.cookie_name, cookie, COOKIE_LIFE_S)

    def let_out(self, page: tornado.web.RequestHandler) -> None:
        """Take the cookies away."""
        _set_cookie(page, self._access.cookie_name, "", 0)
        self.end_visit(page)

    def visit_of(self, page: tornado.web.RequestHandler) -> str:
        """Return the pass of the visit that a request names, unchecked; "" = none."""
        return page.get_cookie(self._access.visit_cookie_name) or ""

    def begin_visit(self, page: tornado.web.RequestHandler, visit: str, life_s: float) -> None:
        """Give a browser the pass of a visit."""
        _set_cookie(page, self._access.visit_cookie_name, visit, int(life_s))

    def end_visit(self, page: tornado.web.RequestHandler) -> None:
        """Take the pass away."""
        _set_cookie(page, self._access.visit_cookie_name, "", 0)

    def form_token(self, visit: str) -> str:
        """Return the text that the forms of a visit have."""
        return self._access.form_token(visit)

    def made_of(self, access: str) -> str:
        """Return what the claim of a link is made for."""
        return self._access.made_of(access)

    def take_link(self, access: str) -> str:
        """Use up a link, by its parameter; return why it is not accepted, "" = it is."""
        now = self._clock()
        made = self._access.link_made_at(access)
        if made is None:
            return "This link was not made by this cluster."
        if made > now + CLOCK_SKEW_S:
            return "This link comes from the future: compare the clocks of the two machines."
        if made < now - LINK_LIFE_S:
            return f"This link has expired: it was made more than {LINK_LIFE_S // 60} minutes ago."
        if made < self._began:
            return (
                "This link was made before the scheduler was started, or on a machine whose clock "
                "is behind."
            )
        if access in self._used:
            return "This link was used before, and works once."
        self._used.add(access, now)
        self._on_used(access)
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
