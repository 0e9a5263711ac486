"""What a task of a gang knows of the others: `weft.get_gang()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from ..protocol.errors import NotInTask
from ..protocol.wire.address import parse_address
from .context import get_worker

#: Ports for rendezvous are drawn from these: below the ports that systems give out by themselves.
FIRST_PORT: Final = 20_000
N_PORTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Gang:
    """The tasks that run together with the calling one.

    Attributes:
        name: that of this run of the gang, which no other run has.
        rank: the number of this task, from 0.
        size: how many there are.
        addresses: the addresses of their workers, by rank. Several may be on one worker.
    """

    name: str
    rank: int
    size: int
    addresses: tuple[str, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each task, by rank: a name or an IP address that workers are reached at."""
        return tuple(_host_of(address) for address in self.addresses)

    @property
    def local_rank(self) -> int:
        """The number of this task among those of its host."""
        return self.hosts[: self.rank].count(self.hosts[self.rank])

    @property
    def port(self) -> int:
        """A port from 20000 to 29999, the same for all, that other gangs are unlikely to have.

        It is drawn from the name; whether it is free on a host is not looked at.
        """
        return FIRST_PORT + crc32(self.name.encode()) % N_PORTS

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the processes of PyTorch and others find each other."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "MASTER_ADDR": self.hosts[0],
            "MASTER_PORT": str(self.port),
        }


def get_gang() -> Gang:
    """Return the gang of the calling task, and its rank there.

    Raises:
        NotInTask: the caller is in no task that `submit_gang` has made.
    """
    row = getattr(get_worker().task, "together", None)
    if row is None:
        raise NotInTask(
            "get_gang() works only in a task that submit_gang has made, on the thread that runs it"
        )
    name, rank, *addresses = row
    return Gang(name, int(rank), len(addresses), tuple(addresses))


def _host_of(address: str) -> str:
    parsed = parse_address(address)
    return parsed.host if parsed.is_tcp else "127.0.0.1"  # of a process of this machine
