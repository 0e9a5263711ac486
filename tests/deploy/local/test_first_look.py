"""The state right after `Client()`: all workers are there, and the log is empty."""

from __future__ import annotations

import logging

import pytest

import weft
from tests.deploy.daemons import ROOT, address_of, run, scheduler
from weft.client.insight import cluster_info
from weft.deploy.local.log_level import QuietLogs
from weft.protocol.host.exits import EXIT_REFUSED

KINDS = [{"processes": True}, {"processes": False}]


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
def test_a_client_with_a_cluster_of_its_own_shows_its_workers(options):
    with weft.Client(n_workers=2, threads_per_worker=3, **options) as client:
        assert "workers=2 threads=6" in repr(client)
        assert sum(client.nthreads().values()) == 6


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
async def test_an_asynchronous_client_with_its_own_cluster_shows_its_workers(options):
    async with weft.Client(n_workers=2, asynchronous=True, **options) as client:
        assert "workers=2 " in repr(client)


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
def test_the_first_client_of_a_cluster_shows_its_workers(options):
    with weft.LocalCluster(n_workers=2, **options) as cluster:
        assert len(cluster.workers) == 2
        with weft.Client(cluster) as client:
            assert "workers=2 " in repr(client)


@pytest.mark.slow
def test_a_client_does_not_wait_long_for_workers_that_do_not_come(monkeypatch):
    monkeypatch.setattr(cluster_info, "_MAX_START_S", 0.0)
    with weft.Client(n_workers=1) as client:
        client.wait_for_workers(1, timeout=60)


def test_a_client_does_not_wait_for_a_cluster_without_workers():
    with weft.Client(n_workers=0, processes=False) as client:
        assert "workers=0 " in repr(client)


OWN_CLUSTERS = """
import asyncio, weft
async def main():
    async with weft.Client(asynchronous=True, {options}):
        pass
if __name__ == "__main__":
    weft.Client({options}).close()
    asyncio.run(main())
"""


@pytest.mark.slow
def test_a_client_with_its_own_cluster_says_once_that_a_scheduler_runs(tmp_path):
    with scheduler(folder=tmp_path) as started:
        address = address_of(started)
        done = run(folder=tmp_path, code=OWN_CLUSTERS.format(options=""))
        assert f"a scheduler of yours runs at {address}, and" in done.stderr
        assert f"weft.Client('{address}') joins that one" in done.stderr
        assert done.stderr.count("\n") == 1
        done = run(folder=tmp_path, code=OWN_CLUSTERS.format(options="processes=False"))
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def all_logged(caplog):
    """The records of weft that a program with basicConfig(level=INFO) would show."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    yield lambda: [record for record in caplog.records if record.name.startswith("weft")]
    root.setLevel(level)


def test_a_cluster_in_this_process_is_quiet_in_a_program_that_logs(all_logged):
    with weft.Client(n_workers=1, processes=False) as client:
        client.submit(abs, -1).result()
        assert logging.getLogger("weft").level == logging.WARNING
    assert all_logged() == []
    assert logging.getLogger("weft").level == logging.NOTSET


def test_a_cluster_in_this_process_logs_if_it_is_configured_to(all_logged):
    with weft.Client(n_workers=1, processes=False, silence_logs=False):
        pass
    assert all_logged()


def test_a_level_that_the_user_has_set_stays(all_logged):
    logger = logging.getLogger("weft")
    logger.setLevel(logging.INFO)
    try:
        with weft.Client(n_workers=1, processes=False):
            pass
        assert all_logged()
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(logging.NOTSET)


def test_the_lowest_level_of_the_living_clusters_holds():
    logger = logging.getLogger("weft")
    first, second = QuietLogs(logging.WARNING), QuietLogs(logging.ERROR)
    first.begin()
    second.begin()
    second.begin()
    assert logger.level == logging.WARNING
    first.end()
    assert logger.level == logging.ERROR
    second.end()
    second.end()
    assert logger.level == logging.NOTSET


@pytest.mark.slow
def test_a_file_that_hides_a_module_of_the_standard_library_is_named_and_ends_the_waiting(tmp_path):
    (tmp_path / "mmap.py").write_text("")
    # The program itself, like a notebook, has the right module already.
    code = (
        "import sys; here = sys.path.pop(0); import mmap, queue, weft; sys.path.insert(0, here)\n"
        "print(weft.Client(n_workers=1).submit(abs, -1).result())"
    )
    done = run(code=code, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    # The second is a kind of the first: the call may come after the end.
    assert "CommClosed: " in last or "SchedulerEnded: " in last
    assert f"the file {tmp_path / 'mmap.py'} hides the module mmap of Python's standard" in last


@pytest.mark.slow
def test_weft_worker_names_a_file_that_hides_a_module_of_the_standard_library(tmp_path):
    with scheduler(folder=tmp_path):
        there = tmp_path / "there"
        there.mkdir()
        (there / "mmap.py").write_text("")
        code = "from weft.deploy.cli.command import main; main(['worker', '--nworkers', '1'])"
        env = {"PYTHONPATH": f"{there}:{ROOT}"}
        done = run(code=code, folder=tmp_path, **env)
    assert done.returncode == EXIT_REFUSED
    assert f"cannot join: the file {there / 'mmap.py'} hides the module mmap" in done.stderr


#: Start-up code of a test's interpreters, in which no worker can start.
WITHOUT_MMAP = "import mmap; mmap.mmap = None"
WITHOUT_FAULTHANDLER = "import faulthandler; del faulthandler.enable"
CANNOT_START = "it ended 3 times in a row before it had joined the cluster, each time for the same"


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_waiting_of_a_client_with_their_error(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "sitecustomize.py").write_text(WITHOUT_MMAP)
    code = "import weft; print(weft.Client(n_workers=2).submit(abs, -1).result())"
    done = run(code=code, folder=tmp_path, PYTHONPATH=f"{there}:{ROOT}")
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert f"a worker cannot be started: {CANNOT_START} reason: weft's own code failed" in last
    assert "TypeError: 'NoneType' object is not callable" in last


@pytest.mark.slow
def test_weft_worker_whose_workers_cannot_start_ends_with_their_error(tmp_path):
    with scheduler(folder=tmp_path):
        there = tmp_path / "there"
        there.mkdir()
        (there / "sitecustomize.py").write_text(WITHOUT_FAULTHANDLER)
        done = run("worker", "--nworkers", "2", folder=tmp_path, PYTHONPATH=f"{there}:{ROOT}")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if " cannot join: " in line]
    assert f" cannot join: {CANNOT_START} reason: exit code 1: " in line
    assert "AttributeError: module 'faulthandler' has no attribute 'enable'" in line


@pytest.mark.slow
def test_a_script_s_function_that_multiprocessing_cannot_send_is_explained(tmp_path):
    code = """
import weft
from multiprocessing.reduction import ForkingPickler

def square(x):
    return x * x

def task():
    ForkingPickler.dumps(square)

with weft.Client(processes=False, n_workers=1) as client:
    error = client.submit(task).exception()
    print(*error.__notes__, sep="; ")
    print(client.submit(abs, -1).exception())
"""
    done = run(code=code, folder=tmp_path)
    assert "with processes=False, multiprocessing in a task cannot send" in done.stdout, done.stderr
