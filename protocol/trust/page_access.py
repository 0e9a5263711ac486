"""Access of browsers to a scheduler's pages: signed links and cookies, made from the view token.

A browser sends no `Authorization` header, and the token must not stay in it. So it gets a cookie
that the token has signed. It holds until a time that it names, also after a restart of the
scheduler, since nothing about it is kept; it ends for all when the cluster's token changes.

A *link* signs a browser in with one click. Any process that holds the token of a viewer, or more,
can make one without asking the server. It names the time at which it was made and a random number;
the server takes each once, for ten minutes: a saved notebook has it in its output. A link that
permits more than looking has a claim as well (`page_claims`).

But for `link_into`, time and random numbers are given.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from ..wire.levels import Level, hkdf_sha256, lowered
from . import page_claims

if TYPE_CHECKING:
    from .security import Security

#: Life of a cookie; one that has lived for half of it is renewed when it is used.
COOKIE_LIFE_S: Final = 7 * 24 * 3600
#: The parameter of a link.
PARAMETER: Final = "access"

_SALT: Final = b"weft pages"
_COOKIE: Final = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_LINK: Final = re.compile(r"([0-9]{1,12}\.[A-Za-z0-9_-]{16,64})\.([A-Za-z0-9_-]{43})")


class PageAccess:
    """Makes and checks cookies and links of one cluster.

    Args:
        token: the cluster's, of any level: all are equal here.
    """

    def __init__(self, token: bytes) -> None:
        view = lowered(token, Level.VIEW)
        self._cookie_key = hkdf_sha256(view, salt=_SALT, info=b"cookie")
        self._link_key = hkdf_sha256(view, salt=_SALT, info=b"link")
        #: Browsers do not tell ports of one host apart: each cluster has a cookie of its own.
        self.cookie_name = "weft-" + hkdf_sha256(view, salt=_SALT, info=b"name", nbytes=8).hex()
        #: ... and one more for the pass of a visit.
        self.visit_cookie_name = f"{self.cookie_name}-visit"
        self._form_key = hkdf_sha256(view, salt=_SALT, info=b"form")

    def cookie(self, now: float) -> str:
        """Return a cookie that is made now (seconds of the clock)."""
        expires = str(int(now) + COOKIE_LIFE_S)
        return f"{expires}.{_sign(self._cookie_key, expires)}"

    def cookie_left_s(self, text: str, now: float) -> float:
        """Return how long a cookie is valid from now on; 0 = it is not."""
        found = _COOKIE.fullmatch(text)
        if found is None or not _is_signed(self._cookie_key, found[1], found[2]):
            return 0.0
        return min(max(int(found[1]) - now, 0.0), COOKIE_LIFE_S)

    def form_token(self, visit: str) -> str:
        """Return the text that the forms of a visit have, by its pass, and no others."""
        return _sign(self._form_key, visit)

    def link(self, url: str, now: float, number: str) -> str:
        """Return `url`, that of the pages, as a link that signs a browser in once.

        Args:
            url: without parameters.
            now: seconds of the clock.
            number: random, at least 16 characters of base64 for URLs.
        """
        made = made_text(now, number)
        access = f"{made}.{_sign(self._link_key, made)}"
        return f"{url}?{urlencode({PARAMETER: access})}"

    def link_made_at(self, access: str) -> int | None:
        """Return when a link was made, by its parameter; None = not by a holder of the token."""
        found = _LINK.fullmatch(access)
        if found is None or not _is_signed(self._link_key, found[1], found[2]):
            return None
        return int(found[1].partition(".")[0])

    @staticmethod
    def made_of(access: str) -> str:
        """Return the time and the number of a link, by its parameter: what a claim is made for."""
        return access.rpartition(".")[0]


def made_text(now: float, number: str) -> str:
    """Return the time and the number of a link, as it has them."""
    return f"{int(now)}.{number}"


def link_into(
    url: str | None, security: Security | None, level: Level = Level.CLIENT
) -> str | None:
    """Return a new link into the pages at `url`; the address alone without a token that makes one.

    Its visitor has the rights of `level`, or of the token if that is of a lower one. Less than
    those of a client are to look. Rights of an admin take the wish: a link may be passed on.

    Not pure: it reads the clock and draws a random number.
    """
    if not url or security is None or not security.token:
        return url
    now, number = time.time(), secrets.token_urlsafe(18)
    link = PageAccess(security.token).link(url, now, number)
    level = min(level, security.level)
    if level not in page_claims.CLAIMED:
        return link
    claim = page_claims.claim(security.token, made_text(now, number), level)
    return f"{link}&{urlencode({page_claims.PARAMETER: claim})}"


def _sign(key: bytes, text: str) -> str:
    digest = hmac.digest(key, text.encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_signed(key: bytes, text: str, signature: str) -> bool:
    return hmac.compare_digest(_sign(key, text), signature)
