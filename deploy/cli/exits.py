"""The exit codes of all `weft` commands: one table, which deploy/README.md shows."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.errors import (
    CommError,
    ConfigError,
    HandshakeError,
    InternalError,
    NotAdmitted,
    NotPermitted,
    TakenOver,
    WeftError,
    WrongCluster,
    WrongRole,
    WrongToken,
    WrongVersion,
)
from ...protocol.host.exits import (
    EXIT_CRASHED,
    EXIT_NO_SCHEDULER,
    EXIT_REFUSED,
    EXIT_TAKEN_OVER,
)
from ...protocol.trust.finding import NoSchedulerFound
from .status_text import EXIT_DEGRADED, EXIT_OK

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
#: The scheduler would refuse the same process again.
REFUSALS: Final = (WrongToken, WrongVersion, WrongCluster, WrongRole, NotAdmitted)


class ExitCode(NamedTuple):
    """A row of the table."""

    code: int
    commands: str  #: "" = all
    meaning: str


EXIT_CODES: Final = (
    ExitCode(0, "", "it has done what was asked for, or ended on request: by Ctrl-C, SIGTERM or "
             "the scheduler"),
    ExitCode(EXIT_OK, "status", "all is well"),
    ExitCode(1, "", "it failed; the last line on standard error has the reason"),
    ExitCode(1, "worker", "also if its workers end in the same way three times in a row before any "
             "has joined the cluster, with the cause in the log"),
    ExitCode(EXIT_DEGRADED, "status", "degraded: a line of the cluster's health is a warning or an "
             "error"),
    ExitCode(1, "doctor, selftest", "a check has failed"),
    ExitCode(1, "doctor", "with `--strict` also if there is a warning"),
    ExitCode(1, "info --all", "no scheduler was found that answers"),
    ExitCode(1, "logs", "a process has not answered; the lines of the others are printed"),
    ExitCode(1, "retire", "a worker was kept or lost, or still runs tasks after `--timeout`"),
    ExitCode(1, "scale", "a worker was kept, `--timeout` is over, or no `weft worker` is connected "
             "that could start more"),
    ExitCode(1, "ssh", "the scheduler or all machines failed"),
    ExitCode(1, "stop", "the cluster has not ended: tasks are unfinished and `--yes` was not "
             "given, or a service manager has started it again"),
    ExitCode(1, "submit", "a run has failed; of a single one its own exit code, up to 125"),
    ExitCode(1, "wait", "a job has failed, was cancelled or is lost"),
    ExitCode(1, "output", "the job has no result; of a command its own exit code, up to 123"),
    ExitCode(2, "", "the command or its configuration is at fault; several schedulers were found; "
             "no token was found for an address at which a process listens; or the token's role "
             "is too low"),
    ExitCode(EXIT_NO_SCHEDULER, "", "no scheduler was found, or it cannot be reached"),
    ExitCode(EXIT_NO_SCHEDULER, "status", "the same: the cluster is down"),
    ExitCode(EXIT_NO_SCHEDULER, "timeline", "also if the cluster was gone before the end; what was "
             "recorded is written"),
    ExitCode(EXIT_NO_SCHEDULER, "worker", "the same within `--connect-timeout`; or no scheduler "
             "came back within `--orphan-lease` (15 min), for which workers keep their results"),
    ExitCode(EXIT_CRASHED, "scheduler", "a bug of weft has ended it; the log has the traceback. "
             "Its peers come back when it is started again"),
    ExitCode(EXIT_TAKEN_OVER, "scheduler", "another scheduler of the same cluster has taken over"),
    ExitCode(EXIT_REFUSED, "", "the scheduler refused this process and would refuse it again, for "
             "instance for a token of another cluster, or another version of the protocol"),
    ExitCode(EXIT_REFUSED, "worker", "also for another minor version of Python than the cluster's"),
    ExitCode(124, "wait", "`--timeout` is over; the jobs go on"),
    ExitCode(130, "", "Ctrl-C before it ran, or at a question"),
    ExitCode(130, "timeline", "Ctrl-C a second time, since the end took long; what was recorded is "
             "written"),
    ExitCode(130, "profile", "Ctrl-C a second time, since the end took long; nothing is shown"),
    ExitCode(130, "submit", "Ctrl-C, SIGTERM or SIGHUP: it has cancelled what had not ended"),
)  # fmt: skip


def exit_code_of(error: WeftError) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, NoSchedulerFound) and not error.is_answered:
        return EXIT_NO_SCHEDULER
    if isinstance(error, (ConfigError, NotPermitted)):
        return EXIT_USAGE
    if isinstance(error, InternalError):
        return EXIT_CRASHED
    if isinstance(error, TakenOver):
        return EXIT_TAKEN_OVER
    if isinstance(error, REFUSALS):
        return EXIT_REFUSED
    if isinstance(error, (CommError, HandshakeError)):
        return EXIT_NO_SCHEDULER
    return EXIT_FAILED


def exit_codes_of(command: str) -> dict[int, str]:
    """Return `{exit code: its meaning}` of one command, as plain text for its help."""
    meanings: dict[int, list[str]] = {}
    for row in EXIT_CODES:
        if not row.commands or command in row.commands.split(", "):
            meanings.setdefault(row.code, []).append(row.meaning.replace("`", "'"))
    return {code: "; ".join(texts) for code, texts in meanings.items()}
