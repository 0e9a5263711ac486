"""`weft bundle`: what helps to see why tasks failed or do not run, in one file for a maintainer."""

from __future__ import annotations

import json
import os
import re
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .group import Chosen, fail, scheduler_options, weft
from .options import FilePath

if TYPE_CHECKING:
    from ...protocol.trust.connection_file import ConnectionFile
    from ..http.viewer import Viewer

#: Tasks of one bundle, and log lines of its processes together.
MAX_TASKS: Final = 20
MAX_LINES: Final = 5000
#: Lines are of the time from so long before the first event of the tasks to so long after the last.
AROUND_S: Final = 60.0
#: The user and the password of a URL, as a task may log one.
_PASSWORD: Final = re.compile(r"(://[^\s:/@]*):[^\s/]+@")
_README: Final = """\
weft bundle of {when}

{tasks}

tasks/       each task: its state and the reason, attempts, story, traceback
logs.txt     log lines of the scheduler and of the workers of these tasks, around that time
events.json  what the scheduler has recorded of the cluster
cluster.json, overview.json, versions.json
settings.json  the settings on the machine where this was made

Arguments and results of tasks, the token of the connection file and passwords in URLs are not in
it. Tracebacks and log lines are, with any other secret that a task has logged: read them before you
send this to somebody.
{missing}"""


@weft.command(short_help="Write all that helps to understand tasks into one file.")
@click.argument("arguments", nargs=-1, metavar="[KEY]...")
@scheduler_options
@click.option(
    "--failed", "of_failed", is_flag=True, help=f"The tasks that failed last, at most {MAX_TASKS}."
)
@click.option(
    "-o",
    "--output",
    type=FilePath(path_type=Path, dir_okay=False),
    metavar="FILE",
    default=Path("weft-bundle.zip"),
    show_default=True,
    help="The zip file to write.",
)
def bundle(chosen: Chosen, arguments: tuple[str, ...], of_failed: bool, output: Path) -> None:
    """Write all that helps to understand why tasks failed, or do not run, into one file.

    It has their explanations, attempts, stories and tracebacks; log lines of their workers and of
    the scheduler around that time; the cluster, its events, the versions of packages, and the
    settings of this machine. Arguments, results, tokens and passwords are not in it. It takes a
    connection file of the role client.

    \b
    Examples:
      weft bundle --failed
      weft bundle inc-0a1b2c3d train-4e5f6a7b -o report.zip
    """
    from ...protocol.errors import ConfigError
    from ...protocol.wire.levels import Level
    from ...protocol.wording import counted

    if bool(arguments) == of_failed:
        raise click.UsageError("which tasks? Give their keys, or --failed")
    if len(arguments) > MAX_TASKS:
        raise click.UsageError(f"a bundle has at most {MAX_TASKS} tasks, not {len(arguments)}")
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"the folder of {output} does not exist", "--output")
    found = chosen.demand(Level.CLIENT, "weft bundle")
    parts, keys = _parts(chosen, list(dict.fromkeys(arguments)))
    try:
        _write(output, parts, found)
    except OSError as error:
        fail(f"weft bundle: {output} cannot be written: {error.strerror or error}", 1)
    click.echo(f"written: {output}, with {counted(len(keys), 'task')}")


def _parts(chosen: Chosen, keys: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return `{name of a file: its content}`, texts and plain data, and the keys of the tasks."""
    from ...client.insight.explaining import read
    from ...protocol.settings.sources import read_settings
    from ...protocol.settings.table import ALL
    from ..overview.wording import describe_task
    from .config import as_plain
    from .events import read_events
    from .jobs import connected

    (asked, rows, errors), _ = chosen.ask(lambda viewer: _ask(viewer, keys))
    with connected(chosen, "weft bundle") as client:
        events, _, _ = read_events(client, "scheduler", (), 0)
        versions = client.get_versions()
    tasks = asked.pop("tasks")
    parts: dict[str, Any] = {f"{name}.json": data for name, data in asked.items()}
    for i, task in enumerate(tasks, 1):
        parts[f"tasks/{i}.json"] = task
        texts = [
            str(read(task)) if "steps" in task else task.get("error", ""),
            describe_task(task) if "why" in task else "",
            task.get("traceback", ""),
        ]
        parts[f"tasks/{i}.txt"] = "\n\n".join(filter(None, texts)) + "\n"
    settings = read_settings()
    parts["settings.json"] = {setting.name: as_plain(setting, settings) for setting in ALL}
    parts["events.json"] = [{"time": when, "event": event} for when, event in events]
    parts["versions.json"] = versions
    parts["logs.txt"] = "\n".join(rows)
    found = [str(task["key"]) for task in tasks]
    parts["README.txt"] = _README.format(
        when=time.strftime("%Y-%m-%d %H:%M:%S"),
        tasks="\n".join(f"  {i}  {key}" for i, key in enumerate(found, 1)) or "no task has failed",
        missing="".join(f"\nmissing: {error}" for error in errors),
    )
    return parts, found


async def _ask(viewer: Viewer, keys: list[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return what the scheduler knows, log lines, and what is missing."""
    from ..http.viewer import describe_cluster
    from .log_rows import ask_logs, show

    overview = await viewer.ask_all("overview")
    cluster = await describe_cluster(viewer)
    failures: dict[str, Any] = {}
    for one in overview["failures"]:
        failures.setdefault(str(one["key"]), one)
    tasks = [
        await _ask_one(viewer, key, failures.get(key)) for key in keys or list(failures)[:MAX_TASKS]
    ]
    names = {name for task in tasks for name in task.pop("at")}
    connected = [w["name"] for w in cluster["workers"].values() if w["name"] in names]
    rows, errors = await ask_logs(viewer, tuple(connected), MAX_LINES, of_scheduler=True)
    now = time.time()
    ages = [age_s for task in tasks for age_s in task.pop("ages_s")]
    first, last = max(ages, default=now) + AROUND_S, min(ages, default=0.0) - AROUND_S
    lines = [show(row) for row in rows if now - first <= row[0] <= now - last]
    gone = sorted(names - set(connected))
    missing = [*map(str, errors), *(f"the log of worker {name}, which has left" for name in gone)]
    return {"overview": overview, "cluster": cluster, "tasks": tasks}, lines, missing


async def _ask_one(viewer: Viewer, key: str, failure: Any) -> dict[str, Any]:
    """Return what is known of a task, the workers where it was (`at`), and when that was."""
    from ...protocol.errors import QuestionFailed
    from ...protocol.wire.levels import Level
    from ..http.details import task_facts
    from ..http.visitor import Visitor

    try:
        facts = await task_facts(viewer, Visitor(Level.CLIENT), key)
    except QuestionFailed as error:  # forgotten, and what failed of it may be known
        if failure is None:
            raise
        facts = {"key": key, "state": "unknown", "error": str(error), "story": []}
    facts.pop("call", None)  # the arguments
    answer = await viewer.ask_all("attempts", {"keys": [key]})
    facts["attempts"] = [end for _, ends in answer["attempts"] for end in ends]
    facts["failed"] = failure
    at = [end[0] for end in facts["attempts"]] + list(facts.get("running_at") or [])[1:]
    at += [failure["worker"]] if failure else []
    ages = [age_s for age_s, _ in facts["story"]] + ([failure["age_s"]] if failure else [])
    return {**facts, "at": [*filter(None, at)], "ages_s": ages}


def _write(output: Path, parts: dict[str, Any], found: ConnectionFile) -> None:
    """Write the file, without the secrets that this machine knows, whoever has logged them."""
    part = output.with_name(f"{output.name}.part")
    try:
        part.unlink(missing_ok=True)
        # Its log lines are for those with a token, not for all users of this machine.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with (
            open(os.open(part, flags, 0o600), "w+b") as raw,
            zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as file,
        ):
            for name, content in sorted(parts.items()):
                text = (
                    content
                    if isinstance(content, str)
                    else json.dumps(content, indent=1, default=str, ensure_ascii=False)
                )
                safe = without_secrets(text, found.token).encode("utf-8", "backslashreplace")
                file.writestr(f"{output.stem}/{name}", safe)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


def without_secrets(text: str, token: str) -> str:
    """Return a text without this token, and without the passwords of URLs."""
    return _PASSWORD.sub(r"\1:***@", text.replace(token, "***") if token else text)
