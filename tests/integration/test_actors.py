"""Actors while the scheduler is suspended and started again."""

from __future__ import annotations

import os
import signal

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler

pytestmark = pytest.mark.slow


class Counter:
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def add(self, k: int = 1) -> int:
        self.n += k
        return self.n

    def pid(self) -> int:
        return os.getpid()


def add(counter: weft.Actor) -> int:
    return counter.add().result()


def test_actors_and_their_handles_outlive_the_scheduler(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        future = client.submit(Counter, actor=True)
        counter, other = future.result(), client.submit(Counter, 10, actor=True).result()
        assert (counter.add().result(), other.add().result()) == (1, 11)
        pid = real_pid(started)
        os.kill(pid, signal.SIGSTOP)  # no scheduler is needed for a call
        assert counter.add().result(timeout=60) == 2
        os.kill(pid, signal.SIGCONT)
        restarted(started, pid)
        assert counter.add().result(timeout=60) == 3
        assert client.submit(add, counter).result(timeout=60) == 4
        assert client.submit(add, other).result(timeout=60) == 12
        assert future.result().n == 4


def test_an_actor_whose_worker_ends_with_the_scheduler_is_not_made_again(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        futures = [client.submit(Counter, actor=True) for _ in range(2)]
        counter = futures[0].result()
        pid_of_worker = counter.pid().result(timeout=60)
        assert client.submit(add, futures[1]).result(timeout=60) == 1  # its handle is not here
        pid = real_pid(started)
        os.kill(pid, signal.SIGSTOP)  # it must not notice the end of the worker
        os.kill(pid_of_worker, signal.SIGKILL)
        restarted(started, pid)
        for task in [client.submit(add, counter, pure=False), client.submit(add, futures[1])]:
            with pytest.raises(weft.ActorLost, match="has not come back"):
                task.result(timeout=90)
        for future in futures:
            with pytest.raises(weft.ActorLost):
                future.result(timeout=60)
        assert client.submit(Counter, actor=True).result(60).add().result(60) == 1
