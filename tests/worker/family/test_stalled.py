"""Workers whose loops do not run: which attempts have held them up."""

from __future__ import annotations

from pathlib import Path

from weft.protocol.wire.messages import WorkerHeldUp
from weft.worker.family.config import WorkerSpec
from weft.worker.family.places import Place
from weft.worker.family.silent_workers import held_up
from weft.worker.family.stalled import HeldUpWatch
from weft.worker.slots.started import StartedRecord


def test_a_loop_that_beats_is_not_held_up():
    watch = HeldUpWatch()
    assert not any(watch.look(n, [7], float(n)) for n in range(1, 20))


def test_a_worker_that_has_not_begun_is_not_judged():
    watch = HeldUpWatch()
    assert not any(watch.look(0, [7], float(n)) for n in range(20))


def test_the_time_of_an_attempt_is_that_in_which_it_was_seen_to_run():
    watch = HeldUpWatch()
    assert watch.look(5, [7, 8], 100.0) == {}
    assert watch.look(5, [7, 8, 9], 101.0) == {}
    assert watch.look(5, [7, 9], 103.0) == {7: 3.0, 9: 2.0}
    assert watch.look(5, [9], 104.0) == {9: 3.0}
    assert watch.look(6, [9], 105.0) == {}
    assert watch.look(6, [9], 106.0) == {}


def test_a_task_that_begins_between_a_beat_and_a_look_is_found():
    watch = HeldUpWatch()
    assert watch.look(5, [], 100.0) == {}
    assert watch.look(5, [7], 101.0) == {}
    assert watch.look(5, [7], 103.0) == {7: 2.0}


def test_time_in_which_the_supervisor_did_not_look_counts_little():
    watch = HeldUpWatch()
    watch.look(5, [7], 0.0)
    assert watch.look(5, [7], 3600.0)[7] < 10


class Process:
    """Stands for a process of psutil: its state is all that is asked."""

    def __init__(self, status: str) -> None:
        self._status = status

    def status(self) -> str:
        return self._status


def test_a_report_names_the_worker_and_one_that_is_suspended_is_left_out(tmp_path: Path):
    places = []
    for name in ("sleeping", "stopped"):
        record = StartedRecord(tmp_path / name, 2)
        record.beat()
        record.note(1, 7)
        record.close()
        spec = WorkerSpec(name, 0, {})
        places.append(Place(spec, name, 5, Process(name), record=tmp_path / name))
    assert held_up(places, 10.0) == []
    assert held_up(places, 13.0) == [
        WorkerHeldUp(worker_id="sleeping", attempts=[7], held_ms=[3000])
    ]
