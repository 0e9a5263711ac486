"""Where the workers of `weft worker` listen for others, and where others reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.settings import worker as table
from ...protocol.settings.setting import Setting
from ...protocol.settings.sources import Settings
from ...protocol.wire.address import Address, parse_address
from ..settings import check_own_host, host_of_interface


@dataclass(frozen=True)
class DataPlaces:
    """The options of data ports.

    Attributes:
        listening: host at which workers listen; "" = the one on the way to the scheduler.
        contact: host at which others reach them; "" = the one at which they listen.
        first_port: of the first worker, and the next ones have the next ports; 0 = any free one.
    """

    listening: str = ""
    contact: str = ""
    first_port: int = 0

    @classmethod
    def of(cls, given: Settings, n_workers: int) -> DataPlaces:
        """Return what the settings say.

        Raises:
            ConfigError: an address is not of this machine, or there are too few ports.
        """
        host = host_of_interface(given, table.INTERFACE, table.HOST) or given[table.HOST]
        own = table.HOST if given.is_given(table.HOST) else table.INTERFACE
        listening, contact = given[table.LISTEN_ADDRESS], given[table.CONTACT_ADDRESS]
        for setting, value in ((table.LISTEN_ADDRESS, listening), (table.CONTACT_ADDRESS, contact)):
            if value is not None and ("://" in value or value.count(":") == 1):
                _refuse(given, setting, value)
        if host is not None:
            host = host.strip("[]")
            check_own_host(host, given.origin(own) or "--host")
        if listening is not None:
            listening = listening.strip("[]")
            name = given.origin(table.LISTEN_ADDRESS)
            check_own_host(listening, name, may_be_every=True)
            if listening in ("0.0.0.0", "::") and contact is None and host is None:
                raise ConfigError(
                    f"{listening} is no address to connect to; name the one at which others reach "
                    "this machine with --contact-address or --host",
                    name,
                )
        return cls(
            listening or host or "",
            (contact or (host if listening else None) or "").strip("[]"),
            _first_port(given, n_workers),
        )

    def of_worker(self, number: int, scheduler: str) -> dict[str, Any]:
        """Return the options of one worker whose scheduler is at this address."""
        parsed = parse_address(scheduler)
        port = self.first_port + number if self.first_port else 0
        if not parsed.is_tcp:
            return {"listen_address": "", "port": 0, "contact_host": ""}
        listen = str(Address(parsed.scheme, self.listening, port)) if self.listening else ""
        return {"listen_address": listen, "port": port, "contact_host": self.contact}


def _refuse(given: Settings, setting: Setting[Any], value: str) -> None:
    raise ConfigError(
        f"{value!r} is not a host alone; its port is --worker-port, and it is of the same kind as "
        "the scheduler's",
        given.origin(setting),
    )


def _first_port(given: Settings, n_workers: int) -> int:
    first, last = given[table.PORT]
    if first and last - first + 1 < n_workers:
        raise ConfigError(
            f"{n_workers} workers need a port each, and {table.PORT.kind.show((first, last))} has "
            f"{last - first + 1}; give a range such as {first}:{first + n_workers - 1}, or fewer "
            "workers with --nworkers",
            given.origin(table.PORT).replace("--port", "--worker-port"),
        )
    return first
