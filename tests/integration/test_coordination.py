"""Locks, queues and others while holders are killed and the scheduler is started again."""

from __future__ import annotations

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler

pytestmark = pytest.mark.slow

#: A program that takes a lock and a lease, and a value of a queue, and never gives them back.
HOLDER = """
import sys, threading
import weft

client = weft.Client(connection_file=sys.argv[1])
weft.Lock("critical").acquire()
weft.Semaphore(1, "leases").acquire()
value = weft.Queue("values").get()
weft.Queue("values").qsize()  # its answer shows that the scheduler has read what was taken
print(value, flush=True)
threading.Event().wait()
"""


def test_the_next_holder_follows_a_killed_one_and_what_it_took_is_gone(tmp_path):
    with (
        scheduler("--client-lease", "1", folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        queue = weft.Queue("values")
        queue.put("taken")
        queue.put("left")
        with daemon(str(file_of(started)), folder=tmp_path, code=HOLDER) as holder:
            holder.wait_for("taken")
            lock, semaphore = weft.Lock("critical"), weft.Semaphore(1, "leases")
            assert lock.acquire(blocking=False) is False
            assert semaphore.acquire(timeout=0) is False
            holder.process.kill()
            assert lock.acquire(timeout=60) is True
            assert semaphore.acquire(timeout=60) is True
            assert client.status == "running"
        assert queue.get(batch=True) == ["left"]


#: A program that waits for a value of a queue, and sets an event when it does.
CONSUMER = """
import asyncio, sys
import weft

async def main():
    async with weft.Client(connection_file=sys.argv[1], asynchronous=True):
        await asyncio.gather(weft.Queue("values").get(), weft.Event("it waits").set())

asyncio.run(main())
"""


def test_a_value_is_not_given_to_a_killed_process_that_still_has_its_lease(tmp_path):
    with (
        scheduler("--client-lease", "600", folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)),
    ):
        with daemon(str(file_of(started)), folder=tmp_path, code=CONSUMER) as consumer:
            assert weft.Event("it waits").wait(timeout=60)
            consumer.process.kill()
        started.wait_for(" disconnected")
        queue = weft.Queue("values")
        queue.put("value")
        assert queue.qsize() == 1
        assert queue.get(timeout=60) == "value"


def test_locks_and_settings_are_there_over_a_restart_and_lost_queues_are_reported(tmp_path, caplog):
    with (
        scheduler(folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
        weft.Client(connection_file=file_of(started), set_as_default=False) as other,
    ):
        mine, theirs = weft.Lock("critical"), weft.Lock("critical", client=other)
        semaphore = weft.Semaphore(2, "leases")
        several = weft.MultiLock(["a", "b"])
        queue, variable, event = weft.Queue("values"), weft.Variable("value"), weft.Event("go")
        theirs_too = weft.Variable("value", client=other)
        mine.acquire()
        semaphore.acquire()
        several.acquire()
        queue.put("lost")
        variable.set("old")
        theirs_too.set("new")
        event.set()
        future = client.submit(abs, -1)  # there is no worker
        client.publish_dataset(future, name="number")
        client.set_metadata(["model", "rate"], 0.1)
        restarted(started, real_pid(started))
        assert theirs.acquire(blocking=False) is False
        assert semaphore.get_value() == 1
        assert weft.MultiLock(["b"], client=other).acquire(blocking=False) is False
        mine.release()
        assert theirs.acquire(timeout=60) is True
        # What clients have set they state again, the latest one counts.
        assert event.is_set()
        assert variable.get(timeout=0) == "new"
        assert other.get_dataset("number").key == future.key
        assert other.get_dataset("number").status == "pending"
        assert other.get_metadata("model") == {"rate": 0.1}
        assert queue.get(batch=True) == []
        lines = [text for text in caplog.messages if "was lost with the scheduler" in text]
        assert lines == [
            "queue 'values': what it held was lost with the scheduler, which was started again; "
            "this client had put 1 value there"
        ]
        several.release()
        semaphore.release()
        assert client.status == "running"


def test_waits_for_what_a_client_that_is_gone_has_set_mention_the_restart(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)),
    ):
        variable = weft.Variable("rate")
        with weft.Client(connection_file=file_of(started), set_as_default=False) as setter:
            weft.Variable("rate", client=setter).set(1)
        assert variable.get(timeout=60) == 1
        restarted(started, real_pid(started))
        assert not weft.Event("any").is_set()  # the new scheduler answers
        with pytest.raises(TimeoutError, match="not set within 0 s; the scheduler was started ag"):
            variable.get(timeout=0)


def test_a_dataset_is_there_over_a_restart_with_the_results_that_workers_have(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.publish_dataset([client.submit(abs, -1, key="one")], name="numbers")
        client.gather(client.get_dataset("numbers"), timeout=60)
        restarted(started, real_pid(started))
        assert client.gather(client.get_dataset("numbers"), timeout=60) == [1]


# --- In tasks -------------------------------------------------------------------------------------


def add_one(lock, path):
    for _ in range(10):
        with lock:
            number = int(path.read_text())
            path.write_text(f"{number + 1}")


def wait_then(event, value):
    assert event.wait(timeout=60)
    return value


def set_event(event):
    event.set()


def produce(queue, client_of, n):
    client = weft.get_client() if client_of else None
    for i in range(n):
        queue.put(client.submit(abs, -i) if client else i)


def consume(queue, n):
    return sum(future.result(60) for future in (queue.get(timeout=60) for _ in range(n)))


def die_holding(lock, started):
    import os
    import signal

    lock.acquire()
    started.set()
    os.kill(os.getpid(), signal.SIGKILL)


def test_tasks_share_locks_events_and_queues_of_futures(tmp_path):
    path = tmp_path / "number"
    path.write_text("0")
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        lock = weft.Lock("file")
        weft.wait([client.submit(add_one, lock, path, key=f"add {i}") for i in range(4)], 60)
        assert path.read_text() == "40"
        # As many tasks wait as there are threads, and more; another task sets the event.
        event = weft.Event("go")
        waiting = [client.submit(wait_then, event, i) for i in range(6)]
        client.submit(set_event, event).result(60)
        assert client.gather(waiting, timeout=60) == [*range(6)]
        queue = weft.Queue("numbers", maxsize=3)
        consumed = client.submit(consume, queue, 10)
        client.submit(produce, queue, True, 10).result(60)
        assert consumed.result(60) == sum(range(10))


def test_a_lock_of_a_task_whose_worker_is_killed_is_free_at_once(tmp_path):
    with (
        scheduler("--client-lease", "600", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        lock, event = weft.Lock("critical"), weft.Event("started")
        future = client.submit(die_holding, lock, event)
        assert event.wait(timeout=60)
        assert lock.acquire(timeout=60) is True
        future.cancel()
        lock.release()
