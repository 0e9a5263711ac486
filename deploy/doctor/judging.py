"""Judges what `weft doctor` has found: numbers and versions in, checks with advice out. Pure.

A limit here is where trouble begins in practice; each check says which trouble.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...protocol.wording import counted, listed, sized
from .checks import FAILED, OK, WARNING, Finding

#: Files that a process opens beside its connections.
_OWN_FILES: Final = 64
_FEW_FILES: Final = 1024
#: Processors have small pages of 4 to 64 KiB.
_SMALL_PAGE: Final = 64 << 10
_LITTLE_SPACE: Final = 1 << 30
_LITTLE_MEMORY: Final = 0.1
#: Clocks: logs are merged by time, and epochs of schedulers are read off the clock.
_SKEW_S: Final = 1.0
_MUCH_SKEW_S: Final = 3600.0
_LAG_S: Final = 0.5
_MUCH_LAG_S: Final = 5.0
_SLOW_ROUND_TRIP_S: Final = 0.1
_DAY_S: Final = 86400.0
#: Processes that are named in one line.
_N_NAMED: Final = 4

Facts = Mapping[str, Any]


def judge_machine(place: str, facts: Facts) -> list[Finding]:
    """Judge the memory, the limits and the space of a process and its machine."""
    return [
        _memory(place, facts),
        judge_files(place, facts, 0),
        _large_pages(place, facts),
        _space(place, facts),
    ]


def _memory(place: str, facts: Facts) -> Finding:
    limit, total = facts["memory_limit"], facts["machine_memory"]
    available = facts["available_memory"]
    text = f"{sized(available)} of {sized(total)} are available"
    if limit:
        left = limit - facts["rss"]
        text += f"; its control group may use {sized(limit)}"
        if left < _LITTLE_MEMORY * limit:
            advice = "raise the container's or batch job's memory limit, or the kernel ends it"
            return Finding(WARNING, place, "memory", text, advice)
    if available < _LITTLE_MEMORY * total:
        advice = "end other programs there, or start fewer workers with a lower --memory-limit"
        return Finding(WARNING, place, "memory", text, advice)
    return Finding(OK, place, "memory", text)


def judge_files(place: str, facts: Facts, n_peers: int) -> Finding:
    """Judge the limit of open files against the connections that are needed: one per peer."""
    soft, hard, n_open = facts["max_open_files"], facts["hard_max_open_files"], facts["open_files"]
    if not soft:
        return Finding(OK, place, "files", f"{n_open} are open, without a limit")
    text = f"{n_open} of at most {soft} are open"
    needed = max(n_peers + _OWN_FILES, n_open)
    raised = 65536 if not hard else min(65536, hard)
    how = f"run 'ulimit -n {raised}' before it starts, or LimitNOFILE={raised} in a systemd unit"
    if hard and hard <= soft:
        how = "raise the hard limit in /etc/security/limits.conf, or by LimitNOFILE= under systemd"
    if needed > 0.9 * soft:
        text += f"; {counted(n_peers, 'peer')} may each need one" if n_peers else ""
        level = FAILED if n_open > 0.95 * soft or n_peers > soft else WARNING
        return Finding(level, place, "files", text, f"new connections will be refused: {how}")
    if soft < _FEW_FILES:
        advice = f"enough now; for a larger cluster {how}"
        return Finding(WARNING, place, "files", text, advice)
    return Finding(OK, place, "files", text)


def _large_pages(place: str, facts: Facts) -> Finding:
    nbytes = facts.get("shared_page_nbytes", 0)
    text = f"arrays that processes share are in pages of {sized(nbytes)}"
    if nbytes > _SMALL_PAGE:
        return Finding(OK, place, "pages", text)
    advice = "pages of 2 MiB bring them in a quarter of the time; as root: "
    advice += "'echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled'"
    return Finding(OK, place, "pages", text, advice)


def _space(place: str, facts: Facts) -> Finding:
    free = facts["temporary_free"]
    text = f"{sized(free)} are free in the folder for temporary files"
    if free < _LITTLE_SPACE:
        advice = "make room, or give workers another folder with --local-directory"
        return Finding(WARNING, place, "disk", text, advice)
    return Finding(OK, place, "disk", text)


# --- Clocks and times -----------------------------------------------------------------------------


def skew_of(sent_s: float, there_s: float, received_s: float) -> tuple[float, float]:
    """Return how far another clock is ahead, and the largest error of that: half the wait."""
    return there_s - (sent_s + received_s) / 2, (received_s - sent_s) / 2


def judge_clock(place: str, skew_s: float, error_s: float) -> Finding:
    """Judge the difference between another process's clock and this one's."""
    beyond = max(0.0, abs(skew_s) - error_s)
    direction = "ahead of" if skew_s > 0 else "behind"
    text = f"{abs(skew_s):.3f} s {direction} this machine's (± {error_s:.3f} s)"
    if beyond < _SKEW_S:
        return Finding(OK, place, "clock", text)
    advice = "set both clocks by NTP (chrony, systemd-timesyncd): "
    if beyond < _MUCH_SKEW_S:
        return Finding(WARNING, place, "clock", text, advice + "logs are merged in the wrong order")
    return Finding(
        FAILED, place, "clock", text, advice + "certificates and a new scheduler's epoch need them"
    )


def judge_clocks(host: str, clocks: Sequence[tuple[str, float, float]]) -> list[Finding]:
    """Judge the clocks of the workers of one machine: one line, and one for each that differs.

    Machines may have the same name, and a process may run in a virtual machine of its own.

    Args:
        host: the name of the machine.
        clocks: of each worker that was asked its name, how far it is ahead, and the error of that.
    """
    groups: list[list[tuple[str, float, float]]] = []
    for clock in clocks:
        _, skew_s, error_s = clock
        for group in groups:
            _, other_s, other_error_s = group[0]
            if abs(skew_s - other_s) - error_s - other_error_s < _SKEW_S:
                group.append(clock)
                break
        else:
            groups.append([clock])
    groups.sort(key=lambda group: -len(group))
    checks = []
    for i, group in enumerate(groups):
        names = [f"worker {name}" for name, _, _ in group]
        _, skew_s, error_s = group[0]
        found = judge_clock(f"machine {host}", skew_s, error_s)
        if i:
            text = f"{_named(names)}: {found.text}, unlike other processes of machine {host}"
            found = found._replace(text=text)
        checks.append(found)
    return checks


def judge_round_trip(place: str, seconds: float) -> Finding:
    """Judge the time of one question and its answer."""
    text = f"{seconds * 1e3:.1f} ms for a question and its answer"
    if seconds > _SLOW_ROUND_TRIP_S:
        advice = "each call that waits for its result takes as long; submit many at once (map)"
        return Finding(WARNING, place, "round trip", text, advice)
    return Finding(OK, place, "round trip", text)


def judge_loop(place: str, lag_s: float) -> Finding:
    """Judge how late the scheduler's loop was lately."""
    text = f"at most {lag_s * 1e3:.1f} ms late in the last seconds"
    if lag_s < _LAG_S:
        return Finding(OK, place, "loop", text)
    level = FAILED if lag_s > _MUCH_LAG_S else WARNING
    advice = "the scheduler's processor is busy: give it a core of its own, or submit larger tasks"
    return Finding(level, place, "loop", text, advice)


# --- Versions -------------------------------------------------------------------------------------


def judge_versions(versions: Mapping[str, Mapping[str, str | None]]) -> list[Finding]:
    """Compare the packages of all processes: {process: {package: version}}, this one first.

    Python's minor version decides which workers may run the functions of a client; that of the
    scheduler, which runs none, is not compared.
    """
    place = "versions"
    checks = []
    (own, mine), *_ = versions.items()
    minors = {name: _minor(found.get("python")) for name, found in versions.items()}
    others = [name for name, minor in minors.items() if minor not in ("", minors[own])]
    others = [name for name in others if name != "scheduler"]
    if others:
        text = f"{_minor(mine.get('python'))} here, {minors[others[0]]} on {_named(others)}"
        advice = "a client here cannot use these workers: run the same minor version of Python"
        checks.append(Finding(FAILED, place, "python", text, advice))
    else:
        checks.append(Finding(OK, place, "python", str(mine.get("python"))))
    different = []
    for package in mine:
        if package == "python":
            continue
        by_version: dict[str, list[str]] = {}
        for process, found in versions.items():
            # The scheduler unpickles nothing, so only its own version matters there.
            if process != "scheduler" or package == "weft":
                by_version.setdefault(found.get(package) or "none", []).append(process)
        if len(by_version) > 1:
            parts = [f"{version} on {_named(of)}" for version, of in by_version.items()]
            different.append(f"{package}: {'; '.join(parts)}")
    for text in different:
        advice = "install the same version on all machines, or what is pickled may not be readable"
        checks.append(Finding(WARNING, place, "packages", text, advice))
    if not different:
        known = [f"{name} {version}" for name, version in mine.items() if version]
        known = [text for text in known if not text.startswith("python ")]
        checks.append(Finding(OK, place, "packages", f"the same everywhere: {', '.join(known)}"))
    return checks


def _minor(version: str | None) -> str:
    return ".".join((version or "").split(".")[:2])


def _named(names: list[str]) -> str:
    return listed(names[:_N_NAMED], len(names))


# --- The cluster ----------------------------------------------------------------------------------


def judge_workers(place: str, cluster: Facts) -> list[Finding]:
    """Judge whether there are workers, and whether some were refused."""
    n = cluster["n_workers"]
    if not n:
        advice = "start some with 'weft worker': until then tasks wait"
        checks = [Finding(WARNING, place, "workers", "none is connected", advice)]
    else:
        threads = counted(cluster["nthreads"], "thread")
        checks = [Finding(OK, place, "workers", f"{n} with {threads}")]
    for worker in (cluster.get("refused_workers") or [])[:_N_NAMED]:
        text = f"{worker['name']} on {worker['host']} was refused: {worker['why']}"
        checks.append(
            Finding(WARNING, place, "workers", text, "start that worker as the others are")
        )
    return checks


def judge_memory_limits(place: str, workers: Sequence[Facts], facts: Facts) -> Finding:
    """Judge the memory limits of the workers of one machine against what there is."""
    limits = [worker["memory_limit"] for worker in workers]
    total = facts["memory_limit"] or facts["machine_memory"]
    what = "its control group's" if facts["memory_limit"] else "the machine's"
    if not all(limits):
        advice = "give --memory-limit: without one the kernel ends any process when memory is full"
        return Finding(WARNING, place, "limits", "a worker has no memory limit", advice)
    text = f"{counted(len(limits), 'worker')} may use {sized(sum(limits))} of {what} "
    text += sized(total)
    if sum(limits) > total:
        advice = "lower --memory-limit, so that weft restarts a worker before the kernel ends one"
        return Finding(WARNING, place, "limits", text, advice)
    return Finding(OK, place, "limits", text)


def judge_health(place: str, overview: Facts) -> list[Finding]:
    """Return the scheduler's own view of the cluster's health."""
    checks = []
    for line in overview.get("health", []):
        level = {"ok": OK, "warning": WARNING}.get(line["level"], FAILED)
        # `judge_workers` names the refused ones.
        if level != OK and line["code"] != "refused-workers":
            # An older scheduler has its advice in the text alone.
            text, advice = line.get("what", line["text"]), line.get("advice", "")
            checks.append(Finding(level, place, "health", text, advice))
    return checks


def judge_certificate(place: str, left_s: float, text: str) -> Finding:
    """Judge how long a certificate is valid."""
    days = left_s / _DAY_S
    if left_s <= 0:
        advice = "its state directory has the certificate: stop the scheduler, remove it, start it"
        return Finding(FAILED, place, "tls", f"{text}, expired {-days:.0f} days ago", advice)
    text = f"{text}, valid for {days:.0f} days"
    if days < 30:
        return Finding(WARNING, place, "tls", text, "renew it before then, and send out its file")
    return Finding(OK, place, "tls", text)
