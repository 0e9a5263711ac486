"""The cost of questions for a scheduler that knows a million tasks: CPU time of one page.

    python -m benchmarks.bench_questions --tasks 1000000 --workers 1000

A page is timed as the scheduler spends it: the event that handles the question, and the encoding of
the answer; for a question that is passed on to a worker, both ways. The goal is 1 ms for the
largest page of each question. One page of each is not timed: the first message of a class makes the
functions that encode and decode it, which takes about 1 ms, once per process.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from weft.protocol.wire import messages as m
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import Frame, frame_header
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Message
from weft.protocol.wire.question_arguments import MAX_KEYS
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import Event, PeerConnected, PeerSent
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState
from weft.worker.answering import N_KEPT

from .bench_scheduler import _graph, answer_to, submissions, worker_hello

_CLIENT = 1
_FIRST_WORKER = 2
#: Pages of one question that are timed.
_N_PAGES = 200


class Cluster:
    """A scheduler with `n_tasks` finished tasks, and a backlog of tasks on each worker."""

    def __init__(self, n_tasks: int, n_workers: int) -> None:
        self.state = SchedulerState(epoch=1, features=FEATURES)
        self.n_tasks = n_tasks
        self.play(PeerConnected(_CLIENT, Role.CLIENT, Level.CLIENT))
        hello = m.RegisterClient(client_id="c", name="bench", session=1, last_epoch=0, facts={})
        self.play(PeerSent(_CLIENT, [hello]))
        for peer in range(_FIRST_WORKER, _FIRST_WORKER + n_workers):
            self.play(PeerConnected(peer, Role.WORKER, Level.WORKER))
            self.play(PeerSent(peer, [worker_hello(peer)]))
        ((keys, needs),) = _graph("map", n_tasks)
        for message in submissions(keys, needs):
            todo = [PeerSent(_CLIENT, [message])]
            while todo:
                for peer, box in self.play(todo.pop()).items():
                    answers = [a for x in box if peer != _CLIENT for a in answer_to(x)]
                    if answers:
                        todo.append(PeerSent(peer, answers))
        self.keys = keys
        # The tasks that follow are assigned and never finished: a full backlog on each worker.
        backlog = [f"late-{i}" for i in range(50 * n_workers + 10_000)]
        for message in submissions(backlog, []):
            self.play(PeerSent(_CLIENT, [message]))

    def play(self, event: Event) -> dict[int, list[Message]]:
        self.state.handle(event, time.perf_counter())
        self.state.after.clear()
        outboxes, self.state.outboxes = self.state.outboxes, {}
        return outboxes

    def page(self, name: str, arguments: dict[str, Any], page: str) -> tuple[float, str]:
        """Ask for one page; return its CPU seconds, and the name of the next one."""
        question = m.Ask(request=1, name=name, arguments=arguments, page=page)
        start = time.thread_time()
        (answer,) = self.play(PeerSent(_CLIENT, [question]))[_CLIENT]
        WireState().encode([answer])
        seconds = time.thread_time() - start
        assert isinstance(answer, m.Answer), answer
        return seconds, answer.next_page

    def passed_page(self) -> tuple[float, str]:
        """Pass on a question for what a worker holds, and its answer; return as `page` does."""
        ws = self.state.workers[_FIRST_WORKER]
        keys = self.keys[:N_KEPT]
        ask = m.Ask(request=1, name="held", to=ws.worker_id)
        start = time.thread_time()
        (passed,) = self.play(PeerSent(_CLIENT, [ask]))[ws.peer]
        WireState().encode([passed])
        seconds = time.thread_time() - start
        assert isinstance(passed, m.Ask)
        info = {"keys": keys, "nbytes": [28] * len(keys)}
        answer = m.Answer(request=passed.request, info=info, next_page="1.2000")
        ((head,),) = WireState().encode([answer])
        payload = memoryview(head)[len(frame_header(0)) :]
        start = time.thread_time()
        received = WireState().decode(Frame(payload, []))
        (relayed,) = self.play(PeerSent(ws.peer, received))[_CLIENT]
        WireState().encode([relayed])
        return seconds + time.thread_time() - start, "again"


def measure(cluster: Cluster) -> dict[str, list[float]]:
    """Return the CPU seconds of the pages of each question."""
    choose = random.Random(1)
    first = {"key": cluster.keys[0], "text": cluster.keys[0]}
    arguments: dict[str, Callable[[], dict[str, Any]]] = {
        name: lambda: {"keys": choose.sample(cluster.keys, MAX_KEYS), **first}
        for name in cluster.state.features.questions
    }
    for name in ("cluster", "workers", "clients", "processing"):
        arguments[name] = dict
    found: dict[str, list[float]] = {}
    for name in cluster.state.features.questions:
        pages: list[float] = []
        cluster.page(name, arguments[name](), "")
        while len(pages) < _N_PAGES:
            chosen = arguments[name]()
            page = ""
            while True:
                seconds, page = cluster.page(name, chosen, page)
                pages.append(seconds)
                if not page or len(pages) >= _N_PAGES:
                    break
        found[name] = pages
    cluster.passed_page()
    found["held (passed on)"] = [cluster.passed_page()[0] for _ in range(_N_PAGES)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_questions")
    parser.add_argument("--tasks", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--workers", type=int, default=1000, metavar="N")
    options = parser.parse_args()
    cluster = Cluster(options.tasks, options.workers)
    gc.collect()
    gc.freeze()
    print(f"{options.tasks} tasks, {options.workers} workers; CPU time of one page, ms")
    print(f"{'question':20} {'median':>8} {'largest':>8}")
    for name, pages in measure(cluster).items():
        median, largest = statistics.median(pages) * 1e3, max(pages) * 1e3
        print(f"{name:20} {median:8.3f} {largest:8.3f}", flush=True)


if __name__ == "__main__":
    main()
