"""Messages about failed tasks that a client has run again."""

from __future__ import annotations

from ..message import Keys, Message, Number, message
from ..roles import CLIENTS, Role


@message(130, by=(Role.CLIENT,))
class RetryKeys(Message):
    """Run these failed tasks again, with those of their inputs that failed.

    The answer is `KeysRetried`, then the present state of each key; or `Denied`, or `Unsupported`.
    """

    request: Number
    keys: Keys


@message(131, to=CLIENTS)
class KeysRetried(Message):
    """Answer `RetryKeys`: what comes after this is of the new runs.

    `keys` are failed inputs that the client has futures of, and that run again as well.
    """

    request: Number
    keys: Keys
