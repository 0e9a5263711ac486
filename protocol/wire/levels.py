"""The levels of a cluster's tokens, and the one-way chain of secrets that they are.

    admin -> client -> worker -> view

Each token is derived from the one before it by HKDF with the name of the level as the label. So the
holder of a token can make all tokens to the right of it and none to the left, and a scheduler,
which holds the first, can check every one of them without a table.

    admin    stops the cluster
    client   submits tasks, reads results
    worker   runs tasks, serves data; supervisors and the readers of workers' data ports, too
    view     reads descriptions and counters

The text of a derived token shows its level, `view.` and 43 characters for instance, so that a token
alone in a file says what it is for. Any other text is the token of an admin. The prefix is a part
of the secret that the handshake proves: a token with another prefix proves nothing.

A core: no clock, no random source.
"""

from __future__ import annotations

import base64
import enum
import hmac
import re
from typing import Final

from ..errors import LocalProtocolError, NotPermitted

_SALT: Final = b"weft token"
_DERIVED: Final = re.compile(rb"(view|worker|client)\.[A-Za-z0-9_-]{43}")


class Level(enum.IntEnum):
    """The rights of a token; each level includes the lower ones. The numbers are on the wire."""

    VIEW = 1
    WORKER = 2
    CLIENT = 3
    ADMIN = 4

    @property
    def label(self) -> str:
        """The level's name for display and in tokens, as `weft token --role` takes it."""
        return self.name.lower()


def hkdf_sha256(key: bytes, *, salt: bytes, info: bytes, nbytes: int = 32) -> bytes:
    """Derive `nbytes` (at most 8160) from `key`: HKDF of RFC 5869 with SHA-256."""
    pseudo_random_key = hmac.digest(salt, key, "sha256")
    block = derived = b""
    for counter in range(1, -(-nbytes // 32) + 1):
        block = hmac.digest(pseudo_random_key, block + info + bytes([counter]), "sha256")
        derived += block
    return derived[:nbytes]


def level_of(token: bytes) -> Level:
    """Return the level that a token's text shows. Whether it is true, the handshake proves."""
    found = _DERIVED.fullmatch(token)
    return Level.ADMIN if found is None else Level[found[1].decode().upper()]


def lowered(token: bytes, level: Level) -> bytes:
    """Return the token of `level` of the same cluster.

    Raises:
        LocalProtocolError: `token` is of a lower level, from which it cannot be derived.
    """
    own = level_of(token)
    if level > own:
        raise LocalProtocolError(f"a token of role {level.label} cannot be made from {own.label}")
    for step in range(own - 1, level - 1, -1):
        label = Level(step).label.encode()
        secret = hkdf_sha256(token, salt=_SALT, info=label)
        token = label + b"." + base64.urlsafe_b64encode(secret).rstrip(b"=")
    return token


def demand_text(what: str, needed: Level, has: Level) -> str:
    """Return the text that `what` needs a token of another level, and how to get one."""
    return str(NotPermitted(what, needed.label, has.label))
