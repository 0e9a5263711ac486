"""The fields of a connection file, each checked before it is used."""

from __future__ import annotations

import re
from typing import Any, Final

from ..errors import ConfigError
from ..wire.address import Address, parse_address
from ..wire.handshake import CLUSTER_ID_BYTES
from .secret_files import MAX_TOKEN_BYTES, TOKEN
from .security import MIN_TOKEN_BYTES, certificate_der

_MAX_ADDRESSES: Final = 64
_HEX_ID: Final = re.compile(f"[0-9a-f]{{{2 * CLUSTER_ID_BYTES}}}")


def malformed(where: str, what: str) -> ConfigError:
    """Return the error about a file that cannot be used."""
    return ConfigError(
        f"{where} is not a usable connection file: {what}; use the file that 'weft scheduler' "
        "wrote, unchanged"
    )


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


class ConnectionFields:
    """The fields of a connection file. What is wrong with one is a `ConfigError` with its name."""

    def __init__(self, content: dict[str, Any], where: str) -> None:
        self._content = content
        self._where = where

    def _demand(self, condition: bool, what: str) -> None:
        if not condition:
            raise malformed(self._where, what)

    def text(self, name: str) -> str:
        """Return a field that is a string."""
        value = self._content.get(name)
        if not isinstance(value, str):
            raise malformed(self._where, f"its {name!r} is not a string")
        return value

    def _optional_text(self, name: str) -> str | None:
        return None if self._content.get(name) is None else self.text(name) or None

    def number(self, name: str, low: int, high: int) -> int:
        """Return a field that is a whole number from `low` to below `high`."""
        value = self._content.get(name)
        if type(value) is not int or not low <= value < high:
            raise malformed(self._where, f"its {name!r} is not a number in its range")
        return value

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return self._matching("cluster_id", _HEX_ID, "32 hex digits")

    def token(self) -> str:
        """Return the token."""
        size = f"{MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} printable characters"
        return self._matching("token", TOKEN, size)

    def _matching(self, name: str, pattern: re.Pattern[str], what: str) -> str:
        value = self.text(name)
        self._demand(pattern.fullmatch(value) is not None, f"its {name!r} is not {what}")
        return value

    def addresses(self) -> tuple[str, ...]:
        """Return the scheduler's addresses."""
        addresses = self._content.get("addresses")
        if not isinstance(addresses, list) or not 1 <= len(addresses) <= _MAX_ADDRESSES:
            raise malformed(self._where, f"its 'addresses' is not a list of 1 to {_MAX_ADDRESSES}")
        for address in addresses:
            self._demand(
                isinstance(address, str) and address_key(address) is not None,
                "one of its 'addresses' is not like tcp://host:port, tls://host:port, unix:///path",
            )
        return tuple(addresses)

    def certificate(self) -> str | None:
        """Return the certificate, None if there is none."""
        certificate = self._optional_text("certificate_pem")
        if certificate is not None:
            self._demand(
                "PRIVATE KEY" not in certificate, "its 'certificate_pem' has a private key in it"
            )
            try:
                certificate_der(certificate)
            except ConfigError as error:
                raise malformed(self._where, f"in 'certificate_pem', {error}") from None
        return certificate

    def dashboard(self) -> str | None:
        """Return the URL of the pages, None if there are none."""
        dashboard = self._optional_text("dashboard")
        self._demand(
            dashboard is None or dashboard.startswith(("http://", "https://")),
            "its 'dashboard' is not an http:// or https:// URL",
        )
        return dashboard

    def created(self) -> float:
        """Return the time at which the file was written."""
        created = self._content.get("created")
        if isinstance(created, bool) or not isinstance(created, (int, float)):
            raise malformed(self._where, "its 'created' is not a number of seconds")
        # Before the conversion: an integer may be too large for a float. NaN fails this too.
        self._demand(0 <= created < 2**53, "its 'created' is not a time")
        return float(created)
