"""A store whose values leave the memory, with real threads and files, and no worker around it."""

from __future__ import annotations

import logging
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft.protocol.values.actors import StoredActor
from weft.protocol.values.serialize import dumps, loads
from weft.protocol.wire.messages import GetParts
from weft.worker.data import spill_files
from weft.worker.data.parts import pack_parts
from weft.worker.data.spill_files import GoneValue
from weft.worker.data.spilling import Spiller
from weft.worker.data.store import Store
from weft.worker.policy import Fractions

MIB = 1 << 20
LIMIT = 10 * MIB


class Kit:
    """A store with a limit of 10 MiB, and what makes room in it."""

    def __init__(self, path, folder="w.spill", max_spill=float("inf")):
        self.store = Store(LIMIT)
        self.resident = 0
        self.awaited = {}
        self.used = set()
        self.n_changed = 0
        self.presses = []
        self.path = path / folder
        self.spiller = Spiller(
            self.store,
            Fractions(),
            self.path,
            max_spill,
            in_use=lambda: self.used,
            is_awaited=lambda attempt: self.awaited.get(attempt, False),
            resident=lambda: self.resident,
            changed=self._changed,
            pressed=self.presses.append,
        )
        self.spiller.start()

    def _changed(self):
        self.n_changed += 1

    def put(self, *attempts, value=None, nbytes=MIB):
        for attempt in attempts:
            made = np.full(MIB // 8, attempt) if value is None else value
            self.store.put([attempt], [made], [nbytes])
        self.spiller.wake()

    def on_disk(self):
        """Return the attempts that have files, once none is being written."""
        names = [p.name for p in self.path.iterdir()] if self.path.is_dir() else []
        if self.spiller.plan.writing:
            return None
        return sorted(int(name.split("-")[0]) for name in names)

    def in_memory(self):
        return self.store.in_memory()


@pytest.fixture
def start(tmp_path):
    kits = []

    def started(*args, **options):
        kits.append(Kit(tmp_path, *args, **options))
        return kits[-1]

    yield started
    for kit in kits:
        kit.store.drop(range(100))
        kit.spiller.stop()
        kit.spiller.thread.join(10)
        assert not kit.spiller.thread.is_alive()
        assert not kit.path.is_dir()


def test_values_beyond_the_target_leave_and_come_back_when_they_are_read(start, wait_until):
    kit = start()
    kit.put(*range(1, 9))
    wait_until(lambda: kit.store.nbytes == 6 * MIB)
    assert kit.store.spilled_nbytes == 2 * MIB
    assert kit.in_memory() == [3, 4, 5, 6, 7, 8]
    wait_until(lambda: kit.on_disk() == [1, 2])
    assert len(kit.store) == 8
    array = kit.store.load(1)
    assert (array == 1).all()
    assert array.flags.writeable
    assert kit.store.load(1) is array
    wait_until(lambda: kit.store.nbytes == 6 * MIB)
    assert 1 in kit.in_memory()
    counts = kit.spiller.counts
    assert (counts[0], counts[2], counts[3]) == (2 * MIB, MIB + counts[2] % MIB, 0)


def test_a_value_that_was_not_changed_leaves_again_without_being_written(start, wait_until):
    kit = start()
    kit.put(*range(1, 8))
    wait_until(lambda: kit.on_disk() == [1])
    written = kit.spiller.counts[1]
    kit.used = set(range(2, 8))
    kit.store.load(1)
    wait_until(lambda: kit.store.spilled_nbytes == MIB)
    assert kit.spiller.counts[1] == written
    assert (kit.store.load(1) == 1).all()


def test_readers_elsewhere_get_the_file_s_bytes_and_the_loop_none(start, wait_until):
    kit = start()
    kit.put(*range(1, 8))
    wait_until(lambda: kit.on_disk() == [1])
    assert kit.store.pack_plain(1, "k") is None
    blob = kit.store.pack(1, "k")
    assert isinstance(blob.buffers[0], memoryview)
    assert (loads(blob) == 1).all()
    assert kit.store.spilled_nbytes == MIB, "it was not unpickled for that"


def test_copies_leave_as_they_came_and_stay_packed(start, wait_until):
    kit = start()
    for attempt in range(1, 8):
        kit.store.put_packed(attempt, dumps(np.full(MIB // 8, attempt)))
    kit.spiller.wake()
    wait_until(lambda: 1 in kit.store.files)
    assert (kit.store.load(1) == 1).all()
    kit.store.put_packed(1, b"x" * MIB)  # it came again
    assert kit.store.spilled_nbytes + kit.store.nbytes == sum(map(kit.store.nbytes_of, range(8)))


def test_dropped_values_take_their_files_with_them(start, wait_until):
    kit = start()
    kit.put(*range(1, 9))
    wait_until(lambda: kit.on_disk() == [1, 2])
    kit.store.load(2)
    kit.store.drop([1, 2])
    wait_until(lambda: kit.on_disk() == [])
    assert kit.store.spilled_nbytes == 0
    assert kit.store.nbytes == 6 * MIB
    kit.store.drop(range(3, 9))
    assert (kit.store.nbytes, len(kit.store)) == (0, 0)


def test_inputs_of_running_tasks_stay_and_those_of_waiting_ones_leave_last(start, wait_until):
    kit = start()
    kit.used = {1, 2}
    kit.awaited = {3: True, 4: None}
    kit.put(*range(1, 9))
    wait_until(lambda: kit.store.nbytes == 6 * MIB)
    assert kit.in_memory() == [1, 2, 3, 4, 7, 8]


def load(store):
    with pytest.raises(GoneValue):
        store.load(1)


def take_part(store):
    message = GetParts(request=1, attempts=[1], numbers=[0], n_numbers=0)
    assert pack_parts(store, message, "w").missing == ["1"]


def send(store):
    assert store.pack(1, "k") is None


def share(store):
    assert store.pack_near(1, "k") is None


@pytest.mark.parametrize("first", [load, take_part, send, share])
def test_a_value_whose_file_is_lost_is_lost_for_all_readers_and_one_line_says_so(
    start, wait_until, first, caplog
):
    kit = start()
    kit.put(*range(1, 8))
    wait_until(lambda: kit.on_disk() == [1])
    (path,) = kit.path.iterdir()
    path.unlink()
    first(kit.store)
    (line,) = caplog.records
    assert f"{path} is lost: No such file" in line.getMessage()
    assert line.code == "result-lost"
    for read in (load, take_part, send, share):
        read(kit.store)
    assert len(caplog.records) == 1
    kit.store.drop([1])
    assert kit.store.spilled_nbytes == 0


def test_a_value_that_cannot_be_pickled_stays_and_is_counted(start, wait_until, caplog):
    kit = start()
    kit.put(1, value=[np.zeros(MIB), threading.Lock()])
    kit.put(2, value=StoredActor.__new__(StoredActor))
    kit.put(*range(3, 10))
    wait_until(lambda: kit.store.nbytes == 6 * MIB)
    assert kit.spiller.counts[3] == 2 * MIB
    assert kit.in_memory()[:2] == [1, 2]
    assert not [r for r in caplog.records if r.levelno >= logging.INFO]


def test_a_disk_that_fails_leaves_all_in_memory_and_one_line_says_so(
    start, wait_until, caplog, tmp_path
):
    (tmp_path / "file").touch()
    kit = start("file/w.spill")
    kit.put(*range(1, 11))
    wait_until(lambda: caplog.records)
    kit.spiller.relieve([])  # nobody waits for a disk that takes nothing
    kit.put(11)
    assert kit.store.nbytes == 11 * MIB
    (record,) = (r for r in caplog.records if r.levelno >= logging.INFO)
    assert "Not a directory" in record.getMessage()
    assert "--local-directory" in record.getMessage()


def test_no_more_is_written_than_allowed_and_files_of_values_in_memory_make_way(
    start, wait_until, caplog
):
    kit = start(max_spill=2 * MIB + 10_000)
    kit.put(*range(1, 9))
    wait_until(lambda: kit.on_disk() == [1, 2])
    kit.used = {1}
    kit.store.load(1)
    wait_until(lambda: kit.on_disk() == [2, 3])
    assert not caplog.records
    kit.put(9)
    wait_until(lambda: caplog.records)
    assert kit.store.nbytes == 7 * MIB
    (line,) = caplog.records
    assert (line.levelname, line.code) == ("WARNING", "spill-failed")
    assert line.getMessage() == (
        "results stay in memory: the files of this worker take 2 MiB, --max-spill allows 2.01 MiB, "
        "and the next result takes 1 MiB; raise --max-spill, release results, or add workers"
    )


def test_a_process_that_is_too_large_is_paused_and_that_is_reported_at_once(start, wait_until):
    kit = start()
    kit.resident = int(0.81 * LIMIT)
    wait_until(lambda: kit.n_changed)
    assert kit.spiller.is_paused
    kit.resident = int(0.5 * LIMIT)
    wait_until(lambda: kit.n_changed == 2)
    assert not kit.spiller.is_paused


def test_a_thread_between_tasks_waits_until_there_is_room(start, wait_until):
    kit = start()
    kit.used = set(range(1, 21))  # none leaves before the thread asks
    values = [np.full(MIB // 8, attempt) for attempt in range(1, 21)]
    for attempt, value in enumerate(values, 1):
        kit.store.put([attempt], [value], [MIB])
    assert kit.store.nbytes > kit.store.watched
    kit.used = set()
    kit.store.relieve(values)
    assert values == []
    assert kit.store.nbytes <= kit.spiller.plan.spill, "it was looked at before the thread went on"
    assert kit.presses[0]
    wait_until(lambda: not kit.presses[-1])


def test_a_disk_that_takes_long_holds_up_who_adds_and_nobody_who_reads(
    start, wait_until, monkeypatch
):
    is_fast = threading.Event()
    written = spill_files._Writer.write

    def write(writer, data):
        assert is_fast.wait(60)
        return written(writer, data)

    monkeypatch.setattr(spill_files._Writer, "write", write)
    kit = start()
    kit.put(*range(1, 10))
    wait_until(lambda: len(kit.spiller.plan.writing) == 2)
    assert kit.spiller.writing == (2 * MIB, 0)
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(kit.spiller.relieve, [])
        wait_until(lambda: kit.presses)
        # A value that is being written is in memory as long, and is read and sent from there.
        assert (kit.store.load(1) == 1).all()
        assert (loads(kit.store.pack(2, "k")) == 2).all()
        assert not adding.done()
        is_fast.set()
        adding.result(60)
    wait_until(lambda: kit.store.nbytes == 6 * MIB)
    wait_until(lambda: kit.spiller.writing[0] == 0)
    assert kit.spiller.writing[1] > 0
    assert [int(kit.store.load(attempt)[0]) for attempt in range(1, 10)] == [*range(1, 10)]


def test_a_folder_that_vanished_is_made_again(start, wait_until, caplog):
    kit = start()
    kit.put(*range(1, 8))
    wait_until(lambda: kit.on_disk() == [1])
    shutil.rmtree(kit.path)
    kit.put(8)
    wait_until(lambda: kit.on_disk() == [2])
    assert not caplog.records


def test_two_workers_in_one_directory_do_not_meet(start, wait_until):
    kits = [start("a.spill"), start("b.spill")]
    for n, kit in enumerate(kits):
        kit.put(*range(1, 8), value=np.full(MIB // 8, n))
    for n, kit in enumerate(kits):
        wait_until(lambda kit=kit: kit.on_disk() == [1])
        assert (kit.store.load(1) == n).all()


def test_values_in_excess_are_reported_once_before_any_is_written(start, wait_until):
    kit = start()
    kit.put(1, 2, 3, 4)
    assert kit.spiller.excess_nbytes == 0
    kit.put(5)
    wait_until(lambda: kit.n_changed == 1)
    assert kit.spiller.excess_nbytes == MIB // 2
    assert kit.on_disk() == []
    kit.put(6)
    wait_until(lambda: kit.spiller.excess_nbytes == 3 * MIB // 2)
    assert kit.n_changed == 1
