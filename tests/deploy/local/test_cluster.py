from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

import weft
from tests.deploy.daemons import gone, run
from tests.protocol.transport_kit import End
from weft.client.shell.loop import LoopThread
from weft.deploy.local.cluster import LocalCluster
from weft.deploy.processes.child import Child, ChildFailed, Parent
from weft.protocol.errors import CommClosed, ConfigError
from weft.protocol.net.transport import connect
from weft.protocol.wire.messages import RegisterWorker
from weft.protocol.wire.roles import Role

KINDS = [
    {"processes": True},
    {"processes": True, "protocol": "tcp"},
    {"processes": False, "threads_per_worker": 2},
]


def family_of(cluster):
    """Return all processes of a cluster."""
    roots = [psutil.Process(child.process.pid) for child in (cluster._scheduler, cluster._workers)]
    return [*roots, *(p for root in roots for p in root.children(recursive=True))]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_workers": -1}, "n_workers: -1"),
        ({"n_workers": "2"}, "n_workers: '2'"),
        ({"n_workers": 10**6}, "n_workers: 1000000 is not a whole number from 0 to 4096"),
        ({"threads_per_worker": 0}, "threads_per_worker: 0"),
        ({"memory_limit": "lots"}, "memory_limit: 'lots'"),
        ({"protocol": "udp"}, "protocol: 'udp'"),
        ({"protocol": "tcp", "processes": False}, "protocol: 'tcp' needs processes=True"),
        ({"host": "0.0.0.0"}, "host: '0.0.0.0' can be reached from other machines"),
        ({"resources": "GPU"}, "resources: 'GPU'"),
        ({"dashboard_address": "nowhere"}, "dashboard_address: 'nowhere'"),
        ({"dashboard_address": ":8787", "processes": False}, "needs processes=True"),
        ({"silence_logs": "loud"}, "silence_logs: 'loud'"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_before_anything_starts(options, words):
    before = psutil.Process().children()
    with pytest.raises(ConfigError) as caught:
        LocalCluster(**options)
    assert words in str(caught.value)
    assert psutil.Process().children() == before


@pytest.mark.parametrize("address", [":0", 0, "127.0.0.1:0"])
def test_any_port_for_pages_that_cannot_be_served_is_a_warning(address, caplog):
    with LocalCluster(n_workers=0, processes=False, dashboard_address=address) as cluster:
        assert cluster.dashboard_link is None
    (text,) = [record.getMessage() for record in caplog.records if "status page" in record.message]
    assert "needs processes=True" in text


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
def test_a_cluster_computes_and_ends(options):
    with LocalCluster(n_workers=2, **options) as cluster:
        assert cluster.status == "running"
        processes = family_of(cluster) if options["processes"] else []
        scheme = cluster.scheduler_address.partition("://")[0]
        assert scheme == (options.get("protocol", "unix") if options["processes"] else "inproc")
        with cluster.get_client() as client:
            cluster.wait_for_workers(2, timeout=30)
            assert client.gather(client.map(abs, range(-3, 0))) == [3, 2, 1]
            big = client.map(bytes, [10**6, 2 * 10**6])
            assert client.submit(lambda *p: sum(map(len, p)), *big).result(timeout=30) == 3 * 10**6
            assert [len(part) for part in client.gather(big)] == [10**6, 2 * 10**6]
            with pytest.raises(ZeroDivisionError):
                client.submit(divmod, 1, 0).result(timeout=30)
        assert len(cluster.workers) == 2
        assert "workers=2" in repr(cluster)
    assert cluster.status == "closed"
    assert gone(processes)
    assert cluster._directory is None
    cluster.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
async def test_an_asynchronous_cluster_computes_and_ends(options):
    async with LocalCluster(n_workers=1, asynchronous=True, **options) as cluster:
        await cluster.wait_for_workers(1, timeout=30)
        async with cluster.get_client() as client:
            assert await client.submit(abs, -1) == 1
        assert [*await cluster.workers] == [*(await cluster.scheduler_info)["workers"]]
        assert len(await cluster.workers) == 1
        assert "await cluster.workers" in repr(cluster.workers)
    awaited = await LocalCluster(n_workers=1, asynchronous=True, **options)
    assert awaited.status == "running"
    await awaited.close()
    assert awaited.status == "closed"


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
async def test_using_a_closed_cluster_raises_an_error_about_that(options):
    cluster = LocalCluster(n_workers=1, **options)
    cluster.close()
    with pytest.raises(CommClosed, match="the LocalCluster was closed") as caught:
        weft.Client(cluster)
    assert type(caught.value) is weft.CommClosed
    cluster = LocalCluster(n_workers=1, asynchronous=True, **options)
    with pytest.raises(ConfigError, match="was not started: await it"):
        await weft.Client(cluster, asynchronous=True)
    await cluster
    await cluster.close()
    with pytest.raises(CommClosed, match="the LocalCluster was closed"):
        await weft.Client(cluster, asynchronous=True)


@pytest.mark.slow
def test_client_without_arguments_starts_a_cluster_of_its_own(monkeypatch):
    monkeypatch.delenv("WEFT_CONNECTION_FILE", raising=False)
    with weft.Client() as client:
        assert client.submit(abs, -1).result(timeout=30) == 1
        assert client.cluster.n_workers >= 1
        processes = family_of(client.cluster)
    assert gone(processes)


@pytest.mark.slow
def test_workers_have_their_own_sessions_and_modest_thread_pools(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "3")
    with LocalCluster(n_workers=1) as cluster, cluster.get_client() as client:
        assert client.submit(os.getsid, 0).result(timeout=30) != os.getsid(0)
        assert client.submit(os.getenv, "OMP_NUM_THREADS").result(timeout=30) == "1"
        assert client.submit(os.getenv, "MKL_NUM_THREADS").result(timeout=30) == "3"
        assert client.submit(os.getcwd).result(timeout=30) == os.getcwd()
        assert client.submit(os.readlink, "/proc/self/fd/0").result(timeout=30) == os.devnull


@pytest.mark.slow
def test_a_task_may_import_what_the_client_can(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from only_here import answer

    with LocalCluster(n_workers=1) as cluster, cluster.get_client() as client:
        assert client.submit(answer).result(timeout=30) == 42


def errors_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


FORKING = """
import faulthandler, os, weft

with weft.Client(n_workers=1) as client:
    cluster = client.cluster
    pid = os.fork()
    if not pid:
        faulthandler.dump_traceback_later(60, exit=True)
        address, security = cluster.scheduler_address, cluster.security
        with weft.Client(address, security=security, set_as_default=False) as own:
            code = own.submit(int, "3").result(30)
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), client.submit(abs, -2).result(30))
"""


#: A thread holds weft's locks of the module level, as it does for moments while it opens a client.
FORKING_WHILE_HELD = """
import faulthandler, os, threading, weft
from weft.client.dask import default as dask_default
from weft.deploy.local import log_level
from weft.graphs.drivers import thread_pools

held, done = threading.Event(), threading.Event()

def hold():
    with dask_default._lock, log_level._lock, thread_pools._lock:
        held.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
pid = os.fork()
if not pid:
    faulthandler.dump_traceback_later(60, exit=True)
    with weft.Client(processes=False, n_workers=1) as own:
        code = own.submit(int, "3").result(30)
    os._exit(code + sum(weft.threaded.get({"x": (int, "0"), "y": (int, "0")}, ["x", "y"])))
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
done.set()
thread.join()
print(code, 2)
"""


ENDING = """
import weft

def traced(cls):
    close = cls._close
    def _close(self, timeout_s):
        if self.status != "closed":
            print(cls.__name__, flush=True)
        close(self, timeout_s)
    cls._close = _close

traced(weft.Client)
traced(weft.LocalCluster)
client = weft.Client(n_workers=1)
"""


@pytest.mark.slow
def test_clients_end_before_their_cluster_at_the_end_of_a_program():
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("Client\nLocalCluster\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("program", [FORKING, FORKING_WHILE_HELD], ids=["idle", "held"])
def test_a_forked_child_makes_a_client_of_its_own(program):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("3 2\n", "", 0)


@pytest.mark.slow
def test_futures_fail_at_once_when_the_scheduler_process_is_killed(caplog, wait_until):
    with LocalCluster(n_workers=1, silence_logs=50) as cluster:
        with cluster.get_client(reconnect_timeout=1e6) as client:
            future = client.submit(abs, -1, workers=["nobody"])
            cluster._scheduler.process.kill()
            with pytest.raises(CommClosed, match=r"cannot come back: .*killed by SIGKILL"):
                future.result(timeout=30)
            for call in (lambda: client.submit(abs, -2), lambda: client.map(abs, [-2])):
                with pytest.raises(CommClosed, match=r"cannot come back: .*killed by SIGKILL"):
                    call()
            assert repr(client).endswith(" has ended: make a new one>")
            assert ": ended, workers=1 " in repr(cluster)
            assert ">ended<" in client._repr_html_()
            assert ">ended<" in cluster._repr_html_()
        wait_until(lambda: errors_in(caplog))
        with pytest.raises(CommClosed, match="killed by SIGKILL"):
            cluster.get_client(timeout=1e6)
    (line,) = errors_in(caplog)
    assert f"the scheduler process of {cluster.name} ended unexpectedly (killed by SIGKILL)" in line


@pytest.mark.slow
def test_futures_fail_at_once_when_the_cluster_is_closed(caplog):
    with LocalCluster(n_workers=1) as cluster:
        client = cluster.get_client(reconnect_timeout=1e6)
        future = client.submit(abs, -1, workers=["nobody"])
    with client, pytest.raises(CommClosed, match="the LocalCluster was closed"):
        future.result(timeout=30)
    assert errors_in(caplog) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "how"),
    [(0, "killed by SIGKILL"), (1, "their supervisor was killed by SIGKILL")],
    ids=["spawner", "supervisor"],
)
@pytest.mark.parametrize("protocol", ["unix", "tcp"])
def test_workers_whose_family_died_are_started_again(victim, how, protocol, caplog, wait_until):
    with LocalCluster(n_workers=1, protocol=protocol, silence_logs=50) as cluster:
        with cluster.get_client() as client:
            assert client.submit(os.getpid).result(timeout=30)
            spawner = psutil.Process(cluster._workers.process.pid)
            family = [spawner, *spawner.children(recursive=True)]
            family[victim].kill()
            wait_until(lambda: gone(family), 30)
            pid = client.submit(os.getpid, pure=False).result(timeout=30)
            assert pid not in [process.pid for process in family]
        directory = cluster._directory
    (line,) = errors_in(caplog)
    assert f"the worker processes of {cluster.name} ended unexpectedly ({how})" in line
    assert not os.path.exists(directory)


@pytest.mark.slow
def test_workers_that_die_repeatedly_fail_the_tasks_that_wait_for_them(caplog, monkeypatch):
    monkeypatch.setattr("weft.deploy.local.watching._MAX_DEATHS", 1)
    monkeypatch.setattr(LocalCluster, "_configure_workers", _configure_and_kill)
    with (
        LocalCluster(n_workers=1, silence_logs=50) as cluster,
        cluster.get_client(reconnect_timeout=1e6) as client,
    ):
        future = client.submit(abs, -1, workers=["nobody"])
        cluster._workers.kill()
        with pytest.raises(CommClosed, match="its worker processes ended 2 times"):
            future.result(timeout=30)
    assert "is given up" in errors_in(caplog)[-1]


_configure = LocalCluster._configure_workers


def _configure_and_kill(cluster, address):
    """Let only the first start succeed."""
    if cluster._watch is None:
        _configure(cluster, address)
    else:
        cluster._workers.kill()


@pytest.mark.slow
@pytest.mark.parametrize("options", KINDS)
def test_a_worker_that_lost_only_its_connection_comes_back(options, wait_until):
    with LocalCluster(n_workers=1, **options) as cluster, cluster.get_client() as client:
        cluster.wait_for_workers(1, timeout=30)
        (there,) = cluster.workers
        loop_thread = cluster.loop_thread or LoopThread()
        if cluster.loop_thread is None:
            loop_thread.start()
        # Another process listens at the worker's address, so the worker has ended.
        loop_thread.run_coroutine(_register_worker(cluster, address=there))
        wait_until(lambda: list(cluster.workers) == [there])
        assert client.submit(abs, -1).result(timeout=30) == 1
        if cluster.loop_thread is None:
            loop_thread.stop()


async def _register_worker(cluster, address):
    end = End()
    connection = await connect(
        cluster.scheduler_address,
        role=Role.WORKER,
        server_role=Role.SCHEDULER,
        security=cluster.security,
        handler=end,
    )
    connection.send(
        [
            RegisterWorker(
                worker_id="impostor",
                name="impostor",
                session=1,
                last_epoch=0,
                address=address,
                nthreads=1,
                memory_limit=0,
                resources={},
                supervisor_id="",
                facts={},
            )
        ]
    )
    await end.got(1)
    connection.close()
    await end.closed()


async def test_a_close_that_is_cancelled_goes_on():
    cluster = await LocalCluster(n_workers=1, processes=False, asynchronous=True)
    embedded = cluster._embedded
    closing = asyncio.ensure_future(cluster.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.wait_for(embedded._scheduler.wait_stopped(), 20)
    await cluster.close()


@pytest.mark.slow
def test_the_token_is_in_memory_only():
    with LocalCluster(n_workers=2) as cluster:
        cluster.wait_for_workers(timeout=30)
        token = cluster.security.token
        processes = family_of(cluster)
        assert len(processes) == 5
        for process in processes:
            for name in ("cmdline", "environ"):
                content = Path(f"/proc/{process.pid}/{name}").read_bytes()
                assert content
                assert token not in content
        directory = Path(cluster._directory)
        assert directory.stat().st_mode & 0o777 == 0o700
        regular = [path for path in directory.rglob("*") if path.is_file()]
        assert [path for path in regular if token in path.read_bytes()] == []


@pytest.mark.slow
def test_the_main_module_is_not_run_again(tmp_path):
    script = tmp_path / "script.py"
    # There is no `if __name__ == "__main__"`, which multiprocessing's spawn would need.
    script.write_text(
        "import weft\n"
        "print('here')\n"
        "client = weft.Client(n_workers=2)\n"
        "print(sum(client.gather(client.map(lambda x: x + 1, range(10)))))\n"
        "client.close()\n"
    )
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    done = run(folder=tmp_path, code=code)
    assert (done.stdout, done.stderr, done.returncode) == ("here\n55\n", "", 0)


@pytest.mark.slow
def test_an_error_of_the_start_carries_the_output_of_the_process():
    child = Child("nonsense")
    with pytest.raises(ChildFailed) as caught:
        child.wait_ready(30)
    child.close()
    assert "exit code 1" in str(caught.value)
    assert "KeyError: 'nonsense'" in str(caught.value)


@pytest.mark.slow
def test_a_child_that_is_not_ready_in_time_is_killed():
    child = Child("scheduler")  # it waits for a configuration that does not come
    with pytest.raises(ChildFailed, match=r"not ready after 0\.1 s"):
        child.wait_ready(0.1)
    assert child.process.returncode == -9
    child.close()


@pytest.mark.slow
def test_a_port_that_is_taken_is_an_error_of_the_caller():
    with LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0") as cluster:
        assert cluster.dashboard_link is not None
        port = urlsplit(cluster.dashboard_link).port
        with pytest.raises(ConfigError, match="cannot serve pages"):
            LocalCluster(n_workers=1, dashboard_address=f"127.0.0.1:{port}")


@pytest.mark.slow
def test_a_forked_copy_of_the_owner_does_not_end_the_cluster():
    with LocalCluster(n_workers=1) as cluster, cluster.get_client() as client:
        pid = cluster._pid
        cluster._pid = -1  # as in a forked process, whose own pid is another one
        cluster.close()
        cluster._pid = pid
        assert client.submit(abs, -1).result(timeout=30) == 1


def test_a_cluster_cannot_be_pickled():
    import pickle

    cluster = LocalCluster(n_workers=1, asynchronous=True)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(cluster)
    with pytest.raises(TypeError, match="async with"), cluster:
        pass
    asyncio.run(cluster._close_async(1.0))


def test_a_child_sees_the_end_of_its_parent_at_once():
    ours, theirs = socket.socketpair()
    parent = Parent(theirs.detach(), os.dup(2))
    assert not parent.is_gone
    ours.sendall(b"{}\n")
    assert not parent.is_gone
    assert parent.read_config() == {}
    assert not parent.is_gone
    ours.close()
    assert parent.is_gone
    parent.close()


BEREAVED = """
import logging, socket, os, sys
from weft.deploy.processes import child
from weft.deploy.scheduler import daemon

ours, theirs = socket.socketpair()
security = {"token": "x" * 32, "cluster_id": "0" * 32, "certificate_pem": None}
config = {"security": security, "address": "tcp://127.0.0.1:0", "options": {}}
config |= {"dashboard_host": "", "dashboard_port": 0, "directory": ""}
ours.sendall(child.json.dumps(config).encode() + b"\\n")

def run(config):
    for text in ("while it lives", "after its end"):
        logging.getLogger("weft.scheduler").warning("a worker is lost %s", text)
        ours.close()
    logging.getLogger("weft.scheduler").error("a fault of ours")

daemon.run_daemon = run
child.Parent.ready = lambda *args, **facts: None
daemon.run_embedded(child.Parent(theirs.detach(), os.dup(2)))
"""


@pytest.mark.slow
def test_a_scheduler_whose_owner_is_gone_does_not_warn_of_the_lost_workers(tmp_path):
    done = run(folder=tmp_path, code=BEREAVED)
    assert "a worker is lost while it lives" in done.stderr
    assert "after its end" not in done.stderr
    assert "a fault of ours" in done.stderr
