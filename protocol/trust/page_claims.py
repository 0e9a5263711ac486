"""Claims: what a link into the pages says that its visitor may do, beyond looking. Pure.

The token of a viewer makes a link (`page_access`), and signs nothing else. So a holder of more adds
a claim: a role, the user of its token, and a proof by the token of that role over both and over the
time and the number of the link. The process of the pages, which holds the token of a viewer, can
neither make nor check one. It hands claims to the scheduler, which has the first token of the chain
and can derive the key of each.

A claim that is taken out of its link leaves one that permits looking. It fits no other link.
"""

from __future__ import annotations

import base64
import hmac
import re
from typing import Final, NamedTuple

from ..wire.levels import Level, hkdf_sha256, is_user, lowered, user_of, with_user

#: A link that was made longer ago is refused, as is one from the future beyond what clocks differ.
LINK_LIFE_S: Final = 600
CLOCK_SKEW_S: Final = 60
#: The parameter of a link.
PARAMETER: Final = "claim"
#: Roles that a link may claim; each permits to look.
CLAIMED: Final = (Level.CLIENT, Level.ADMIN)

_SALT: Final = b"weft pages"
_CLAIM: Final = re.compile(r"(client|admin)\.(?:([A-Za-z0-9._@-]{1,32})\.)?([A-Za-z0-9_-]{43})")


class Claim(NamedTuple):
    """What a link claims."""

    level: Level
    user: str  #: of the token; "" = none


def claim(token: bytes, made: str, level: Level) -> str:
    """Return the claim of a link.

    Args:
        token: of `level` or of a higher one.
        made: the time and the number of the link, as it has them.
        level: of `CLAIMED`.
    """
    assert level in CLAIMED, level
    own = lowered(token, level)
    user = user_of(own)
    who = f"{level.label}.{user}" if user else level.label
    return f"{who}.{_sign(own, made, who)}"


class Claims:
    """Checks the claims of one cluster.

    Args:
        token: of an admin.
    """

    def __init__(self, token: bytes) -> None:
        self._token = token

    def read(self, made: str, text: str) -> Claim | None:
        """Return what a link claims; None = no holder of such a token has made that for it."""
        found = _CLAIM.fullmatch(text)
        if found is None:
            return None
        level, user = Level[found[1].upper()], found[2] or ""
        if user and (level is not Level.CLIENT or not is_user(user)):
            return None
        token = with_user(self._token, user) if user else lowered(self._token, level)
        who = f"{level.label}.{user}" if user else level.label
        is_right = hmac.compare_digest(_sign(token, made, who), found[3])
        return Claim(level, user) if is_right else None


def _sign(token: bytes, made: str, who: str) -> str:
    key = hkdf_sha256(token, salt=_SALT, info=b"claim")
    digest = hmac.digest(key, f"{made} {who}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
