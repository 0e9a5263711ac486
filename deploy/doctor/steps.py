"""Looks at each step of the way to the scheduler, for `weft doctor`, up to the handshake.

A shell: it reads connection files, resolves names and connects.
"""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import Final

from ...protocol.errors import ConfigError
from ...protocol.trust.addresses import with_port, with_scheme
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.finding import NoSchedulerFound
from ...protocol.trust.security import client_ssl_context
from ...protocol.wire.address import Address, parse_address
from ...protocol.wire.levels import Level, level_of
from ..finding import find_scheduler
from .checks import FAILED, OK, WARNING, Finding
from .judging import judge_certificate

WAY: Final = "the way to the scheduler"
TIMEOUT_S: Final = 5.0


def find(
    connection_file: Path | None, address: str | None
) -> tuple[ConnectionFile | None, list[Finding]]:
    """Return the file of the scheduler, None if there is none of use, and what was found of it."""
    try:
        found = find_scheduler(connection_file, address)
    except NoSchedulerFound as error:
        # A token is of no use where no process listens, so that comes first.
        of_address = _look_at(with_scheme(with_port(address)), None) if address else []
        if any(check.level == FAILED for check in of_address):
            return None, of_address
        advice = "start one with 'weft scheduler', or give its file with --connection-file"
        if error.details:
            advice += f"; {error.details}"
        elif address:
            advice = error.advice
        return None, [*of_address, Finding(FAILED, WAY, "file", error.what, advice)]
    except ConfigError as error:
        text, _, advice = str(error).rpartition("; ")
        return None, [Finding(FAILED, WAY, "file", text or advice, advice if text else "")]
    role = level_of(found.token.encode())
    # Only the handshake shows whether a token is of this cluster; that of an admin is random text.
    what = "a token" if role == Level.ADMIN else f"a token for role {role.label}"
    checks = [Finding(OK, WAY, "file", f"{found.source}, with {what}")]
    if found.pid and found.is_stale():
        text = f"its scheduler, process {found.pid} on this machine, is gone"
        advice = "start it again with 'weft scheduler', which writes the file anew"
        checks.append(Finding(FAILED, WAY, "process", text, advice))
    return found, checks


def look_at_address(found: ConnectionFile) -> list[Finding]:
    """Resolve the name, connect to the port, and look at the certificate."""
    return _look_at(found.addresses[0], found)


def _look_at(address: str, found: ConnectionFile | None) -> list[Finding]:
    """Do so; without a file no certificate is looked at."""
    try:
        target = parse_address(address)
    except ConfigError as error:
        return [Finding(FAILED, WAY, "address", str(error))]
    if not target.is_tcp:
        return _look_at_socket(target)
    start = time.perf_counter()
    try:
        infos = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = f"the name {target.host} does not resolve: {getattr(error, 'strerror', error)}"
        advice = "correct the address, or add the name to the DNS or to /etc/hosts"
        return [Finding(FAILED, WAY, "name", text, advice)]
    resolving_s = time.perf_counter() - start
    hosts = dict.fromkeys(str(info[4][0]) for info in infos)
    text = f"{target.host} is {', '.join(hosts)}"
    if resolving_s > 1.0:
        advice = "each connection waits as long: look at /etc/resolv.conf"
        text = f"{text}, found in {resolving_s:.1f} s"
        return [Finding(WARNING, WAY, "name", text, advice), *_look_at_port(found, target)]
    return [Finding(OK, WAY, "name", text), *_look_at_port(found, target)]


def _look_at_socket(target: Address) -> list[Finding]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect(target.host)
        except OSError as error:
            text = f"{target}: {error.strerror or error}"
            return [Finding(FAILED, WAY, "port", text, _START)]
    return [Finding(OK, WAY, "port", f"{target} accepts connections")]


_START: Final = (
    "start the scheduler with 'weft scheduler', or correct the address; 'weft info --all' lists "
    "the schedulers of this machine"
)


def _look_at_port(found: ConnectionFile | None, target: Address) -> list[Finding]:
    start = time.perf_counter()
    try:
        sock = socket.create_connection((target.host, target.port or 0), timeout=TIMEOUT_S)
    except ConnectionRefusedError:
        return [Finding(FAILED, WAY, "port", f"no process listens at {target}", _START)]
    except TimeoutError:
        text = f"{target} does not answer within {TIMEOUT_S:g} s"
        advice = "a firewall may drop the packets: open this port, or use a tunnel and its address"
        return [Finding(FAILED, WAY, "port", text, advice)]
    except OSError as error:
        text = f"cannot connect to {target}: {error.strerror or error}"
        return [Finding(FAILED, WAY, "port", text, _START)]
    connected_s = time.perf_counter() - start
    with sock:
        port = Finding(OK, WAY, "port", f"{target} accepts, in {connected_s * 1e3:.1f} ms")
        if target.scheme != "tls" or found is None:
            return [port]
        return [port, _look_at_certificate(found, sock)]


def _look_at_certificate(found: ConnectionFile, sock: socket.socket) -> Finding:
    try:
        context = client_ssl_context(found.to_security())
        with context.wrap_socket(sock) as tls:
            der = tls.getpeercert(binary_form=True)
            version = tls.version()
    except ssl.SSLCertVerificationError as error:
        text = f"another certificate than that of {found.source} ({error.verify_message})"
        advice = "the scheduler has new secrets: take its connection file again"
        return Finding(FAILED, WAY, "tls", text, advice)
    except (OSError, ConfigError) as error:
        advice = "is it a weft scheduler, with tls://? A proxy must pass the bytes as they are"
        return Finding(FAILED, WAY, "tls", f"no TLS there: {error}", advice)
    from cryptography import x509

    assert der is not None
    certificate = x509.load_der_x509_certificate(der)
    try:
        ends = certificate.not_valid_after_utc
    except AttributeError:  # before cryptography 42
        import datetime as dt

        ends = certificate.not_valid_after.replace(tzinfo=dt.timezone.utc)
    is_pinned = "pinned" if found.certificate_pem else "not pinned, the token proves it"
    return judge_certificate(WAY, ends.timestamp() - time.time(), f"{version}, {is_pinned}")
