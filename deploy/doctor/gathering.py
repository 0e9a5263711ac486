"""Looks at this machine, at the way to the scheduler, and at the cluster, for `weft doctor`.

A shell: it resolves names, connects and asks, and leaves the judgement to `judging`. What fails
ends the steps that build on it; all others are done, so that one run shows all there is to mend.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import Any, Final, NamedTuple

from ...protocol.errors import (
    CommError,
    ConfigError,
    ConnectTimeout,
    HandshakeError,
    QuestionFailed,
    UnsupportedRequest,
    WeftError,
    WrongCluster,
    WrongToken,
)
from ...protocol.host.condition import process_condition
from ...protocol.host.versions import process_versions
from ...protocol.trust.connection_file import ConnectionFile, NoSchedulerFound
from ...protocol.trust.security import client_ssl_context
from ...protocol.wire.address import Address, parse_address
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.levels import Level, level_of
from ..cli.finding import find_scheduler
from ..http.viewer import Viewer
from .checks import FAILED, OK, WARNING, Finding
from .judging import (
    judge_certificate,
    judge_clock,
    judge_files,
    judge_health,
    judge_loop,
    judge_machine,
    judge_memory_limits,
    judge_round_trip,
    judge_versions,
    judge_workers,
    skew_of,
)

HERE: Final = "this machine"
WAY: Final = "the way to the scheduler"
SCHEDULER: Final = "scheduler"
_TIMEOUT_S: Final = 5.0
#: Workers that are asked for their clock, versions and limits: of more, one per machine first.
_MAX_ASKED: Final = 64
_N_ROUND_TRIPS: Final = 5


class _Condition(NamedTuple):
    """The condition of a process, and how far its clock is ahead."""

    facts: dict[str, Any]
    skew_s: float
    error_s: float


def examine(connection_file: str | None, address: str | None) -> list[Finding]:
    """Make all checks."""
    checks = judge_machine(HERE, process_condition())
    found, of_file = _find(connection_file, address)
    checks += of_file
    if found is None:
        return checks
    of_address = _look_at_address(found)
    checks += of_address
    if all(check.level != FAILED for check in of_address):
        checks += asyncio.run(_ask(found))
    return checks


# --- The way there --------------------------------------------------------------------------------


def _find(
    connection_file: str | None, address: str | None
) -> tuple[ConnectionFile | None, list[Finding]]:
    try:
        found = find_scheduler(connection_file, address)
    except NoSchedulerFound as error:
        what, _, rest = str(error).partition("; looked in ")
        advice = "start one with 'weft scheduler', or give its file with --connection-file"
        if rest:
            advice += f"; looked in {error.places or rest}"
        elif address:
            what, _, advice = what.partition("; ")
        return None, [Finding(FAILED, WAY, "file", what, advice)]
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


def _look_at_address(found: ConnectionFile) -> list[Finding]:
    """Resolve the name, connect to the port, and look at the certificate."""
    try:
        target = parse_address(found.addresses[0])
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
        sock.settimeout(_TIMEOUT_S)
        try:
            sock.connect(target.host)
        except OSError as error:
            text = f"{target}: {error.strerror or error}"
            return [Finding(FAILED, WAY, "port", text, _START)]
    return [Finding(OK, WAY, "port", f"{target} accepts connections")]


_START: Final = "start the scheduler with 'weft scheduler', or correct the address"


def _look_at_port(found: ConnectionFile, target: Address) -> list[Finding]:
    start = time.perf_counter()
    try:
        sock = socket.create_connection((target.host, target.port or 0), timeout=_TIMEOUT_S)
    except ConnectionRefusedError:
        return [Finding(FAILED, WAY, "port", f"no process listens at {target}", _START)]
    except TimeoutError:
        text = f"{target} does not answer within {_TIMEOUT_S:g} s"
        advice = "a firewall may drop the packets: open this port, or use a tunnel and its address"
        return [Finding(FAILED, WAY, "port", text, advice)]
    except OSError as error:
        text = f"cannot connect to {target}: {error.strerror or error}"
        return [Finding(FAILED, WAY, "port", text, _START)]
    connected_s = time.perf_counter() - start
    with sock:
        port = Finding(OK, WAY, "port", f"{target} accepts, in {connected_s * 1e3:.1f} ms")
        if target.scheme != "tls":
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


# --- The cluster ----------------------------------------------------------------------------------


async def _ask(found: ConnectionFile) -> list[Finding]:
    """Connect as a viewer, and ask the scheduler and some workers."""
    viewer = Viewer()
    try:
        await viewer.open(found.addresses[0], found.to_security(), _TIMEOUT_S)
    except WeftError as error:
        return [_refused(found, error)]
    role = level_of(found.token.encode())
    checks = [Finding(OK, WAY, "token", f"accepted, of role {role.label}")]
    if role < Level.CLIENT:
        advice = "enough to look; tasks need a file of role client: 'weft token --role client'"
        checks[0] = checks[0]._replace(advice=advice)
    try:
        checks += await _ask_scheduler(viewer, found)
    except (TimeoutError, WeftError) as error:
        text = f"it does not answer: {error}"
        advice = "look at its log, and at its processor time in 'top'"
        checks.append(Finding(FAILED, SCHEDULER, "answers", text, advice))
    finally:
        await viewer.leave()
    return checks


def _refused(found: ConnectionFile, error: WeftError) -> Finding:
    advice = {
        WrongToken: f"{found.source or 'the token'} is not of this cluster: take the scheduler's "
        "connection file again, or make one with 'weft token'",
        WrongCluster: "another cluster listens there: give the address or the file of yours",
        ConnectTimeout: "the scheduler is busy, or it is no weft process: look at its log",
    }.get(type(error), "")
    if not advice and isinstance(error, HandshakeError):
        advice = "compare 'weft --version' on both machines"
    if not advice and isinstance(error, CommError):
        advice = "look at the scheduler's log; it may refuse too many connections at a time"
    return Finding(FAILED, WAY, "token", str(error), advice)


async def _ask_scheduler(viewer: Viewer, found: ConnectionFile) -> list[Finding]:
    cluster: dict[str, Any] = {}
    workers: dict[str, dict[str, Any]] = {}
    async for page in viewer.ask("cluster", timeout_s=_TIMEOUT_S):
        cluster |= page
    async for page in viewer.ask("workers", timeout_s=_TIMEOUT_S):
        workers |= page["workers"]
    checks = judge_workers(SCHEDULER, cluster)
    versions: dict[str, dict[str, str | None]] = {"this process": process_versions()["packages"]}
    try:
        of_scheduler = await _condition(viewer, SCHEDULER, "")
        versions["scheduler"] = await _versions(viewer, SCHEDULER, "")
        checks.append(judge_round_trip(SCHEDULER, 2 * of_scheduler.error_s))
        checks.append(judge_clock(SCHEDULER, of_scheduler.skew_s, of_scheduler.error_s))
        n_peers = len(workers) + cluster["n_clients"]
        checks.append(judge_files(SCHEDULER, of_scheduler.facts, n_peers))
        overview: dict[str, Any] = {}
        async for page in viewer.ask("overview", timeout_s=_TIMEOUT_S):
            overview |= page
        checks.append(judge_loop(SCHEDULER, overview["loop_lag_s"]))
        checks += judge_health(SCHEDULER, overview)
    except (QuestionFailed, UnsupportedRequest) as error:
        text = f"it runs another release of weft ({error})"
        advice = "compare 'weft --version' there, and install the same release on all machines"
        checks.append(Finding(WARNING, SCHEDULER, "release", text, advice))
    asked = choose_asked(list(workers.values()))
    answers = await asyncio.gather(*[_ask_worker(viewer, worker) for worker in asked])
    n_connections = len(workers) + cluster["n_clients"]
    by_host: dict[str, list[dict[str, Any]]] = {}
    for worker in workers.values():
        by_host.setdefault(worker["host"], []).append(worker)
    judged: set[str] = set()
    for worker, (condition, packages, problem) in zip(asked, answers, strict=True):
        place = f"worker {worker['name']}"
        if problem or condition is None:
            advice = "a task may hold its interpreter, or it is gone: 'weft logs' has more"
            checks.append(Finding(WARNING, place, "answers", problem, advice))
            continue
        versions[worker["name"]] = packages
        of_worker = [judge_files(place, condition.facts, n_connections)]
        host = worker["host"]
        if host not in judged:
            judged.add(host)
            of_worker.append(judge_clock(f"machine {host}", condition.skew_s, condition.error_s))
            of_worker += judge_machine(f"machine {host}", condition.facts)[0:1]
            of_worker.append(judge_memory_limits(f"machine {host}", by_host[host], condition.facts))
            of_worker += judge_machine(f"machine {host}", condition.facts)[2:]
        # Good news of a worker is that of its machine: one line for each would be a long list.
        checks += [c for c in of_worker if c.level != OK or c.place.startswith("machine")]
    if len(asked) < len(workers):
        text = f"{len(asked)} of {len(workers)} workers were asked"
        checks.append(Finding(OK, "versions", "workers", text))
    return checks + judge_versions(versions)


def choose_asked(workers: list[dict[str, Any]], limit: int = _MAX_ASKED) -> list[dict[str, Any]]:
    """Choose the workers that are asked: one of each machine first, then others."""
    seen: set[str] = set()
    first: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for worker in workers:
        (others if worker["host"] in seen else first).append(worker)
        seen.add(worker["host"])
    return [*first, *others][:limit]


async def _ask_worker(
    viewer: Viewer, worker: dict[str, Any]
) -> tuple[_Condition | None, dict[str, str | None], str]:
    """Return the condition and the versions of a worker, or why it has given none."""
    process = f"worker {worker['name']}"
    try:
        condition = await _condition(viewer, process, worker["id"])
        return condition, await _versions(viewer, process, worker["id"]), ""
    except QuestionFailed as error:
        return None, {}, str(error)


async def _condition(viewer: Viewer, process: str, to: str) -> _Condition:
    """Ask several times, and return the answer that took the least time."""
    best: _Condition | None = None
    for _ in range(_N_ROUND_TRIPS):
        facts: dict[str, Any] = {}
        sent_s, start = time.time(), time.perf_counter()
        async for page in viewer.ask("process", {}, _TIMEOUT_S, to=to, process=process):
            facts |= page
        # The clock of the day may be set meanwhile; the other one runs evenly.
        received_s = sent_s + time.perf_counter() - start
        with reading(process):
            skew_s, error_s = skew_of(sent_s, float(facts["time_s"]), received_s)
            if best is None or error_s < best.error_s:
                best = _Condition(facts, skew_s, error_s)
    assert best is not None
    return best


async def _versions(viewer: Viewer, process: str, to: str) -> dict[str, str | None]:
    found: dict[str, Any] = {}
    async for page in viewer.ask("versions", {}, _TIMEOUT_S, to=to, process=process):
        found |= page
    with reading(process):
        packages: dict[str, str | None] = part_of(found, "packages", dict)
    return packages
