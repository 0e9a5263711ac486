"""`weft timeline`: records what a cluster does, and writes it as a trace, plots and a log."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .group import Chosen, fail, scheduler_options, weft
from .hints import CommandWithCodes
from .options import FilePath, Time, file_option

if TYPE_CHECKING:
    from ...client.insight.recorder import record_timeline
    from ...client.insight.recording import Recording

#: How long it records unless something else is said, seconds.
_DEFAULT_S: Final = 10.0
#: How often it looks whether it should end, and draws how far it is, seconds.
_LOOK_S: Final = 0.1
_STDOUT: Final = Path("-")


@weft.command(cls=CommandWithCodes, short_help="Record tasks and workers: a trace, plots, a log.")
@scheduler_options
@click.option(
    "--seconds",
    type=Time(),
    metavar="TIME",
    help=f"How long to record.  [default: {_DEFAULT_S:g} s]",
)
@click.option("--follow", "follows", is_flag=True, help="Record until Ctrl-C.")
@click.option(
    "--from",
    "source",
    type=FilePath(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read a recording that --save has written, instead of a cluster.",
)
@file_option("--chrome", "Write a trace for chrome://tracing and https://ui.perfetto.dev.")
@file_option("--svg", "Write plots: tasks that ran, by function, and from submission to end.")
@click.option(
    "--transactions",
    type=FilePath(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write a log with one line for each change of a task or worker; - is standard output.",
)
@file_option("--save", "Write the recording itself, for --from; compressed if it ends with .gz.")
def timeline(
    chosen: Chosen,
    seconds: float | None,
    follows: bool,
    source: Path | None,
    chrome: Path | None,
    svg: Path | None,
    transactions: Path | None,
    save: Path | None,
) -> None:
    """Record what a cluster does for a while, and write it as a trace, plots and a log.

    It records, for all clients, attempts that end in this time, submissions, assignments and
    cancellations, and workers that join, lose their connection, or leave. Files are written at
    the end. Ctrl-C ends the recording, and what there is by then is written. It takes a
    connection file of the role client.

    The log has the columns time_us, category, id, change, worker, thread, attempt, seconds, nbytes
    and detail, divided by spaces; - stands for no value. Spaces in names are written as %20.

    \b
    Examples:
      weft timeline --seconds 30 --svg run.svg --chrome run.json
      weft timeline --follow --save night.jsonl.gz
      weft timeline --from night.jsonl.gz --transactions - | awk '$4 == "failed" {print $3}'
    """
    files = {"--chrome": chrome, "--svg": svg, "--transactions": transactions, "--save": save}
    _check_files({name: path for name, path in files.items() if path is not None}, source)
    if follows and seconds is not None:
        raise click.UsageError("--seconds is how long it records, --follow until Ctrl-C; give one")
    if seconds is None and not (follows or source):
        seconds = _DEFAULT_S
    if source is None:
        recording, failure = _record(chosen, seconds)
    elif follows or seconds is not None or any(chosen):
        raise click.UsageError("--from reads a file: leave the scheduler and the time out")
    else:
        recording, failure = _load(source), None
    _write(recording, files)
    if failure is not None:
        raise failure


def _check_files(files: dict[str, Path], source: Path | None) -> None:
    """Refuse what could not be written, before anything is recorded."""
    from ...protocol.errors import ConfigError

    if not files:
        raise click.UsageError("what to write? Give --chrome, --svg, --transactions or --save")
    seen: dict[Path, str] = {} if source is None else {source.resolve(): "--from"}
    for name, path in files.items():
        if path == _STDOUT:
            if name != "--transactions":
                raise click.UsageError(f"{name} takes a file; only --transactions takes -")
            continue
        if not path.parent.is_dir():
            raise ConfigError(f"the folder {path.parent} does not exist", name)
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise click.UsageError(f"{other} and {name} are the same file, {path}")


def _load(path: Path) -> Recording:
    from ...client.insight.recording_files import load
    from ...protocol.errors import ConfigError

    try:
        return load(path)
    except (OSError, ValueError) as error:
        raise ConfigError(str(error), "--from") from None


# -- recording -------------------------------------------------------------------------------------
def _record(chosen: Chosen, seconds: float | None) -> tuple[Recording, BaseException | None]:
    """Record a cluster; return what there is, and what ended it before its time, if anything."""
    from ...client.client import Client
    from ...client.insight.recorder import record_timeline
    from ...protocol.wire.levels import Level

    found = chosen.demand(Level.CLIENT, "weft timeline")
    address, security = found.addresses[0], found.to_security()
    with Client(address, security=security, name="weft timeline", set_as_default=False) as client:
        recorder = record_timeline(client)
        stops = end_by_signals()
        try:
            with recorder:
                _wait(recorder, seconds, lambda: bool(stops))
        except KeyboardInterrupt as interrupt:  # the second one
            return recorder.recording, interrupt
    return recorder.recording, recorder.failure


def end_by_signals() -> list[int]:
    """Have Ctrl-C and other signals end the recording; return the list that will have them.

    A second one ends the last reading too. Those that are ignored, as after `nohup`, stay so.
    """
    came: list[int] = []

    def end(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    return came


def _wait(recorder: record_timeline, seconds: float | None, is_stopped: Callable[[], bool]) -> None:
    """Wait until the time is over, and draw how far it is where somebody sees it."""
    import time

    from ...protocol.wording import grouped, lasting

    draws = sys.stderr.isatty()
    begin = time.monotonic()
    while not (is_stopped() or recorder.is_over):
        elapsed_s = time.monotonic() - begin
        left_s = _LOOK_S if seconds is None else min(seconds - elapsed_s, _LOOK_S)
        if left_s <= 0:
            break
        if draws:
            of = "" if seconds is None else f" of {lasting(seconds)}"
            line = f"{lasting(elapsed_s)}{of}, {grouped(recorder.n_attempts)} attempts ended"
            click.echo(f"\r{line}; Ctrl-C writes what there is\033[K", err=True, nl=False)
        time.sleep(left_s)
    if draws:
        click.echo("\r\033[K", err=True, nl=False)


# -- writing ---------------------------------------------------------------------------------------
def _write(recording: Recording, files: dict[str, Path | None]) -> None:
    """Write the files, and say what is in them."""
    from ...client.insight.recording_files import save, write_lines

    for name, path in files.items():
        if path is None:
            continue
        if path == _STDOUT:
            sys.stdout.writelines(_parts(name, recording))
            sys.stdout.flush()
            continue
        try:
            if name == "--save":
                save(recording, path)
            else:
                write_lines(path, _parts(name, recording))
        except OSError as error:
            fail(f"weft timeline: {path} cannot be written: {error.strerror or error}", 1)
    written = [str(path) for path in files.values() if path not in (None, _STDOUT)]
    text = f"{described(recording)}: {', '.join(written)}" if written else described(recording)
    click.echo(text, err=files["--transactions"] == _STDOUT)
    for lack in recording.lacks():
        click.echo(f"weft timeline: missing: {lack}", err=True)


def _parts(name: str, recording: Recording) -> Iterator[str]:
    """Yield the text of a file in parts."""
    if name == "--chrome":
        from ...client.display.chrome_trace import trace_text

        yield from trace_text(recording)
    elif name == "--svg":
        from ...client.display.activity import svg

        yield svg(recording)
    else:
        from ...client.display.transactions import transactions

        for line in transactions(recording):
            yield f"{line}\n"


def described(recording: Recording) -> str:
    """Return what a recording has in it, in one line."""
    from ...protocol.wording import counted, grouped, lasting

    n_failed = sum(one.is_failed for one in recording.timings)
    raised = f" ({grouped(n_failed)} raised)" if n_failed else ""
    n = len(recording.timings)
    workers = {one.name for one in recording.members if one.category == "worker"}
    attempts = f"{grouped(n)} attempt{'' if n == 1 else 's'}{raised}"
    return f"{attempts} on {counted(len(workers), 'worker')} in {lasting(recording.seconds)}"
