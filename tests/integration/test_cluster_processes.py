"""Real processes and real kills, as a user of a whole cluster sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

import weft
from tests.deploy.daemons import ROOT, address_of, daemon, file_of, gone, run, scheduler

pytestmark = pytest.mark.slow

MAIN_JOB = """
import weft

def inc(x):
    return x + 1

with weft.Client(n_workers=2{options}) as client:
    futures = client.map(inc, range(1000))
    total = client.submit(lambda *xs: sum(xs), *futures)
    big = client.submit(bytes, 5_000_000)
    assert len(big.result()) == 5_000_000
    assert sorted(r for _, r in weft.as_completed(futures, with_results=True))[-1] == 1000
    print(total.result())
"""


@pytest.mark.parametrize("options", ["", ", protocol='tcp'", ", processes=False"])
def test_a_clean_start_run_and_stop_prints_nothing(tmp_path, options):
    done = run(folder=tmp_path, code=MAIN_JOB.format(options=options))
    assert (done.stdout, done.stderr, done.returncode) == ("500500\n", "", 0)


def test_a_program_that_closes_nothing_ends_clean(tmp_path):
    code = "import weft\nc = weft.Client(n_workers=1)\nprint(c.submit(abs, -1).result())"
    done = run(folder=tmp_path, code=code)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def test_workers_may_open_as_many_files_as_they_are_allowed_to(tmp_path):
    code = (
        "import resource, weft\n"
        "files = resource.RLIMIT_NOFILE\n"
        "def limit(): return resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n"
        "if __name__ == '__main__':\n"
        "    resource.setrlimit(files, (512, resource.getrlimit(files)[1]))\n"
        "    with weft.Client(n_workers=1) as c:\n"
        "        print(*c.run(limit).values(), limit())"
    )
    done = run(folder=tmp_path, code=code)
    of_worker, own = map(int, done.stdout.split())
    assert of_worker > own == 512, done.stderr


def test_the_output_of_tasks_is_shown(tmp_path):
    code = (
        "import sys, weft\n"
        "with weft.Client(n_workers=1) as c:\n"
        "    c.submit(print, 'to stdout', flush=True).result()\n"
        "    c.submit(lambda: print('to stderr', file=sys.stderr, flush=True)).result()\n"
    )
    done = run(folder=tmp_path, code=code)
    assert (done.stdout, done.stderr, done.returncode) == ("to stdout\n", "to stderr\n", 0)


CLIENT_THAT_WAITS = """
import sys, time, weft
client = weft.Client(n_workers=2)
client.wait_for_workers(2)
futures = client.map(pow, [3, 5], [10**9, 10**9]) if sys.argv[1] == "busy" else []
print("running", flush=True)
time.sleep(600)  # workload
"""


@pytest.mark.parametrize("what", ["idle", "busy"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_client_leaves_no_process_and_no_file_behind(
    short_folder, what, number, wait_until
):
    with daemon(
        what, folder=short_folder, code=CLIENT_THAT_WAITS, TMPDIR=str(short_folder)
    ) as client:
        client.wait_for("running")
        family = client.family()
        assert len(family) == 6  # scheduler, spawner, supervisor, two workers
        assert list(short_folder.glob("weft-*"))
        client.process.send_signal(number)
        client.process.wait(30)
        wait_until(lambda: gone(family), 30)
        wait_until(lambda: not list(short_folder.glob("weft-*")), 30)


def test_ctrl_c_reaches_the_client_and_not_its_workers(short_folder):
    """As a terminal does it: SIGINT for the whole process group of the client."""
    code = """
import threading, weft
client = weft.Client(n_workers=2)
client.wait_for_workers(2)
for i in range(2):
    try:
        # First: an interrupt in the midst of the imports that this needs is the interpreter's.
        future = client.submit(lambda: threading.Event().wait(600))
        print("waits", flush=True)
        future.result()
    except KeyboardInterrupt:
        print(sum(client.gather(client.map(abs, range(100)))), flush=True)
client.close()
"""
    with daemon(folder=short_folder, code=code) as client:
        client.wait_for("waits\n")
        family = client.family()
        assert len(family) == 6
        os.killpg(client.process.pid, signal.SIGINT)
        client.wait_for("waits\n", 2)
        assert client.family() == family
        os.killpg(client.process.pid, signal.SIGINT)
        assert client.process.wait(30) == 0
        assert client.out == "waits\n4950\nwaits\n4950\n"
        assert client.err == ""
        assert gone(family)


def test_a_killed_scheduler_ends_its_embedded_cluster(short_folder, wait_until):
    with weft.LocalCluster(n_workers=2, silence_logs=50) as cluster:
        cluster.wait_for_workers(timeout=30)
        roots = [cluster._scheduler.process.pid, cluster._workers.process.pid]
        family = [psutil.Process(roots[1]), *psutil.Process(roots[1]).children(recursive=True)]
        os.kill(roots[0], signal.SIGKILL)
        wait_until(lambda: gone(family), 30)


# The blocker is in place before weft is imported, and the process is the real command.
BLOCKED_SCHEDULER = """
import sys

class Blocker:
    names = {"pickle", "_pickle", "cloudpickle", "multiprocessing", "tornado", "dill"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")

assert not Blocker.names & set(sys.modules), Blocker.names & set(sys.modules)
sys.meta_path.insert(0, Blocker())
from weft.deploy.cli.command import main
import atexit
atexit.register(lambda: print("blocked to the end:", not Blocker.names & set(sys.modules)))
main(["scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0"])
"""


def test_a_scheduler_without_pickle_serves_everything(tmp_path):
    with daemon(folder=tmp_path, code=BLOCKED_SCHEDULER) as started:
        started.wait_for("status page ")
        with daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=tmp_path) as workers:
            workers.wait_for("registered", 2)
            with weft.Client(connection_file=file_of(started)) as client:
                assert client.submit(lambda x: x + 1, 1).result(timeout=30) == 2
                futures = client.map(lambda x: x * 2, range(2000))
                assert client.gather(futures) == [2 * x for x in range(2000)]
                assert client.submit(lambda *xs: sum(xs), *futures).result(timeout=30) == 3998000

                def fail():
                    raise ValueError("from the task")

                with pytest.raises(ValueError, match="from the task"):
                    client.submit(fail).result(timeout=30)
                big = client.map(bytes, [3_000_000] * 4)
                joined = client.submit(lambda *p: sum(map(len, p)), *big)
                assert joined.result(timeout=30) == 12_000_000
                assert [len(b) for b in client.gather(big)] == [3_000_000] * 4
        assert started.stop() == 0
        assert "blocked to the end: True" in started.out
        assert "WARNING" not in started.err
        assert "ERROR" not in started.err


def test_a_client_finds_a_cluster_by_file_environment_and_address(tmp_path, monkeypatch):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path) as worker,
    ):
        worker.wait_for("registered")
        path = file_of(started)
        with weft.Client(connection_file=path) as client:
            assert client.submit(abs, -1).result(timeout=30) == 1
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
        with weft.Client(address_of(started)) as client:
            assert client.submit(abs, -2).result(timeout=30) == 2
        monkeypatch.setenv("WEFT_CONNECTION_FILE", str(path))
        with weft.Client() as client:
            assert client.scheduler_address == address_of(started)
            assert client.submit(abs, -3).result(timeout=30) == 3


def test_a_worker_of_the_command_line_that_is_killed_comes_back(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        with weft.Client(connection_file=file_of(started)) as client:
            pid = client.submit(os.getpid).result(timeout=30)
            future = client.map(lambda x: x + 1, range(5000))
            os.kill(pid, signal.SIGKILL)
            assert client.gather(future, timeout=60) == list(range(1, 5001))
            workers.wait_for("registered", 3)
            client.wait_for_workers(2, timeout=30)
        assert "killed by SIGKILL" in started.wait_for("killed by SIGKILL")


WORKERS_THAT_DIE_AT_ONCE = """
import logging, os, sys
from weft.protocol.trust import finding
from weft.worker.family import spawn
from weft.worker.family.config import SupervisorConfig, WorkerSpec
from weft.worker.family.supervisor import supervise
logging.basicConfig(level="INFO")
found = finding.find(sys.argv[1], None, os.environ)
config = SupervisorConfig(
    find=lambda: (found.addresses, found.to_security()),
    workers=[WorkerSpec("w", 0, {})],
    directory=os.getcwd(),
)
# No reason of its own to end, which the next one would have, too: that would end the family.
killed = lambda plain: os.kill(os.getpid(), 9)
sys.exit(spawn.run(lambda commands: supervise(config, commands), killed))
"""


def test_workers_that_die_at_once_are_started_again_less_and_less_often(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon(str(file_of(started)), folder=tmp_path, code=WORKERS_THAT_DIE_AT_ONCE) as workers,
    ):
        workers.wait_for("is started again in 0.8 s")
        lines = [line for line in workers.err.splitlines() if " again" in line]
        assert [line.split("again")[1] for line in lines[:4]] == [
            "",
            *(f" in 0.{n} s" for n in (2, 4, 8)),
        ]
        assert all("killed by SIGKILL" in line for line in lines)
        # One warning for all, in each process; the others are counted.
        assert [line.split(":")[0] for line in lines[:3]] == ["WARNING", "INFO", "INFO"]
        workers.wait_for(" more times in ")
        started.wait_for("killed by SIGKILL", 2)
        assert workers.stop() == 0


def test_each_line_of_a_log_for_programs_is_an_object(tmp_path):
    """Those of the scheduler's processes, and of the supervisor and its workers."""
    with (
        scheduler("--log-format", "json", folder=tmp_path) as started,
        daemon("worker", folder=tmp_path, WEFT_LOG_FORMAT="json") as workers,
    ):
        workers.wait_for("registered")
        with weft.Client(connection_file=file_of(started)) as client:
            log = "import logging; logging.getLogger('user').warning('said by a task')"
            client.submit(exec, log).result(30)
        workers.wait_for("said by a task")
        assert workers.stop() == started.stop() == 0
    for program in (started, workers):
        lines = [json.loads(line) for line in program.err.splitlines()]
        assert {"weft.scheduler", "weft.worker"} & {line["logger"] for line in lines}
    assert "user" in {line["logger"] for line in lines}


@pytest.mark.parametrize("who", ["spawner", "supervisor"])
def test_killed_workers_of_the_command_line_leave_no_orphans(tmp_path, who, wait_until):
    with (
        scheduler(folder=tmp_path),
        daemon("worker", "--nworkers", "2", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        family = workers.family()
        supervisor = min(family[1:], key=lambda process: process.create_time())
        (family[0] if who == "spawner" else supervisor).kill()
        workers.process.wait(30)
        wait_until(lambda: gone(family), 30)


def test_a_second_signal_does_not_wait_for_running_tasks(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered")
        with weft.Client(connection_file=file_of(started)) as client:
            future = client.submit(pow, 3, 10**9)
            family = workers.family()
            workers.process.send_signal(signal.SIGTERM)
            workers.wait_for("supervisor stops")
            assert workers.stop() == 0
            assert gone(family)
            client.cancel(future)


def test_a_process_of_the_command_ends_by_itself_when_stdout_is_closed(tmp_path):
    """A scheduler whose output cannot be written must not die of that."""
    read, write = os.pipe()
    env = os.environ | {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "weft", "scheduler", "--port", "0", "--no-dashboard"]
    with subprocess.Popen(
        command, stdout=write, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path
    ) as process:
        os.close(write)
        line = os.read(read, 10)
        assert line.startswith(b"scheduler")
        os.close(read)
        process.terminate()
        assert process.wait(30) == 0
