"""Isolated tasks use actors, gangs, locks, queues, events and programs as other tasks do."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, scheduler
from weft.client.in_tasks import _TaskEngine
from weft.client.shell.engine import Engine
from weft.protocol.errors import AllotmentExceeded
from weft.protocol.host.blocking import gate_here

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=2, isolate=True) as cluster,
        weft.Client(cluster) as client,
    ):
        yield client


class Counter:
    def __init__(self):
        self.n = 0

    def add(self, n):
        self.n += n
        return self.n

    def pid(self):
        return os.getpid()


def test_a_task_calls_an_actor_that_it_is_given(client):
    actor = client.submit(Counter, actor=True).result(60)

    def add(actor, n):
        return actor.add(n).result(), actor.pid().result() != os.getpid()

    assert client.submit(add, actor, 2, pure=False).result(60) == (2, True)
    assert client.submit(add, actor, 3, pure=False).result(60) == (5, True)
    assert actor.n == 5


def test_a_task_makes_an_actor(client):
    def use():
        actor = weft.get_client().submit(Counter, actor=True).result()
        return [actor.add(1).result() for _ in range(3)]

    assert client.submit(use, pure=False).result(60) == [1, 2, 3]


def test_an_actor_calls_tasks_and_waits_for_them(client):
    class Caller:
        def total(self, n):
            futures = weft.get_client().map(lambda i: (i, os.getpid()), range(n), pure=False)
            found = weft.get_client().gather(futures)
            return sum(i for i, _ in found), os.getpid() in {pid for _, pid in found}

    actor = client.submit(Caller, actor=True).result(60)
    assert actor.total(5).result(60) == (10, False)


def test_a_gang_meets_and_reaches_all_members(client):
    def meet():
        gang = weft.get_gang()
        all_here = weft.CountDown(f"{gang.name}-here", gang.size)
        all_here.count_down()
        all_here.wait(timeout=60)
        return gang.rank, gang.size, weft.get_worker().key

    found = client.gather(client.submit_gang(meet, 4))
    assert [(rank, size) for rank, size, _ in found] == [(rank, 4) for rank in range(4)]


def test_the_crash_of_one_ends_its_gang(client):
    def meet():
        if weft.get_gang().rank == 1:
            os._exit(3)
        weft.Event("never set").wait()

    futures = client.submit_gang(meet, 3)
    weft.wait(futures, timeout=60)
    assert isinstance(futures[1].exception(), weft.WorkerDied)
    assert isinstance(futures[0].exception(), weft.GangEnded)
    assert isinstance(futures[2].exception(), weft.GangEnded)


def test_tasks_coordinate(client):
    def change(_):
        with weft.Lock("isolated-lock"):
            counted = weft.Variable("isolated-counter")
            n = counted.get(timeout=60)
            counted.set(n + 1)
        weft.Queue("isolated-queue").put(n)
        with weft.Semaphore(2, name="isolated-places"):
            return n

    weft.Variable("isolated-counter", client=client).set(0)
    assert sorted(client.gather(client.map(change, range(20), pure=False))) == [*range(20)]
    queue = weft.Queue("isolated-queue", client=client)
    assert sorted(queue.get(timeout=60) for _ in range(20)) == [*range(20)]


def test_a_task_that_waits_for_an_event_gives_its_thread_up(client):
    def wait_for_it():
        return weft.Event("isolated-event").wait(timeout=60)

    def set_it():
        weft.Event("isolated-event").set()

    waiting = [client.submit(wait_for_it, pure=False) for _ in range(6)]
    client.submit(set_it, pure=False).result(60)
    assert client.gather(waiting) == [True] * 6


def test_a_lock_of_a_task_that_crashes_is_free_after_the_lease_of_its_client(short_folder):
    def crash():
        weft.Lock("isolated-crash").acquire()
        os._exit(3)

    with (
        scheduler("--client-lease", "1s", folder=short_folder) as started,
        daemon("worker", "--isolate", folder=short_folder),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        assert client.submit(crash, pure=False).exception(60)
        assert weft.Lock("isolated-crash").acquire(timeout=60) is True


def test_a_task_waits_for_the_first_of_many(client):
    def first():
        futures = weft.get_client().map(lambda i: i * i, range(10))
        return sorted(future.result() for future in weft.as_completed(futures))

    assert client.submit(first, pure=False).result(60) == [i * i for i in range(10)]


def test_futures_pass_between_isolated_tasks(client):
    def make():
        return weft.get_client().submit(list, "abc", pure=False)

    inner = client.submit(make, pure=False).result(60)
    assert client.submit(lambda values: values[::-1], inner).result(60) == ["c", "b", "a"]


def test_futures_in_a_result_live_as_long_as_it_does(client):
    def make():
        return [weft.get_client().submit(list, "abc", pure=False) for _ in range(3)]

    made = [client.submit(make, pure=False) for _ in range(4)]
    weft.wait(made)
    client.gather(client.map(abs, range(100), pure=False))  # so that all children run others
    for one in made:
        assert client.gather(one.result(60)) == [["a", "b", "c"]] * 3


def test_a_task_scatters_what_others_read(client):
    def scatter():
        return weft.get_client().scatter(b"x" * 3_000_000)

    data = client.submit(scatter, pure=False).result(60)
    assert client.submit(len, data, pure=False).result(60) == 3_000_000


def test_a_program_runs_as_an_isolated_task(client, tmp_path):
    done = client.submit(weft.Command(["sh", "-c", "echo isolated"]), pure=False).result(60)
    assert "isolated" in done.stdout


def test_a_task_that_waits_for_others_is_cancelled(client, tmp_path, wait_until):
    def wait_for_another(folder):
        try:
            (folder / "begun").touch()  # the interrupt may come with it
            weft.get_client().submit(time.sleep, 1000, pure=False).result()  # workload
        finally:
            (folder / "ended").touch()

    future = client.submit(wait_for_another, tmp_path, pure=False)
    wait_until((tmp_path / "begun").exists)
    future.cancel(running=True)
    wait_until((tmp_path / "ended").exists)


def test_no_interrupt_comes_while_a_task_submits_or_gives_up_a_future(client):
    def look():
        open_gates = []

        class Looking(Engine):
            def post_submission(self, operation):
                open_gates.append(gate_here().is_open)
                super().post_submission(operation)

            def post_later(self, operation):
                open_gates.append(gate_here().is_open)
                super().post_later(operation)

        own = weft.get_client()
        bases = _TaskEngine.__bases__
        _TaskEngine.__bases__ = (Looking,)
        try:
            own.submit(abs, -1, pure=False).release()
            return open_gates, gate_here().is_open
        finally:
            _TaskEngine.__bases__ = bases

    assert client.submit(look, pure=False).result(60) == ([False, False], True)


def test_a_running_task_is_told_of_its_worker_s_key_and_attempt(client):
    def look():
        worker = weft.get_worker()
        return worker.key, worker.attempt > 0, worker.name, weft.get_current_task()

    future = client.submit(look, pure=False, key="looked")
    key, has_attempt, name, current = future.result(60)
    assert (key, has_attempt, current) == ("looked", True, "looked")
    assert name in {facts["name"] for facts in client.scheduler_info()["workers"].values()}


#: Prints its folder, and takes some memory.
FILLS = "import os, sys; held = bytearray(b'1') * int(sys.argv[1]); print(os.getcwd(), flush=True)"


def test_a_program_has_its_own_numbers(client):
    program = weft.Command([sys.executable, "-c", FILLS, "90000000"])
    future = client.submit(program, pure=False)
    assert future.result(60).returncode == 0
    used = future.measured()
    assert used.peak_rss > 90_000_000
    assert not used.is_shared


def test_a_program_that_needs_more_than_its_category_may_is_ended(client):
    category = weft.Category("isolated-programs", max_memory="50MB")
    code = f"{FILLS}; import time; time.sleep(1000)"
    program = weft.Command([sys.executable, "-c", code, "200000000"])
    error = client.submit(program, category=category, pure=False).exception(60)
    assert isinstance(error, AllotmentExceeded)
    assert error.used_nbytes > 50_000_000


def test_the_folder_of_a_program_goes_when_its_task_crashes(client, tmp_path, wait_until):
    def run(path):
        program = (
            f"{FILLS}; open(sys.argv[2], 'w').write(os.getcwd()); import time; time.sleep(1000)"
        )
        threading.Thread(target=crash_after, args=(path,)).start()
        weft.Command([sys.executable, "-c", program, "1", str(path)])()

    def crash_after(path):
        while not (path.exists() and path.read_text()):
            time.sleep(0.01)  # workload
        os._exit(3)

    path = tmp_path / "folder"
    assert isinstance(client.submit(run, path, pure=False).exception(60), weft.WorkerDied)
    folder = path.read_text()
    assert folder.startswith("/")
    wait_until(lambda: not os.path.exists(folder))
