"""`weft scheduler` without the command line: chooses secrets, port and files, and runs it.

The state directory decides who the scheduler is. With one that was used before, it is the cluster
that it was: same id, token, certificate and port, and an epoch above the last one. A port that was
given or restored never falls back to another one, because peers look for the scheduler there.

The default directory has the name of the scheduler, or of its port. Without either, and where the
default one cannot be used, a temporary directory lasts as long as the parent process
(`restarting`), so that a scheduler that dies comes back as the same one in any case.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ...protocol.errors import CommError, ConfigError
from ...protocol.host.facts import process_facts
from ...protocol.settings import common
from ...protocol.settings import scheduler as table
from ...protocol.settings.kinds import parse_host_port
from ...protocol.settings.sources import Settings
from ...protocol.trust.addresses import DEFAULT_PORT
from ...protocol.trust.connection_file import check_destination
from ...protocol.trust.finding import default_path, known_files, remove_stale_files, run_directory
from ...protocol.trust.secret_files import read_token_file
from ...protocol.trust.security import (
    Security,
    generate_certificate,
    needs_tls,
    new_cluster_id,
    new_token,
)
from ...protocol.wire.address import Address, parse_address
from ...protocol.wire.levels import Level
from ...protocol.wire.session import MISSED_HEARTBEATS
from ...scheduler.config import SchedulerConfig
from ...scheduler.journal.journal import Journal
from ...scheduler.journal.places import store_at
from ...scheduler.journal.sqlite import FILE as JOURNAL_FILE
from ...scheduler.server import SchedulerServer
from ..processes.child import Lifeline
from ..settings import check_free_port, check_own_host, host_of_interface, total_memory
from .daemon import DaemonConfig, run_daemon
from .identity_files import IdentityFiles
from .state_directory import (
    DirectoryInUse,
    DirectoryUnusable,
    Identity,
    StateDirectory,
    remove_stale_temporary,
    state_home,
    temporary_path,
)

_log = logging.getLogger("weft.scheduler")

#: A port of the pages that the process before this one had is free again after this time.
_PORT_PATIENCE_S: Final = 5.0


#: Part of the machine's memory that the tasks of one user may take, by default.
_USER_PART: Final = 0.5


def _user_nbytes(limit: str | float) -> int:
    """Return the memory that the tasks of one user may take, in bytes; 0 = any."""
    part = _USER_PART if limit == "auto" else limit
    return int(total_memory() * part) if isinstance(part, float) else int(part)


class SchedulerOptions:
    """The settings of `weft scheduler`, as they are used.

    Attributes:
        host: where it listens.
        port: 0 = any free one; None = the default one, or any free one if that is taken.
        protocol: tcp, tls or unix; None = tcp on this machine, tls beyond.
        pages: host and port of the pages, "" and 0 = none.
        page_names: of the pages, beside those that this machine knows.
        takes_any_page_port: take any free port for the pages if theirs is taken.
        journal: path or URL; None = the file in the state directory.
        server: fields of `SchedulerConfig`.
        files: with the cluster's id, certificate and key; what is not given is made.
    """

    def __init__(self, given: Settings) -> None:
        """Read the settings.

        Raises:
            ConfigError: they contradict each other, or name what this machine does not have.
        """
        self.host = host_of_interface(given, table.INTERFACE, table.HOST) or given[table.HOST]
        self.protocol = given[table.PROTOCOL]
        self.pages = "", 0
        if given[table.DASHBOARD]:
            self.pages = parse_host_port(given[table.DASHBOARD_ADDRESS], "--dashboard-address")
            if given.is_given(table.DASHBOARD_ADDRESS):
                check_free_port(*self.pages)
        if self.protocol != "unix":
            check_own_host(self.host.strip("[]"), given.name_of(table.HOST), may_be_every=True)
        self.takes_any_page_port = not given.is_given(table.DASHBOARD_ADDRESS)
        self.page_names = given[table.DASHBOARD_HOST_NAMES]
        self.port = given[table.PORT] if given.is_given(table.PORT) else None
        self.connection_file = given[table.CONNECTION_FILE]
        self.token_file = given[common.TOKEN_FILE]
        self.name = given[table.NAME]
        self.state_directory = given[table.STATE_DIR]
        self.journal = given[table.JOURNAL]
        self.server: dict[str, Any] = {
            "client_lease_s": given[table.CLIENT_LEASE],
            "heartbeat_s": given[table.LIVENESS_TIMEOUT] / MISSED_HEARTBEATS,
            "idle_timeout_s": given[table.IDLE_TIMEOUT] or 0.0,
            "no_worker_timeout_s": given[table.NO_WORKER_TIMEOUT] or 0.0,
            "block_after": given[table.BLOCK_AFTER],
            "block_for_s": given[table.BLOCK_FOR],
            "allowed_deaths": given[table.ALLOWED_DEATHS],
            "target_duration_s": given[table.TARGET_DURATION],
            "max_user_nbytes": _user_nbytes(given[table.USER_MEMORY]),
            "max_user_tasks": given[table.USER_TASKS] or 0,
            "max_user_running": given[table.USER_RUNNING] or 0,
            "limits_of_users": given[table.USER_LIMITS],
            "max_outbox_nbytes": given[table.OUTBOX_MEMORY],
            "max_unfinished_nbytes": given[table.UNFINISHED_MEMORY],
        }
        self.files = IdentityFiles(
            given[table.CLUSTER_ID_FILE], given[table.CERTIFICATE_FILE], given[table.KEY_FILE]
        )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol == "tls" or (self.protocol is None and needs_tls(self.host))

    def path_of_file(self, server: SchedulerServer) -> Path:
        """Return the path of the connection file."""
        if self.connection_file is not None:
            return self.connection_file
        address = parse_address(server.addresses[0])
        by_port = f"scheduler-{address.port}" if address.is_tcp else "scheduler"
        return default_path(self.name or by_port)

    def address(self, port: int) -> str:
        """Return where to listen."""
        if self.protocol == "unix":
            return f"unix://{run_directory()}/{self.name or 'scheduler'}.sock"
        scheme = self.protocol or ("tls" if self.uses_tls else "tcp")
        return str(Address(scheme, self.host.strip("[]"), port))


class SchedulerStart:
    """One start of a scheduler, the first one or one after a death.

    Args:
        options: of the command.
        lifeline: to the parent process; None = there is none, and nothing is started again.
        on_ready: called when the scheduler is ready, except after a death, with the server and
            the URL of its pages.
        on_taken: called with the default port if it is taken and a free one is used, and with what
            took it, "" if that is not known.
    """

    def __init__(
        self,
        options: SchedulerOptions,
        lifeline: Lifeline | None,
        on_ready: Callable[[SchedulerServer, str], None],
        on_taken: Callable[[int, str], None],
    ) -> None:
        self._options = options
        self._lifeline = lifeline
        self._on_first_ready = on_ready
        self._on_taken = on_taken
        self._previous = None if lifeline is None else lifeline.previous
        self._directory: StateDirectory | None = None
        self._is_temporary = False
        self._is_ready = False
        #: The error about a scheduler of this user that has the default state directory.
        self._in_use = ""

    def run(self) -> None:
        """Run the scheduler until its end.

        Raises:
            WeftError: it could not be started, or a bug has ended it.
        """
        self._options.files.check()
        self._check_connection_file()
        self._choose_directory()
        try:
            self._run_somewhere()
        finally:
            if self._directory is not None and self._is_ready:
                self._directory.close()
            elif self._directory is not None:
                self._directory.discard()

    def _check_connection_file(self) -> None:
        """Check before any peer can connect whether the connection file can be written."""
        path, name = self._options.connection_file, self._options.name
        remove_stale_files()
        if name is not None:
            default = default_path(name)
            check_destination(path or default)
        elif path is not None:
            check_destination(path)
        else:
            # The file is named by the port, which is not known before the scheduler listens.
            run_directory()

    # --- The state directory ----------------------------------------------------------------------

    def _choose_directory(self) -> None:
        options, previous = self._options, self._previous
        if previous is not None:
            self._is_temporary = previous["temporary"]
            self._directory = StateDirectory(Path(previous["state_directory"]))
        elif options.state_directory is not None:
            self._directory = StateDirectory(options.state_directory)
        else:
            self._choose_default_directory()

    def _choose_default_directory(self) -> None:
        options = self._options
        port = DEFAULT_PORT if options.port is None else options.port
        name = options.name or ("scheduler" if options.protocol == "unix" else str(port or ""))
        if not name:
            self._use_temporary()
            return
        path = state_home() / name
        try:
            self._directory = StateDirectory(path)
        except DirectoryInUse as error:
            self._in_use = error.holder
            # A second scheduler without options is a cluster of its own, at a free port.
            if options.port is not None or options.name is not None:
                raise
            self._use_temporary()
        except DirectoryUnusable as error:
            _log.warning(
                "%s: workers and clients cannot come back to a scheduler that is started again by "
                "hand; give a directory of yours with --state-dir",
                error,
                extra={"code": "state-not-kept"},
            )
            self._use_temporary()

    def _use_temporary(self) -> None:
        self._directory = None
        if self._lifeline is not None:
            remove_stale_temporary(run_directory())
            self._is_temporary = True
            self._directory = StateDirectory(temporary_path(run_directory(), os.getppid()))

    # --- Secrets ----------------------------------------------------------------------------------

    def _security(self) -> Security:
        identity = None if self._directory is None else self._directory.identity
        cluster_id = self._cluster_id(identity)
        security = Security(self._token(identity).encode(), cluster_id)
        given = self._options.files.read_certificate()
        if not self._options.uses_tls and not needs_tls(self._options.pages[0] or "::1"):
            return security
        if given is not None:
            certificate, key = given
        elif identity is not None and identity.certificate_pem and identity.private_key_pem:
            certificate, key = identity.certificate_pem, identity.private_key_pem
        else:
            certificate, key = generate_certificate(cluster_id)
        return replace(security, certificate_pem=certificate, private_key_pem=key)

    def _cluster_id(self, identity: Identity | None) -> bytes:
        given = self._options.files.read_cluster_id()
        if identity is None:
            return given or new_cluster_id()
        if given is not None and given.hex() != identity.cluster_id:
            raise ConfigError(
                f"the state directory {self._path} is of cluster {identity.cluster_id}, and "
                f"{self._options.files.cluster_id} has {given.hex()}; give another --state-dir, or "
                "remove this one if the cluster is to be another one"
            )
        return bytes.fromhex(identity.cluster_id)

    def _token(self, identity: Identity | None) -> str:
        path = self._options.token_file
        if path is None:
            if identity is None:
                return new_token()
            if not identity.token:
                raise ConfigError(
                    f"the token of the cluster in {self._path} is not kept there, but in a file: "
                    "give it with --token-file, as at the first start"
                )
            return identity.token
        token = read_token_file(path)
        security = Security(token.encode())
        if security.level < Level.ADMIN:
            raise ConfigError(
                f"{path} has a token of role {security.level.label}, from which the others cannot "
                "be derived; a scheduler needs the token of role admin",
                "--token-file",
            )
        if identity is not None and security.token_for("view") != identity.view_token:
            raise ConfigError(
                f"the state directory {self._path} is of another cluster, whose token is not that "
                f"of {path}; give another --state-dir, or remove this one if its token was changed"
            )
        return token

    @property
    def _path(self) -> Path:
        assert self._directory is not None
        return self._directory.path

    def _identity(self, security: Security, port: int) -> Identity:
        """Return what to keep: a certificate that is not needed this time is not lost."""
        made = Identity.of(security, port, keeps_token=self._options.token_file is None)
        if self._options.files.certificate is not None:
            made = replace(made, certificate_pem=None, private_key_pem=None)
        there = None if self._directory is None else self._directory.identity
        if there is None or made.certificate_pem is not None:
            return made
        return replace(
            made, certificate_pem=there.certificate_pem, private_key_pem=there.private_key_pem
        )

    # --- Running ----------------------------------------------------------------------------------

    def _run_somewhere(self) -> None:
        options, directory = self._options, self._directory
        restored = 0
        if directory is not None and directory.identity is not None and not options.port:
            restored = directory.identity.port
        port = options.port or restored or (DEFAULT_PORT if options.port is None else 0)
        self._warn_of_another_port(port)
        try:
            self._run_at(port)
            return
        except CommError as error:
            # After a death the parent tries again, with pauses.
            if "in use" not in error.text or options.protocol == "unix" or self._previous:
                raise
        if restored:
            raise ConfigError(
                f"port {port} of {options.host} is taken by another {_holder_of(port)}, and the "
                f"workers and clients of the cluster in {self._path} look for it there: free the "
                "port, or give another one with --port"
            )
        if options.port:
            raise ConfigError(
                f"port {port} of {options.host} is taken by another {_holder_of(port)}; choose one "
                "with --port, or --port 0 for any free one"
            )
        self._on_taken(port, self._in_use)
        is_named = options.state_directory is not None or options.name is not None
        if directory is not None and not self._is_temporary and not is_named:
            # It has the name of a port that this scheduler does not have.
            directory.discard()
            self._use_temporary()
        self._run_at(0)

    def _warn_of_another_port(self, port: int) -> None:
        identity = None if self._directory is None else self._directory.identity
        if identity is not None and identity.port and port and port != identity.port:
            _log.warning(
                "the cluster in %s was at port %d before: its workers and clients find the "
                "scheduler at port %d only by its connection file",
                self._path,
                identity.port,
                port,
                extra={"code": "port-changed"},
            )

    def _run_at(self, port: int) -> None:
        options, directory, previous = self._options, self._directory, self._previous
        page_host, page_port = options.pages
        security = self._security()
        config = SchedulerConfig(
            addresses=[options.address(port)],
            security=security,
            **options.server,
            facts=process_facts(),
        )
        if directory is not None:
            directory.keep_identity(self._identity(security, port))
            config.last_epoch = directory.last_epoch
            config.expected = directory.members
            config.keeper = directory
        place = options.journal or ("" if directory is None else str(directory.path / JOURNAL_FILE))
        if place:
            config.journal = Journal(store_at(place))

        def on_listening(server: SchedulerServer) -> None:
            # Also for the state after a start over.
            config.facts["name"] = options.path_of_file(server).stem
            server.state.facts.update(config.facts)
            if directory is not None:
                bound = parse_address(server.addresses[0]).port or 0
                directory.keep_identity(self._identity(security, bound))

        run_daemon(
            DaemonConfig(
                scheduler=config,
                dashboard_host=page_host,
                dashboard_port=previous["dashboard_port"] if previous else page_port,
                dashboard_host_names=options.page_names,
                dashboard_fallback=options.takes_any_page_port and not previous,
                dashboard_patience_s=_PORT_PATIENCE_S if previous else 0.0,
                connection_file=options.path_of_file,
                on_listening=on_listening,
                on_ready=self._on_ready,
                wait_stop=None if self._lifeline is None else self._lifeline.wait_gone,
                stop_reason="its parent process is gone",
            )
        )

    def _on_ready(self, server: SchedulerServer, url: str) -> None:
        self._is_ready = True
        if self._previous is None:
            self._on_first_ready(server, url)
        if self._lifeline is not None:
            assert self._directory is not None
            port = int(url.rstrip("/").rpartition(":")[2]) if url else 0
            # The next child needs to know it.
            self._lifeline.say(
                state_directory=str(self._directory.path),
                temporary=self._is_temporary,
                dashboard_port=port,
            )


def _holder_of(port: int) -> str:
    """Describe another program that listens at a port of this machine, for an error text."""
    here = socket.gethostname()
    for file in known_files()[0]:
        ports = {parse_address(address).port for address in file.addresses}
        if file.host == here and port in ports:
            return f"scheduler of yours, process {file.pid} ({file.source})"
    return "program"
