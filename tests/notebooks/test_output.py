"""Lines that tasks print and log appear in the cell, once."""

from __future__ import annotations

import pytest

from tests.deploy.daemons import Daemon
from tests.kernels import kernel  # noqa: F401

pytestmark = pytest.mark.slow

TASK = """
def talks(x):
    import logging, sys, warnings
    print("printed", x)
    print("an error", x, file=sys.stderr)
    warnings.warn(f"warned {x}")
    log = logging.getLogger("my.lib")
    log.debug("debug %s", x)
    log.info("info %s", x)
    log.warning("warning %s", x)
    print("no end", x, end="")
    return x
"""
START = "import weft; client = weft.Client(n_workers=1, threads_per_worker=1, name='me')" + TASK


def test_output_of_tasks_appears_in_the_cell_that_waits_and_not_in_the_terminal(kernel):  # noqa: F811
    kernel.run(START)
    cell = kernel.run("client.submit(talks, 1).result()")
    worker = kernel.value("client.cluster.name").strip("'") + "-0"
    assert cell.stdout == f"({worker}) printed 1\n({worker}) no end 1\n"
    assert f"({worker}) an error 1\n" in cell.stderr
    assert "UserWarning: warned 1" in cell.stderr
    assert f"({worker}) warning 1" in cell.stderr  # as logging shows it without configuration
    assert "info 1" not in cell.stderr
    assert kernel.terminal == ""
    # The level of the program is followed, also when it changes, and its format is used.
    kernel.run(
        "import logging, sys; logging.basicConfig(level=logging.INFO, stream=sys.stdout, "
        "format='%(levelname)s/%(name)s/%(message)s')"
    )
    cell = kernel.run(
        "import time\n"
        "def logs(x): import logging; logging.getLogger('my.lib').info('info %s', x)\n"
        "deadline = time.monotonic() + 60\n"
        "import io\n"
        "class Seen(logging.Handler):\n"
        "    n = 0\n"
        "    def emit(self, record): Seen.n += 1\n"
        "logging.getLogger('my.lib').addHandler(Seen())\n"
        "while not Seen.n and time.monotonic() < deadline:\n"
        "    client.submit(logs, 2, pure=False).result()\n"
    )
    assert f"INFO/my.lib/({worker}) info 2\n" in cell.stdout
    cell = kernel.run("client.submit(talks, 3).result()")
    assert f"INFO/my.lib/({worker}) info 3\n" in cell.stdout
    assert "debug 3" not in cell.stdout
    assert kernel.terminal == ""
    kernel.run("client.close()")


def test_output_can_be_switched_off_and_then_goes_where_it_went_before(kernel):  # noqa: F811
    kernel.run(START.replace("name='me'", "forward_output=False"))
    cell = kernel.run("client.submit(talks, 1).result()")
    cell.wait(lambda cell: "printed 1" in cell.stdout)  # by way of the terminal's descriptor
    assert "(" not in cell.stdout
    kernel.run("client.close()")


def test_many_lines_are_counted_and_not_shown(kernel):  # noqa: F811
    kernel.run(START)
    cell = kernel.run(
        "def floods():\n    for i in range(500): print('line', i)\nclient.submit(floods).result()"
    )
    cell.wait(lambda cell: " more\n" in cell.stdout)
    assert cell.stdout.count("line") <= 200
    kernel.run("client.close()")


def test_a_cluster_without_processes_logs_nothing_of_weft_at_the_level_of_the_program(kernel):  # noqa: F811
    kernel.run("import logging; logging.basicConfig(level=logging.INFO)")
    kernel.run("import weft; client = weft.Client(processes=False, n_workers=1)" + TASK)
    cell = kernel.run("client.submit(talks, 1).result(); client.close()")
    assert cell.stdout == "printed 1\nno end 1"
    assert "INFO:my.lib:info 1" in cell.stderr
    assert "weft" not in cell.stderr


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def test_workers_of_another_terminal_send_their_output_and_keep_it(kernel, folder):  # noqa: F811
    file = str(folder / "cluster.json")
    scheduler = Daemon("scheduler", "--port", "0", "--connection-file", file, folder=folder)
    worker = None
    try:
        scheduler.wait_for("cluster.json")
        options = ("--name", "far", "--nworkers", "1", "--connection-file", file)
        worker = Daemon("worker", *options, folder=folder, PYTHONWARNINGS="default")
        kernel.run(f"import weft; client = weft.Client(connection_file={file!r})" + TASK)
        cell = kernel.run("client.submit(talks, 1).result()")
        assert cell.stdout == "(far) printed 1\n(far) no end 1\n"
        worker.wait_for("printed 1")
        kernel.run("client.close()")
        cell = kernel.run(
            f"client = weft.Client(connection_file={file!r}, forward_output=False)\n"
            "client.submit(talks, 2).result(); client.close()"
        )
        worker.wait_for("printed 2")
        assert cell.stdout == cell.stderr == ""
    finally:
        for daemon in filter(None, (worker, scheduler)):
            daemon.stop()
