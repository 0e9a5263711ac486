"""Looks at this machine, at the way to the scheduler, and at the cluster, for `weft doctor`.

A shell: it connects and asks, and leaves the judgement to `judging`. What fails ends the steps that
build on it; all others are done, so that one run shows all there is to mend.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...protocol.errors import (
    CommError,
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
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.levels import Level, level_of
from ...protocol.wording import counted
from ..http.viewer import Viewer, viewing
from .checks import FAILED, OK, WARNING, Finding
from .judging import (
    judge_clock,
    judge_clocks,
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
from .reaching import PLACE, OutOfReach, Worker, choose_tried, judge_reach
from .steps import TIMEOUT_S, WAY, find, look_at_address

HERE: Final = "this machine"
SCHEDULER: Final = "scheduler"
#: Workers that are asked for their clock, versions and limits: of more, one per machine first.
_MAX_ASKED: Final = 64
_N_ROUND_TRIPS: Final = 5
#: For the answer of a worker that tries the way to others: more than it gives each attempt.
_REACH_S: Final = 8.0


class _Condition(NamedTuple):
    """The condition of a process, and how far its clock is ahead."""

    facts: dict[str, Any]
    skew_s: float
    error_s: float


def examine(connection_file: Path | None, address: str | None) -> list[Finding]:
    """Make all checks."""
    checks = judge_machine(HERE, process_condition())
    found, of_file = find(connection_file, address)
    checks += of_file
    if found is None:
        return checks
    of_address = look_at_address(found)
    checks += of_address
    if all(check.level != FAILED for check in of_address):
        checks += asyncio.run(_ask(found))
    return checks


async def _ask(found: ConnectionFile) -> list[Finding]:
    """Connect as a viewer, and ask the scheduler and some workers."""
    checks: list[Finding] = []
    try:
        async with viewing(found, TIMEOUT_S) as viewer:
            role = level_of(found.token.encode())
            checks.append(Finding(OK, WAY, "token", f"accepted, of role {role.label}"))
            if role < Level.CLIENT:
                advice = "enough to look; tasks need a file of role client: "
                checks[0] = checks[0]._replace(advice=advice + "'weft token --role client'")
            checks += await _ask_scheduler(viewer)
    except (TimeoutError, WeftError) as error:
        if not checks and isinstance(error, WeftError):
            return [_refused(found, error)]
        text = f"it does not answer: {error}"
        advice = "look at its log, and at its processor time in 'top'"
        checks.append(Finding(FAILED, SCHEDULER, "answers", text, advice))
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


async def _ask_scheduler(viewer: Viewer) -> list[Finding]:
    cluster = await viewer.ask_all("cluster")
    by_address = (await viewer.ask_all("workers"))["workers"]
    workers = [{**worker, "address": address} for address, worker in by_address.items()]
    checks = judge_workers(SCHEDULER, cluster)
    versions: dict[str, dict[str, str | None]] = {"this process": process_versions()["packages"]}
    try:
        of_scheduler = await _condition(viewer, SCHEDULER, "")
        versions["scheduler"] = await _versions(viewer, SCHEDULER, "")
        checks.append(judge_round_trip(SCHEDULER, 2 * of_scheduler.error_s))
        checks.append(judge_clock(SCHEDULER, of_scheduler.skew_s, of_scheduler.error_s))
        n_peers = len(workers) + cluster["n_clients"]
        checks.append(judge_files(SCHEDULER, of_scheduler.facts, n_peers))
        overview = await viewer.ask_all("overview")
        checks.append(judge_loop(SCHEDULER, overview["loop_lag_s"]))
        checks += judge_health(SCHEDULER, overview)
    except (QuestionFailed, UnsupportedRequest) as error:
        text = f"it runs another version of weft ({error})"
        advice = "compare 'weft --version' there, and install the same version on all machines"
        checks.append(Finding(WARNING, SCHEDULER, "release", text, advice))
    asked = choose_asked(workers)
    answers = await asyncio.gather(*[_ask_worker(viewer, worker) for worker in asked])
    there: list[tuple[dict[str, Any], _Condition]] = []
    for worker, (condition, packages, problem) in zip(asked, answers, strict=True):
        if condition is None:
            advice = "a task may hold its interpreter, or it is gone: 'weft logs' has more"
            place = f"worker {worker['name']}"
            checks.append(Finding(WARNING, place, "answers", problem, advice))
            continue
        versions[worker["name"]] = packages
        there.append((worker, condition))
    checks += _judge_machines(workers, there, len(workers) + cluster["n_clients"])
    checks += await _try_data_ports(viewer, [worker for worker, _ in there])
    if len(asked) < len(workers):
        text = f"{len(asked)} of {len(workers)} workers were asked"
        checks.append(Finding(OK, "versions", "workers", text))
    return checks + judge_versions(versions)


def _judge_machines(
    workers: list[dict[str, Any]],
    asked: list[tuple[dict[str, Any], _Condition]],
    n_connections: int,
) -> list[Finding]:
    """Judge the machines of the workers, by what those of each that were asked have answered."""
    checks: list[Finding] = []
    for host in dict.fromkeys(worker["host"] for worker, _ in asked):
        machine = f"machine {host}"
        of_host = [(worker, found) for worker, found in asked if worker["host"] == host]
        facts = of_host[0][1].facts
        memory, _, *others = judge_machine(machine, facts)
        checks += judge_clocks(host, [(w["name"], f.skew_s, f.error_s) for w, f in of_host])
        checks.append(memory)
        on_host = [worker for worker in workers if worker["host"] == host]
        checks.append(judge_memory_limits(machine, on_host, facts))
        checks += others
        # Good news of a worker is that of its machine: one line for each would be a long list.
        files = [judge_files(f"worker {w['name']}", f.facts, n_connections) for w, f in of_host]
        checks += [check for check in files if check.level != OK]
    return checks


async def _try_data_ports(viewer: Viewer, workers: list[Worker]) -> list[Finding]:
    """Let workers of each machine connect to those of the others."""
    tried = [_try_from(viewer, reader, holders) for reader, holders in choose_tried(workers)]
    n_tried = 0
    unreached: list[OutOfReach] = []
    problems: list[str] = []
    for found in await asyncio.gather(*tried, return_exceptions=True):
        if isinstance(found, (QuestionFailed, UnsupportedRequest)):
            problems.append(str(found))
        elif isinstance(found, BaseException):
            raise found
        else:
            n_tried += found[0]
            unreached += found[1]
    checks = judge_reach(n_tried, unreached)
    if problems:
        text = f"{counted(len(problems), 'worker')} could not try the others: {problems[0]}"
        advice = "they may run another version of weft ('versions' below), or have just left"
        checks.append(Finding(WARNING, PLACE, "reach", text, advice))
    return checks


async def _try_from(
    viewer: Viewer, reader: Worker, holders: list[Worker]
) -> tuple[int, list[OutOfReach]]:
    """Return how many ports a worker has tried, and those that are out of its reach."""
    by_address = {str(holder["address"]): holder for holder in holders}
    process = f"worker {reader['name']}"
    question = {"addresses": list(by_address)}
    found = await viewer.ask_all("reach", question, _REACH_S, to=reader["id"], process=process)
    with reading(process):
        return len(by_address), [
            OutOfReach(reader, by_address[address], str(kind), str(text))
            for address, (kind, text) in part_of(found, "unreached", dict).items()
        ]


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
        sent_s, start = time.time(), time.perf_counter()
        facts = await viewer.ask_all("process", to=to, process=process)
        # The clock of the day may be set meanwhile; the other one runs evenly.
        received_s = sent_s + time.perf_counter() - start
        with reading(process):
            skew_s, error_s = skew_of(sent_s, float(facts["time_s"]), received_s)
            if best is None or error_s < best.error_s:
                best = _Condition(facts, skew_s, error_s)
    assert best is not None
    return best


async def _versions(viewer: Viewer, process: str, to: str) -> dict[str, str | None]:
    found = await viewer.ask_all("versions", to=to, process=process)
    with reading(process):
        packages: dict[str, str | None] = part_of(found, "packages", dict)
    return packages
