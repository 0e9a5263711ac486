"""losses.py: the log lines about lost workers."""

from __future__ import annotations

import pytest

from weft.protocol.death_facts import DeathFacts
from weft.protocol.deaths import OUT_OF_MEMORY
from weft.protocol.reported import RENEWED
from weft.protocol.wire import messages as m
from weft.scheduler.core.actions import LogLine
from weft.scheduler.core.insight.losses import REASON_WAIT_S, losses_of
from weft.scheduler.core.interruption.interrupting import RESTARTED

from ...builders import Board, graph

ADVICE = (
    ". Give the workers more memory (memory_limit=, weft worker --memory-limit), or let each task "
    "need less of it"
)


class Log(Board):
    """A board with a supervisor that collects what is logged from info on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []
        self.boss = self.supervisor("sup")
        self.user = self.client()
        self.n_started = 0

    def warnings(self) -> list[str]:
        return [text for level, text in self.lines if level == "warning"]

    def _play(self, event):
        n_before = len(self.actions)
        super()._play(event)
        new = self.actions[n_before:]
        self.lines += [(a.level, a.text) for a in new if isinstance(a, LogLine)]

    def start(self, name: str = "w") -> int:
        self.n_started += 1
        worker_id = f"{name}{self.n_started}"
        return self.worker(
            name, worker_id=worker_id, supervisor_id="sup", address=f"tcp://{worker_id}"
        )

    def report(self, worker_id: str, reason: str) -> None:
        self.send(self.boss, m.WorkerExited(worker_id=worker_id, reason=reason, running=[]))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("first", ["connection", "report"])
def test_the_end_of_a_connection_and_the_reason_are_one_line_in_either_order(log, first):
    worker = log.start()
    log.send(log.user, graph("a"))
    ends = [lambda: log.close(worker), lambda: log.report("w1", "memory limit: 0.2 of 0.1 GiB")]
    for end in ends if first == "connection" else reversed(ends):
        end()
    log.tick(REASON_WAIT_S)
    assert log.warnings() == [
        "worker w is lost (memory limit: 0.2 of 0.1 GiB): 1 task is placed again, 0 results were "
        "there" + ADVICE
    ]


@pytest.mark.parametrize("first", ["connection", "report"])
def test_the_line_about_a_death_by_memory_says_what_filled_it(log, first):
    worker = log.start()
    log.send(log.user, graph("a b"))
    log.finish(worker, "a", nbytes=150 << 20, blob=None)
    name = log.task("a").group.prefix.name
    facts = DeathFacts(1 << 30, 1, (), ("a line of its log",)).to_plain()
    report = m.WorkerExited(worker_id="w1", reason=OUT_OF_MEMORY, running=[], facts=facts)
    ends = [lambda: log.close(worker), lambda: log.send(log.boss, report)]
    for end in ends if first == "connection" else reversed(ends):
        end()
    assert log.warnings() == [
        "worker w is lost (out of memory: killed by the kernel's out-of-memory killer): 1 task "
        f"is placed again, 1 result was there; its memory was 1 GiB at most; it held 1 result of "
        f"{name} (150 MiB); the kernel's out-of-memory killer ended 1 process of its control group"
        + ADVICE
    ]


def test_a_loss_that_no_supervisor_explains_is_logged_soon(log):
    worker = log.start()
    log.send(log.user, graph("a"))
    log.close(worker)
    log.tick(REASON_WAIT_S / 2)
    assert log.warnings() == []
    log.tick(REASON_WAIT_S / 2)
    text = "worker w is lost (connection closed): 1 task is placed again, 0 results were there"
    assert log.warnings() == [text]


@pytest.mark.parametrize("reason", [RESTARTED, RENEWED])
@pytest.mark.parametrize("first", ["connection", "report"])
def test_a_worker_that_a_client_or_a_plugin_has_restarted_is_no_warning(log, first, reason):
    worker = log.start()
    log.send(log.user, graph("a"))
    ends = [lambda: log.close(worker), lambda: log.report("w1", reason)]
    for end in ends if first == "connection" else reversed(ends):
        end()
    log.tick(REASON_WAIT_S)
    assert log.warnings() == []
    text = f"worker w has ended ({reason}): 1 task is placed again, 0 results were there"
    assert ("info", text) in log.lines


def test_a_worker_without_a_supervisor_is_logged_as_lost_at_once(log):
    worker = log.worker("alone")
    log.send(log.user, graph("a"))
    log.close(worker)
    assert [text.split(":")[0] for text in log.warnings()] == [
        "worker alone is lost (connection closed)"
    ]


def test_a_connection_that_ends_with_nothing_lost_is_no_warning(log):
    log.close(log.worker("alone"))
    assert log.warnings() == []
    assert log.lines[-1][1].startswith("worker alone is lost")


def test_many_deaths_of_one_cause_are_two_warnings_and_all_are_in_the_full_log(log):
    for i in range(10):
        worker = log.start(f"w-{i % 2}-")
        log.close(worker)
        log.report(f"w-{i % 2}-{i + 1}", f"memory limit: 0.2{i} of 0.20 GiB")
    log.tick(4.9)
    log.tick(0.2)
    first, rest = log.warnings()
    assert first.startswith("worker w-0- is lost (memory limit: 0.20 of 0.20 GiB): ")
    assert rest == (
        "workers were lost 9 more times in 5 s (memory limit: 0.21 to 0.29 of 0.20 GiB): w-1- 5 "
        "times, w-0- 4 times" + ADVICE
    )
    assert sum("is lost (memory limit" in text for _, text in log.lines) == 10


def test_a_process_that_ended_before_it_joined_is_logged(log):
    log.report("12345678abc", "exit code 3")
    log.report("87654321abc", "exit code 3")
    assert log.warnings() == [
        "the process of worker 12345678, which is not connected, ended: exit code 3"
    ]


def test_a_report_that_comes_twice_is_one_line(log):
    worker = log.start()
    log.send(log.user, graph("a"))
    log.close(worker)
    log.report("w1", "exit code 3")
    log.report("w2", "exit code 4")
    lines = list(log.lines)
    assert [text.rpartition("exit code ")[2][0] for text in log.warnings()] == ["3", "4"]
    log.report("w1", "exit code 3")
    log.report("w2", "exit code 4")
    assert log.lines == lines


def test_the_lines_that_were_kept_back_are_logged_when_the_scheduler_ends(log):
    for _ in range(3):
        worker = log.start()
        log.send(log.user, graph("a"))
        log.close(worker)
    log.state.finish(log.now)
    log.tick()
    first, rest = log.warnings()
    assert first.startswith("worker w is lost (connection closed)")
    assert rest.startswith("workers were lost 2 more times in 0 s (connection closed): w 2 times")
    assert losses_of(log.state).waiting == {}
