"""Ctrl-C, that is the interrupt of a notebook's front end, while a cell waits."""

from __future__ import annotations

import re

import pytest

from tests.deploy.daemons import Daemon
from tests.kernels import kernel  # noqa: F401
from weft.client import Client

pytestmark = pytest.mark.slow

START = """
import os, time, weft
client = weft.Client(n_workers=1, threads_per_worker=1)
gate = os.path.join(client.cluster._directory, "gate")
def waits(x):
    while not os.path.exists(gate):
        time.sleep(0.01)  # workload
    return x
futures = client.map(waits, range(5))
"""
WAITS = {
    "result": "print('now'); futures[0].result()",
    "gather": "print('now'); client.gather(futures)",
    "progress": "print('now'); client.gather(futures, progress=True)",
    "wait": "print('now'); weft.wait(futures)",
    "as_completed": "print('now'); list(weft.as_completed(futures))",
}


def interrupted(kernel, code):  # noqa: F811
    cell = kernel.start(code)
    cell.wait(lambda cell: "now" in cell.stdout)
    kernel.interrupt()
    return cell.wait()


def test_an_interrupt_ends_the_wait_and_the_tasks_go_on(kernel):  # noqa: F811
    kernel.run(START + "weft.client.shell.interrupts.AGAIN_S = 0.0")  # the next one is no second
    for name, code in WAITS.items():
        cell = interrupted(kernel, code)
        assert cell.error is not None, name
        assert cell.error[0] == "KeyboardInterrupt"
        expected = "1 task is" if name == "result" else "5 tasks are"
        assert f"weft: interrupted; {expected} not done and continue" in cell.stderr, name
        # The cell, and the function of weft that it has called.
        assert len(re.findall(r"^(?:Cell In|File )", cell.error[1], re.MULTILINE)) == 2, name
        assert len(cell.error[1].splitlines()) < 30, name
    kernel.run("open(gate, 'w').close()")
    assert kernel.value("client.gather(futures)") == "[0, 1, 2, 3, 4]"
    kernel.run("client.close()")


def test_a_second_interrupt_soon_after_it_cancels_the_tasks(kernel, wait_until):  # noqa: F811
    kernel.run(START + "weft.client.shell.interrupts.AGAIN_S = 60.0")  # for a busy machine
    interrupted(kernel, WAITS["gather"])
    cell = interrupted(kernel, WAITS["wait"])  # in another wait
    assert "5 tasks are cancelled" in cell.stderr
    assert kernel.value("{f.status for f in futures}") == "{'cancelled'}"
    kernel.run("futures = client.map(waits, range(10, 15))")
    interrupted(kernel, WAITS["gather"])

    def is_cancelled():
        kernel.interrupt()  # while it is idle, when kernels ignore signals as a rule
        return kernel.value("{f.status for f in futures}") == "{'cancelled'}"

    wait_until(is_cancelled, 60)
    kernel.run("open(gate, 'w').close()")
    kernel.run("client.close()")


def test_a_restart_and_a_kill_of_the_kernel_leave_no_process(kernel, wait_until):  # noqa: F811
    kernel.run(START)
    before = kernel.descendants()
    assert len(before) >= 3
    kernel.restart()
    wait_until(lambda: not any(process.is_running() for process in before), 30)
    kernel.run(START)
    before = kernel.descendants()
    kernel.kill()
    wait_until(lambda: not any(process.is_running() for process in before), 30)


def test_a_kernel_that_is_lost_releases_what_it_wanted_of_a_cluster_elsewhere(
    kernel,  # noqa: F811
    tmp_path,
    wait_until,
):
    file = str(tmp_path / "cluster.json")
    options = ("--port", "0", "--connection-file", file, "--client-lease", "1s")
    scheduler = Daemon("scheduler", *options, folder=tmp_path)
    worker = None
    try:
        scheduler.wait_for("cluster.json")
        worker = Daemon("worker", "--nworkers", "1", "--connection-file", file, folder=tmp_path)
        start = f"import weft; client = weft.Client(connection_file={file!r}, name='kernel')\n"
        start += "future = client.submit(abs, -1, key='wanted'); future.result()"
        with Client(connection_file=file, name="test") as client:

            def is_released():
                names = client.scheduler_info()["clients"]
                return "kernel" not in names and not client.who_has(["wanted"])["wanted"]

            for end in (kernel.restart, kernel.kill):
                kernel.run(start)
                assert client.who_has(["wanted"])["wanted"]
                end()
                wait_until(is_released, 60)
    finally:
        for daemon in filter(None, (worker, scheduler)):
            daemon.stop()
