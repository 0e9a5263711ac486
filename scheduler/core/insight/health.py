"""Health of the cluster, in lines: what is wrong, since when, and what to do.

`CHECKS` is the whole table: each check looks at plain facts (`Signs`) and returns its texts. So a
check is a pure function of them; `overview` collects them from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ....protocol.reported import MEMORY_HIGH
from ....protocol.wording import counted, lasting, listed
from ..events import Load
from .unreached_workers import Unreached

#: Above this part of its limit the memory of a worker is an error.
MEMORY_FULL: Final = 0.95
#: Without a finished task for so long there is a warning, but not before a task takes ten times as
#: long as its function did; a function that never finished may take so long.
NO_PROGRESS_S: Final = 60.0
N_TIMES_EXPECTED: Final = 10
NO_PROGRESS_UNKNOWN_S: Final = 600.0
#: The part of a core, the delay and the difference of clocks that are warnings.
BUSY_SHARE: Final = 0.9
LONG_LAG_S: Final = 1.0
CLOCK_OFF_S: Final = 60.0
#: Nobody may try to write the journal again for long.
SHOW_JOURNAL_S: Final = 300.0
#: Lines, or names in one line, of the same kind.
MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """Tasks that no connected worker may run."""

    n_tasks: int
    function: str
    #: why no worker may run them
    why: str
    since_s: float


@dataclass(frozen=True, slots=True)
class RefusedWorkers:
    """Workers that were refused for the same reason."""

    n_workers: int
    why: str
    seconds_ago: float


@dataclass(frozen=True, slots=True)
class SetAside:
    """A plugin that new workers do not get any more."""

    name: str
    n_deaths: int
    #: how the last worker ended that has set it up
    why: str


@dataclass(frozen=True, slots=True)
class Signs:
    """Facts by which a cluster's health is judged.

    Attributes:
        recovering: what the scheduler waits for before it assigns anything, "" = nothing.
        n_waiting: tasks that could run now if a worker had room for them.
        workerless_s: since when no worker takes tasks; None = one does.
        unrunnable: tasks that no worker may run although there are some.
        n_away: workers whose connection has ended and that may come back within `away_s`.
        leaving: the first workers that leave and are held up, of `n_leaving`, each with how far it
            is.
        n_preparing: workers that get no task before they have set up all plugins.
        full: (part of its limit, name) of workers above MEMORY_HIGH, fullest first; at most
            MAX_NAMED of `n_full`.
        paused: the first workers that are paused, each with what fills its memory, of `n_paused`.
        blocked: the first workers that are blocked, each with by whom and why, of `n_blocked`: all
            of them if no other is left, else those that are blocked by themselves.
        are_all_blocked: no other is left.
        n_set_aside: tasks that wait because they would add to full workers.
        refused: those that are still of interest, see `refusals.current_refusals`.
        n_processing: tasks at workers.
        quiet_s: since when no task has finished while some are at workers.
        expected_s: the longest expected duration of these; None = it is not known of some.
        unreached: workers that others fail to fetch from again and again, worst first.
        set_aside: plugins under whose set-up several workers in a row died.
    """

    recovering: str = ""
    n_waiting: int = 0
    workerless_s: float | None = None
    unrunnable: list[Unrunnable] = field(default_factory=list)
    n_away: int = 0
    n_preparing: int = 0
    away_s: float = 0.0
    leaving: list[str] = field(default_factory=list)
    n_leaving: int = 0
    full: list[tuple[float, str]] = field(default_factory=list)
    n_full: int = 0
    paused: list[str] = field(default_factory=list)
    n_paused: int = 0
    blocked: list[str] = field(default_factory=list)
    n_blocked: int = 0
    are_all_blocked: bool = False
    n_set_aside: int = 0
    refused: list[RefusedWorkers] = field(default_factory=list)
    n_processing: int = 0
    quiet_s: float = 0.0
    expected_s: float | None = 0.0
    load: Load = field(default_factory=Load)
    unreached: list[Unreached] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    #: why the journal could not be written the last time, "" = it was
    journal_error: str = ""
    journal_s: float = 0.0


#: (level, what is wrong, what to do about it or "")
Found = tuple[str, str, str]


def _recovering(signs: Signs) -> Iterator[Found]:
    if signs.recovering:
        yield "warning", f"{signs.recovering}; no task is started until then", ""


_START: Final = "start 'weft worker'"


def _no_workers(signs: Signs) -> Iterator[Found]:
    if signs.workerless_s is None or signs.recovering:
        return
    since = lasting(signs.workerless_s)
    if signs.n_waiting:
        tasks = "1 task waits" if signs.n_waiting == 1 else f"{signs.n_waiting} tasks wait"
        yield "error", f"{tasks}, and there has been no worker for {since}", _START
    else:
        yield "warning", f"there has been no worker for {since}", _START


def _unrunnable(signs: Signs) -> Iterator[Found]:
    for found in signs.unrunnable[:MAX_NAMED]:
        yield (
            "error",
            f"{counted(found.n_tasks, 'task')} of {found.function} cannot run, for "
            f"{lasting(found.since_s)}: {found.why}",
            "start such a worker, or submit them without that requirement",
        )
    n_more = sum(found.n_tasks for found in signs.unrunnable[MAX_NAMED:])
    if n_more:
        yield "error", f"{counted(n_more, 'more task')} cannot run for other reasons", ""


def _workers_away(signs: Signs) -> Iterator[Found]:
    if signs.n_away:
        they = "it does" if signs.n_away == 1 else "they do"
        yield (
            "warning",
            f"{counted(signs.n_away, 'worker')} lost the connection to the scheduler: if {they} "
            f"not come back within {lasting(signs.away_s)}, the tasks there run again elsewhere",
            "",
        )


def _leaving(signs: Signs) -> Iterator[Found]:
    if signs.n_leaving:
        n_more = signs.n_leaving - len(signs.leaving)
        more = f"; and {n_more} more" if n_more > 0 else ""
        yield (
            "warning",
            f"{counted(signs.n_leaving, 'worker')} cannot leave yet "
            f"({'; '.join(signs.leaving)}{more})",
            "start workers, release or gather results, or lose them: 'weft retire --drop'",
        )


def _preparing(signs: Signs) -> Iterator[Found]:
    if signs.n_preparing:
        they = "it gets" if signs.n_preparing == 1 else "they get"
        verb = "sets" if signs.n_preparing == 1 else "set"
        yield (
            "warning",
            f"{counted(signs.n_preparing, 'new worker')} {verb} up plugins, and {they} no task "
            "before the end of that",
            "'weft logs' shows what a plugin does there",
        )


def _set_aside(signs: Signs) -> Iterator[Found]:
    for found in signs.set_aside[:MAX_NAMED]:
        yield (
            "error",
            f"plugin {found.name!r} is set aside: {found.n_deaths} workers in a row died while "
            f"they set it up ({found.why}), and later ones work without it",
            "unregister it, or mend and register it again",
        )
    n_more = len(signs.set_aside) - MAX_NAMED
    if n_more > 0:
        yield (
            "error",
            f"{counted(n_more, 'more plugin')} {'is' if n_more == 1 else 'are'} set aside",
            "",
        )


def _memory(signs: Signs) -> Iterator[Found]:
    if not signs.full:
        return
    level = "error" if signs.full[0][0] >= MEMORY_FULL else "warning"
    named = listed([f"{name} {share:.0%}" for share, name in signs.full], signs.n_full)
    verb = "uses" if signs.n_full == 1 else "use"
    yield (
        level,
        f"{counted(signs.n_full, 'worker')} {verb} more than {MEMORY_HIGH:.0%} of the memory "
        f"({named}): above 95 % a worker is restarted",
        "release results, use smaller pieces, or give workers more memory",
    )


def _paused(signs: Signs) -> Iterator[Found]:
    if signs.n_paused:
        they = "it gets" if signs.n_paused == 1 else "they get"
        verb = "is" if signs.n_paused == 1 else "are"
        n_more = signs.n_paused - len(signs.paused)
        more = f"; and {n_more} more" if n_more > 0 else ""
        yield (
            "warning",
            f"{counted(signs.n_paused, 'worker')} {verb} paused, and {they} no task before there "
            f"is room in memory ({'; '.join(signs.paused)}{more})",
            "release results, use smaller pieces, or give workers more memory; restart those whose "
            "memory is not of results",
        )


def _blocked(signs: Signs) -> Iterator[Found]:
    if not signs.n_blocked:
        return
    workers = counted(signs.n_blocked, "worker")
    verb = "is" if signs.n_blocked == 1 else "are"
    n_more = signs.n_blocked - len(signs.blocked)
    named = "; ".join(signs.blocked) + (f"; and {n_more} more" if n_more > 0 else "")
    if signs.are_all_blocked:
        level = "error" if signs.n_waiting else "warning"
        what = f"{workers} {verb} blocked and there is no other, so no task begins ({named})"
    else:
        they = "it gets" if signs.n_blocked == 1 else "they get"
        level, what = "warning", f"{workers} {verb} blocked, and {they} no task ({named})"
    yield level, what, "look at that, then 'weft unblock'"


def _memory_wait(signs: Signs) -> Iterator[Found]:
    if signs.n_set_aside:
        verb = "waits" if signs.n_set_aside == 1 else "wait"
        yield (
            "error",
            f"{counted(signs.n_set_aside, 'task')} {verb} for memory: workers that may run them "
            f"use more than {MEMORY_HIGH:.0%} of theirs; if nothing makes room, the newest results "
            "fail",
            "release results, use smaller pieces, or have more workers",
        )


def _refused(signs: Signs) -> Iterator[Found]:
    for refused in signs.refused[:MAX_NAMED]:
        was = "was" if refused.n_workers == 1 else "were"
        yield (
            "warning",
            f"{counted(refused.n_workers, 'worker')} {was} refused, the last one "
            f"{lasting(refused.seconds_ago)} ago: {refused.why}",
            "start it as the others are; 'weft info' names it",
        )


def _unreached(signs: Signs) -> Iterator[Found]:
    for found in signs.unreached[:MAX_NAMED]:
        readers = listed(found.readers, found.n_readers)
        verb = "worker {} cannot" if found.n_readers == 1 else "workers {} cannot"
        yield (
            "warning",
            f"{verb.format(readers)} reach the data port of {found.holder} at {found.address}: "
            f"{found.n_failed} fetches failed within "
            f"{lasting(found.first_s - found.last_s)}, the last one {lasting(found.last_s)} ago",
            "open that port between their machines; 'weft doctor' tries the others",
        )
    n_more = len(signs.unreached) - MAX_NAMED
    if n_more > 0:
        yield "warning", f"the data ports of {counted(n_more, 'more worker')} are out of reach", ""


def _no_progress(signs: Signs) -> Iterator[Found]:
    if not signs.n_processing or signs.recovering:
        return
    if signs.expected_s is None:
        patience = NO_PROGRESS_UNKNOWN_S
    else:
        patience = max(NO_PROGRESS_S, N_TIMES_EXPECTED * signs.expected_s)
    if signs.quiet_s < patience:
        return
    usual = ""
    if signs.expected_s is not None:
        usual = f", though the longest usually takes {lasting(signs.expected_s)}"
    yield (
        "warning",
        f"no task has finished for {lasting(signs.quiet_s)}, with {signs.n_processing} at workers"
        f"{usual}",
        "look at what they do with 'weft logs' and py-spy, or cancel them",
    )


def _busy(signs: Signs) -> Iterator[Found]:
    if signs.load.cpu_share >= BUSY_SHARE:
        yield (
            "warning",
            f"the scheduler computes {min(signs.load.cpu_share, 1.0):.0%} of the time, so it "
            "limits the cluster",
            "make tasks longer, or submit many with one map()",
        )


def _slow(signs: Signs) -> Iterator[Found]:
    if signs.load.loop_lag_s >= LONG_LAG_S:
        yield (
            "warning",
            f"the scheduler was up to {lasting(signs.load.loop_lag_s)} late in the last seconds: "
            "its machine is overloaded, or was suspended",
            "",
        )


def _clock(signs: Signs) -> Iterator[Found]:
    behind = signs.load.clock_behind_s
    if behind >= CLOCK_OFF_S:  # a machine that was suspended is ahead, which harms nothing
        yield (
            "warning",
            f"the clock of the scheduler's machine is {lasting(behind)} behind the time at which "
            "this or an earlier scheduler of the cluster started",
            "set the clock",
        )


def _journal(signs: Signs) -> Iterator[Found]:
    if signs.journal_error and signs.journal_s < SHOW_JOURNAL_S:
        yield (
            "error",
            f"no job could be recorded {lasting(signs.journal_s)} ago: {signs.journal_error}",
            "new detached calls are refused until that is mended",
        )


class HealthCheck(NamedTuple):
    """A check: what it looks for, for the documentation, and the function that looks."""

    about: str
    find: Callable[[Signs], Iterator[Found]]


#: {code: check}, in the order in which lines are shown among those of the same level
CHECKS: Final[dict[str, HealthCheck]] = {
    "no-workers": HealthCheck("No worker takes tasks.", _no_workers),
    "unrunnable": HealthCheck("No connected worker may run some tasks.", _unrunnable),
    "recovering": HealthCheck(
        "The scheduler was started again and waits for the peers of the last one.", _recovering
    ),
    "memory": HealthCheck("Workers use more than 80 % of their memory limit.", _memory),
    "workers-paused": HealthCheck("Workers use so much memory that they get no task.", _paused),
    "workers-blocked": HealthCheck(
        "All workers are blocked, or some because calls failed there.", _blocked
    ),
    "memory-wait": HealthCheck("Tasks wait for room in the memory of workers.", _memory_wait),
    "workers-away": HealthCheck("Connections to workers ended a moment ago.", _workers_away),
    "workers-leaving": HealthCheck(
        "Workers have been leaving for a minute, or no other has room for what they have.", _leaving
    ),
    "workers-preparing": HealthCheck("New workers set up plugins.", _preparing),
    "plugins-aside": HealthCheck("Workers died again and again of a plugin.", _set_aside),
    "unreached": HealthCheck("Workers fail to fetch data from others again and again.", _unreached),
    "no-progress": HealthCheck("No task has finished for much longer than expected.", _no_progress),
    "journal": HealthCheck("The journal could not be written in the last 5 minutes.", _journal),
    "refused-workers": HealthCheck(
        "Workers were refused in the last 5 minutes; in the last hour while tasks find no worker.",
        _refused,
    ),
    "scheduler-busy": HealthCheck("The scheduler uses nearly all of its core.", _busy),
    "scheduler-late": HealthCheck("The scheduler was late by a second or more.", _slow),
    "clock": HealthCheck("The clock of the scheduler's machine was set.", _clock),
}
_LEVELS: Final = ("error", "warning")


def judge(signs: Signs) -> list[dict[str, Any]]:
    """Return the lines, the most serious first; without any, one line of level ok.

    The text of a line has both what is wrong and what to do, which are there apart as well.
    """
    lines = [
        {"level": level, "code": code, "text": _text(what, advice), "what": what, "advice": advice}
        for code, check in CHECKS.items()
        for level, what, advice in check.find(signs)
    ]
    lines.sort(key=lambda line: _LEVELS.index(line["level"]))
    ok = "no problem is known"
    return lines or [{"level": "ok", "code": "ok", "text": ok, "what": ok, "advice": ""}]


def _text(what: str, advice: str) -> str:
    if not advice:
        return what
    # A sentence has one colon.
    return f"{what}. {advice[0].upper()}{advice[1:]}" if ": " in what else f"{what}: {advice}"
