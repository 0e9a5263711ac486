"""The example notebooks of docs/notebooks, run in a real kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import environment, kernel  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_two_examples_and_none_has_outputs():
    assert [path.stem for path in NOTEBOOKS] == ["analysis", "quickstart"]
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs"), f"{path.name}: clear its outputs"
            assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_an_example_run(kernel, path, wait_until):  # noqa: F811
    outputs = []
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            done = kernel.run("".join(cell["source"]))
            outputs.append(done)
            assert "Warning" not in done.stderr
    shown = "\n".join(output.stdout + output.stderr for output in outputs)
    shown += "\n".join(text for output in outputs for text in output.displayed("text/plain"))
    expected = {
        "quickstart": ["332833500", "working on 2", "done with 0", "[4, 9, 16, 81, 256]", "closed"],
        "analysis": ["40 tasks of load done", "within two errors", "of 40 stations get warmer"],
    }
    for text in expected[path.stem]:
        assert text in shown
    wait_until(lambda: not kernel.descendants(), 30)


#: In a process of its own, because nbclient leaves sockets behind.
NBCLIENT = """
import sys
import nbclient, nbformat
from jupyter_client.manager import AsyncKernelManager

read, written, connection = sys.argv[1:]
manager = AsyncKernelManager(kernel_name="python3", transport="ipc", connection_file=connection)
client = nbclient.NotebookClient(nbformat.read(read, as_version=4), km=manager, timeout=120)
nbformat.write(client.execute(), written)
"""


@pytest.mark.slow
def test_an_example_runs_as_nbconvert_runs_it(tmp_path):
    """By nbclient, which takes no more outputs of a cell that has ended."""
    pytest.importorskip("nbclient", reason="nbclient is missing: pip install nbclient")
    (path,) = [path for path in NOTEBOOKS if path.stem == "quickstart"]
    written = tmp_path / "done.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", NBCLIENT, path, written, tmp_path / "kernel.json"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(written.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    streams = "".join("".join(output.get("text", "")) for output in outputs)
    assert "working on 2\n" in streams
    assert "done with 0" in streams
    pages = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert any("1000 tasks of square done" in page for page in pages)
