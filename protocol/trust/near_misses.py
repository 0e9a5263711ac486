"""What a user may have meant by an address at which no scheduler of theirs is.

An address that is only nearly right would be reported as one without a token: with tcp:// for
tls://, the port of the pages, the name of a cluster, or a port alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Protocol

from .connection_fields import address_key

#: That of `weft scheduler`, if it is free.
DEFAULT_PORT: Final = 8786
MAX_PORT: Final = 65535


class Known(Protocol):
    """The fields of a connection file that are compared."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the scheduler, the best one first."""

    @property
    def dashboard(self) -> str | None:
        """URL of the pages."""

    @property
    def source(self) -> str:
        """Path of the file."""


def near_miss(address: str, known: Sequence[Known]) -> str:
    """Return what is nearly right with `address`, and what to give instead; "" = nothing known."""
    port = _port(address)
    if address.isascii() and address.isdigit():
        places = [(one, file) for file in known for one in (*file.addresses, file.dashboard or "")]
        of_port = [(one, file) for one, file in places if _port(one) == address]
        meant = next((_address_of(one, file) for one, file in of_port), "")
        if not meant and len(address) <= 5 and 0 < int(address) <= MAX_PORT:
            meant = f"tcp://127.0.0.1:{address}"
        return f"{address} is a port without a host" + (f": did you mean {meant}?" if meant else "")
    has_port = port.isascii() and port.isdigit() and not address.startswith("unix:")
    # Only short texts become numbers: Python refuses thousands of digits with an error of its own.
    if has_port and (len(port) > 5 or int(port) > MAX_PORT):
        return f"its port is too large, the largest is {MAX_PORT}"
    # A host alone has got the default port.
    name = address.removesuffix(f":{DEFAULT_PORT}")
    for file in known:
        best = file.addresses[0]
        if file.dashboard and _is_at(address, file.dashboard):
            return f"{address} is for the pages of a scheduler: did you mean {best}?"
        for one in file.addresses:
            if (
                "://" in address
                and _is_at(address, one)
                and address_key(address) != address_key(one)
            ):
                return f"the scheduler at {address} has another scheme: did you mean {one}?"
        if name == PurePath(file.source).stem:
            return f"{name} is the name of a cluster, and not an address: did you mean {best}?"
    if address.startswith(("http://", "https://")):
        return f"{address} is for pages: give the address that the scheduler has printed"
    return ""


def _port(address: str) -> str:
    return address.rpartition(":")[2].rstrip("/")


def _address_of(place: str, file: Known) -> str:
    """Return an address of a scheduler itself; for that of its pages its best one."""
    return place if place in file.addresses else file.addresses[0]


def _is_at(address: str, other: str) -> bool:
    """Return whether two addresses have the same host and port, whatever their schemes."""
    bare = [text.rpartition("://")[2].rstrip("/") for text in (address, other)]
    keys = [address_key(f"tcp://{text}") for text in bare]
    return keys[0] is not None and keys[0] == keys[1]
