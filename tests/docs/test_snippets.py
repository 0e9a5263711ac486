"""The examples of README.md and docs/ are run as they are printed there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import pytest

from tests.deploy.daemons import address_of, daemon, environment, file_of, run, scheduler
from tests.docs.pages import ROOT, Page, with_checks
from weft.deploy.cli.command import weft

#: The address that the pages have for a scheduler; the test's own listens elsewhere.
ADDRESS = "tcp://127.0.0.1:8786"
_NAMES = (
    "actors.md",
    "client.md",
    "collections.md",
    "coordination.md",
    "data.md",
    "embedded.md",
    "ending.md",
    "executor.md",
    "explain.md",
    "from_celery.md",
    "from_dask.md",
    "from_jobschedulers.md",
    "from_joblib.md",
    "from_ray.md",
    "from_work_queue.md",
    "jobs.md",
    "notebooks.md",
    "own_cluster.md",
    "practices.md",
    "tutorial.md",
    "scaling.md",
    "task_stream.md",
    "tasks.md",
)
PAGES = [Page("README.md"), *[Page(f"docs/{name}") for name in _NAMES]]


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A cluster as the pages describe it: the daemons of this user, and their files here."""
    with ExitStack() as stack:
        started = stack.enter_context(scheduler(folder=folder))
        shutil.copy(file_of(started), folder / "cluster.json")
        options = ("--connection-file", "cluster.json", "--output", "client.json")
        done = run("token", "--role", "client", *options, folder=folder)
        assert done.returncode == 0, done.stderr
        stack.enter_context(daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=folder))
        yield address_of(started)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_and_give_the_stated_results(page, tmp_path):
    program = page.program
    with ExitStack() as stack:
        if ADDRESS in program:
            program = program.replace(ADDRESS, stack.enter_context(cluster(tmp_path)))
        (tmp_path / "helpers.py").write_text("def triple(x):\n    return 3 * x\n")
        script = tmp_path / Path(page.name).with_suffix(".py").name
        script.write_text(program, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=tmp_path,
            timeout=120,
            env=environment(tmp_path / "run"),
            check=False,
        )
    assert done.returncode == 0, f"{page.name}:\n{done.stdout}{done.stderr}"
    assert not re.search("Traceback|WARNING|ERROR", done.stderr), done.stderr


@pytest.mark.slow
def test_pools_and_joblib_give_what_the_page_about_them_states(tmp_path):
    """Those of Ray and Celery are not installed with the tests."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.pages", "docs/from_joblib.md"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env=environment(tmp_path / "run"),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "docs/from_joblib.md: 15 rows\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_examples_and_states_their_results(page):
    assert page.n_blocks >= 2
    assert page.n_claims >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_accepted(page):
    """Parsed, not run."""
    for _, name, *arguments in page.commands:
        command = weft.commands[name]
        try:
            command.make_context(name, arguments)
        except click.exceptions.Exit:  # --help and --version
            continue
        except click.ClickException as error:
            pytest.fail(f"{page.name}: {' '.join(arguments)}: {error.format_message()}")


def test_a_block_with_a_reason_is_left_out_and_all_lines_keep_their_numbers(tmp_path):
    lines = [
        "# Title `weft info --json`",
        "```python",
        "first",
        "```",
        "<!-- not run: it never ends -->",
        "```python",
        "second",
        "```",
        "```",
        "weft worker --name 'a b'     # a comment",
        "third",
        "```",
    ]
    (tmp_path / "page.md").write_text("\n".join(lines))
    page = Page(str(tmp_path / "page.md"))
    assert page.program.split("\n")[1:] == ["", "first", *[""] * 9]
    assert page.n_blocks == 1
    assert page.commands == [["weft", "info", "--json"], ["weft", "worker", "--name", "a b"]]


def test_rows_that_state_what_they_give_are_run_by_their_second_column(tmp_path):
    lines = [
        "# Title",
        "| a | b |",
        "|---|---|",
        "| `x` | `y` |",
        "",
        "| theirs | weft | gives |",
        "|---|---|---|",
        "| `n = 0` and `n - 1` | `n = 1`, then `n; n \\| 2` | `3` |",
        "and `x`",
    ]
    (tmp_path / "page.md").write_text("\n".join(lines))
    page = Page(str(tmp_path / "page.md"))
    assert page.program.split("\n")[1:] == [*[""] * 6, "n = 1; n; _is((n | 2), 3)   # 3", ""]
    assert (page.n_rows, page.n_claims) == (1, 1)
    theirs = Page(str(tmp_path / "page.md"), theirs=True)
    assert theirs.program.split("\n")[7] == "n = 0; _is((n - 1), 3)   # 3"


def check(line: str) -> None:
    exec(with_checks(f"# Title\n{line}", "page")[0], {})


@pytest.mark.parametrize(
    "line",
    ["'é', 2     # ('é', 2), which is a tuple", "print(1 + 1)   # 2; printed", "1   # one", "None"],
)
def test_a_true_comment_passes(line):
    check(line)


@pytest.mark.parametrize("line", ["1 + 1   # 3", "print('é' + 'a')   # 'éb'", "1   # 1 and one"])
def test_a_false_comment_fails(line):
    with pytest.raises(AssertionError):
        check(line)
