"""Addresses as text: `tcp://host:port`, `tls://host:port`, `unix:///path`, `inproc://name`."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import ConfigError

_FORMS = "use tcp://host:port, tls://host:port, unix:///path or inproc://name"
#: Characters that end the host in a URL, or come before it.
_NOT_IN_HOSTS = frozenset("@/?#[]")
#: What users call the machine of a socket that has no host.
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class Address(NamedTuple):
    """The parts of an address; `port` is None where the scheme has none."""

    scheme: str
    #: Host (an IPv6 address without its brackets), absolute path, or name.
    host: str
    port: int | None

    def __str__(self) -> str:
        if self.port is None:
            return f"{self.scheme}://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_tcp(self) -> bool:
        """Return whether it is a TCP address, with or without TLS."""
        return self.port is not None


def parse_address(text: str) -> Address:
    """Take an address apart. Port 0, "any free one", is for listening.

    Raises:
        ConfigError: it is none.
    """
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if separator and rest:
        if scheme == "inproc" or (scheme == "unix" and rest.startswith("/")):
            return Address(scheme, rest, None)
        if scheme in ("tcp", "tls"):
            host, colon, port = rest.removesuffix("/").rpartition(":")
            bracketed = host.startswith("[") and host.endswith("]")
            bare = host[1:-1] if bracketed else host
            well_formed = colon and bare and (bracketed or ":" not in host)
            well_formed = well_formed and _NOT_IN_HOSTS.isdisjoint(bare)
            if well_formed and port.isascii() and port.isdigit():
                # The length first: int() refuses thousands of digits with an error of its own.
                if len(port) <= 5 and int(port) < 1 << 16:
                    return Address(scheme, bare, int(port))
                raise ConfigError(
                    f"{text!r} is not an address: its port is too large, the largest is 65535"
                )
    raise ConfigError(f"{text!r} is not an address: {_FORMS}")


def names_of_process(address: str, host: str) -> frozenset[str]:
    """Return what users may call a process, or its machine, beside its own name.

    Args:
        address: that others reach it at. The host in it, most often an IP address, is one of the
            names, and "host:port"; for a socket within one machine those of the loopback are.
        host: the name of its machine, "" if that is not known.
    """
    names = {address, host}
    try:
        parsed = parse_address(address)
    except ConfigError:
        pass
    else:
        where = str(parsed).partition("://")[2]
        names.update((parsed.host, where) if parsed.is_tcp else _LOOPBACK)
    return frozenset(names - {""})


def is_on_this_host(address: str) -> bool:
    """Return whether an address is one of other processes of this host, by its text alone."""
    try:
        parsed = parse_address(address)
    except ConfigError:
        return False
    return parsed.scheme == "unix" or (parsed.is_tcp and parsed.host in _LOOPBACK)


def socket_address(scheme: str, name: object) -> str:
    """Make an address of the result of `getsockname` or `getpeername`, without resolving names."""
    if isinstance(name, tuple) and len(name) >= 2:
        # An IPv4 peer of a socket for both families.
        return str(Address(scheme, str(name[0]).removeprefix("::ffff:"), int(name[1])))
    return f"{scheme}://{name.decode(errors='replace') if isinstance(name, bytes) else name or ''}"
