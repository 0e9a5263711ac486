"""The scheduler of a `JobCluster`: a process below this program, which other machines reach.

It ends with the program, and then ends the workers, wherever they run. What the jobs need to join
it is a connection file of role worker, in a folder that all machines share.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...protocol.settings.kinds import parse_host_port
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.security import (
    Security,
    generate_certificate,
    needs_tls,
    new_cluster_id,
    new_token,
)
from ...protocol.wire.address import Address
from ...protocol.wire.levels import Level
from ..processes.child import Child, take_child
from ..scheduler.daemon import contact_address
from ..settings import check_own_host

_START_TIMEOUT_S: Final = 60.0


class OwnScheduler:
    """A scheduler of this program.

    Args:
        name: of the cluster.
        host: where it listens; "0.0.0.0" = at all addresses. Beyond this machine with TLS.
        dashboard_address: `host:port`, or a port, for HTTP pages; None = none.

    Raises:
        ConfigError: an argument is not valid.
        ChildFailed: the process did not start.
    """

    def __init__(self, name: str, host: str, dashboard_address: str | int | None) -> None:
        check_own_host(host, "host", may_be_every=True)
        page_host, page_port = "", 0
        if dashboard_address is not None:
            page_host, page_port = parse_host_port(str(dashboard_address), "dashboard_address")
        security = Security(token=new_token().encode(), cluster_id=new_cluster_id())
        uses_tls = needs_tls(host)
        if uses_tls or (page_host and needs_tls(page_host)):
            assert security.cluster_id is not None
            certificate, key = generate_certificate(security.cluster_id)
            security = replace(security, certificate_pem=certificate, private_key_pem=key)
        self.child: Child = take_child("scheduler")
        try:
            self.child.configure(
                {
                    "security": security.to_plain(with_private_key=True),
                    "address": str(Address("tls" if uses_tls else "tcp", host, 0)),
                    "name": name,
                    "dashboard_host": page_host,
                    "dashboard_port": page_port,
                    "directory": None,
                    "log_level": logging.WARNING,
                    "ends_workers": True,
                    "options": {},
                }
            )
            ready = self.child.wait_ready(_START_TIMEOUT_S)
        except BaseException:
            self.child.close(0.5)
            raise
        #: By which other machines reach it.
        self.address = contact_address(ready["address"])
        self.pages: str | None = ready["dashboard"] or None
        self.security: Security = replace(security, private_key_pem=None)

    def connection(self) -> ConnectionFile:
        """Return the content of a connection file for workers."""
        security = self.security.lowered(Level.WORKER)
        assert security.cluster_id is not None
        return ConnectionFile(
            cluster_id=security.cluster_id.hex(),
            addresses=(self.address,),
            token=security.token.decode(),
            certificate_pem=security.certificate_pem,
            pid=self.child.process.pid,
            host=socket.gethostname(),
            created=time.time(),
        )

    def close(self, timeout_s: float) -> None:
        """End it, and with it the workers."""
        self.child.close(timeout_s)


def make_folder(given: str | os.PathLike[str] | None, name: str) -> Path:
    """Make and return the private folder of a cluster, in a given one or in `~/.weft/jobs`."""
    base = Path(given).expanduser().absolute() if given else Path.home() / ".weft" / "jobs"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = base / f"{name}-{socket.gethostname().partition('.')[0]}-{os.getpid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
