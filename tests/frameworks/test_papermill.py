"""papermill on a cluster: its own tests, and what its users notice when something goes wrong."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.frameworks.hosts import ended, required, run, started

pytestmark = pytest.mark.slow

#: Of papermill's own tests: two that put a mock in the place of what the worker uses, and one that
#: fails with its own engine, too (papermill 2.7, IPython 9).
NOT_RUN = "not start_timeout and not TestBrokenNotebook2"
ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture(autouse=True)
def papermill():
    return required("papermill", "papermill")


def write_notebook(path, *sources):
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{i}",
            "metadata": {"tags": ["parameters"] if i == 0 else []},
            "outputs": [],
            "source": source,
        }
        for i, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    path.write_text(json.dumps({**document, "nbformat_minor": 5}), encoding="utf-8")


def command(*arguments):
    """Return the command of papermill, by the engine that the entry point of weft registers."""
    return [
        sys.executable,
        "-m",
        "papermill",
        "in.ipynb",
        "out.ipynb",
        "--engine",
        "weft",
        *arguments,
    ]


def outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(o.get("text", "")) for cell in cells for o in cell.get("outputs", ())]


def test_tests_of_papermill_itself_pass(tmp_path):
    import papermill

    folder = Path(papermill.__file__).parent / "tests"
    if not folder.is_dir():
        pytest.skip("this papermill has come without its tests: pip install papermill")
    options = ["-q", "-p", "tests.frameworks.papermill_suite", "-k", NOT_RUN]
    options += ["--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-p", "no:xdist"]
    files = [str(folder / "test_execute.py"), str(folder / "test_autosave.py")]
    code, printed = run(
        [sys.executable, "-m", "pytest", *options, *files], tmp_path, PYTHONPATH=ROOT
    )
    assert code == 0, printed
    assert " passed" in printed


def test_a_notebook_runs_on_a_worker_by_the_command_with_parameters_and_in_its_folder(tmp_path):
    (tmp_path / "data.txt").write_text("7")
    write_notebook(
        tmp_path / "in.ipynb",
        "x = 1",
        "import os\nprint(x, open('data.txt').read(), os.environ.get('WEFT_WORKER', 'worker'))",
    )
    code, printed = run(command("-p", "x", "5"), tmp_path)
    assert code == 0, printed
    assert outputs(tmp_path / "out.ipynb") == ["5 7 worker\n"]


def test_a_failed_cell_is_shown_and_saved_with_its_traceback(tmp_path):
    write_notebook(tmp_path / "in.ipynb", "x = 0", "print('before')", "1 / x", "print('after')")
    code, printed = run(command(), tmp_path)
    assert code != 0
    assert "PapermillExecutionError" in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert "before\n" in outputs(tmp_path / "out.ipynb")
    assert "after\n" not in outputs(tmp_path / "out.ipynb")


def test_a_notebook_whose_worker_is_killed_runs_again(tmp_path):
    write_notebook(
        tmp_path / "in.ipynb",
        "import os, signal",
        "if not os.path.exists('once'):\n"
        "    open('once', 'w').close()\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "print('survived')",
    )
    code, printed = run(command(), tmp_path)
    assert code == 0, printed
    assert outputs(tmp_path / "out.ipynb") == ["survived\n"]


def test_ctrl_c_ends_the_notebook_and_leaves_what_has_run(tmp_path):
    write_notebook(
        tmp_path / "in.ipynb",
        "print('first')",
        "import time\nopen('begun', 'w').close()\ntime.sleep(600)  # workload",
    )
    process = started(command("--no-progress-bar"), tmp_path)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, ended(process)
    process.send_signal(signal.SIGINT)
    code, printed = ended(process)
    assert code != 0
    assert "Abort" in printed or "KeyboardInterrupt" in printed
    assert outputs(tmp_path / "out.ipynb") == ["first\n"]
