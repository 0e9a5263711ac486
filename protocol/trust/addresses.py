"""Addresses of schedulers as users give them, perhaps without a scheme or a port."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..errors import ConfigError
from ..wire.address import Address, parse_address
from .security import needs_tls

#: The port of `weft scheduler`, if it is free.
DEFAULT_PORT: Final = 8786


def address_key(text: str) -> Address | None:
    """Return the normalized address; None = it is malformed or cannot be connected to."""
    try:
        address = parse_address(text)
    except ConfigError:
        return None
    if address.is_tcp:
        host = address.host.lower()
        return address._replace(host="127.0.0.1" if host == "localhost" else host)
    return address if address.scheme == "unix" else None


def with_port(address: str) -> str:
    """Return an address with the port of `weft scheduler`, if it is that of a host alone."""
    host = address.rpartition("://")[2]
    if host.isdigit():
        return address
    is_alone = "." + host.rpartition(".")[2] != ".json" and (":" not in host or host[-1] == "]")
    if not is_alone or address_key(with_scheme(address)) is not None:
        return address
    completed = f"{address}:{DEFAULT_PORT}"
    return address if address_key(with_scheme(completed)) is None else completed


def with_scheme(address: str, listed: Iterable[str] = ()) -> str:
    """Return `address`; if it is a bare host:port, with its scheme added.

    The scheme is the one that the scheduler's addresses have for this one or, if they have another
    host (this may be that of a tunnel), the first one. Without them: weft always encrypts beyond
    loopback.
    """
    bare = address_key(f"tcp://{address}")
    if "://" in address or bare is None:
        return address
    known = [key for key in map(address_key, listed) if key is not None and key.is_tcp]
    known.sort(key=lambda key: key[1:] != bare[1:])
    scheme = known[0].scheme if known else "tls" if needs_tls(bare.host) else "tcp"
    return f"{scheme}://{address}"


def is_listed(address: str, listed: Iterable[str]) -> bool:
    """Return whether an address, perhaps a bare host:port, is among those of a scheduler."""
    listed = tuple(listed)
    return address_key(with_scheme(address, listed)) in map(address_key, listed)
