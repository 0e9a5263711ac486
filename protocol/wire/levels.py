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

The token of a client may carry the name of a user: `client.ann.`, a secret that is derived from the
client's token and the name, and the secret of the worker's token. From it the worker's token can be
made, and those below, as from that of any client; but neither the client's token without a name,
nor that of another user.

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
#: The name of a user has at most so many characters, because it takes a fixed size in a handshake.
MAX_USER_CHARS: Final = 32
_USER: Final = rf"[A-Za-z0-9_@-][A-Za-z0-9._@-]{{0,{MAX_USER_CHARS - 1}}}"
_NAMED: Final = re.compile(
    rf"client\.({_USER})\.[A-Za-z0-9_-]{{43}}\.([A-Za-z0-9_-]{{43}})".encode()
)


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
    if _NAMED.fullmatch(token):
        return Level.CLIENT
    found = _DERIVED.fullmatch(token)
    return Level.ADMIN if found is None else Level[found[1].decode().upper()]


def user_of(token: bytes) -> str:
    """Return the name of the user that a token's text carries; "" = none."""
    found = _NAMED.fullmatch(token)
    return "" if found is None else found[1].decode()


def is_user(name: str) -> bool:
    """Return whether a text may be the name of a user."""
    return re.fullmatch(_USER, name) is not None


def with_user(token: bytes, user: str) -> bytes:
    """Return the client's token of a user of the same cluster.

    Raises:
        LocalProtocolError: `token` is of a lower level, or that of a user, from which it cannot be
            derived; or `user` cannot be the name of one.
    """
    if not is_user(user):
        raise LocalProtocolError(f"{user!r} cannot be the name of a user")
    own = user_of(token)
    if own:
        raise LocalProtocolError(f"a token of user {user} cannot be made from that of user {own}")
    client = lowered(token, Level.CLIENT)
    secret = _text_of(hkdf_sha256(client, salt=_SALT, info=f"user {user}".encode()))
    worker = lowered(client, Level.WORKER).removeprefix(b"worker.")
    return b"client." + user.encode() + b"." + secret + b"." + worker


def lowered(token: bytes, level: Level) -> bytes:
    """Return the token of `level` of the same cluster.

    Raises:
        LocalProtocolError: `token` is of a lower level, from which it cannot be derived.
    """
    own = level_of(token)
    if level > own:
        raise LocalProtocolError(f"a token of role {level.label} cannot be made from {own.label}")
    named = _NAMED.fullmatch(token)
    if named is not None and level < own:
        own, token = Level.WORKER, b"worker." + named[2]
    for step in range(own - 1, level - 1, -1):
        label = Level(step).label.encode()
        token = label + b"." + _text_of(hkdf_sha256(token, salt=_SALT, info=label))
    return token


def _text_of(secret: bytes) -> bytes:
    return base64.urlsafe_b64encode(secret).rstrip(b"=")


def demand_text(what: str, needed: Level, has: Level) -> str:
    """Return the text that `what` needs a token of another level, and how to get one."""
    return str(NotPermitted(what, needed.label, has.label))
