"""Tasks of categories on real workers: what they use is measured, and too much is ended."""

from __future__ import annotations

import contextlib
import re
import sqlite3

import msgpack
import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler
from weft.protocol.errors import AllotmentExceeded
from weft.protocol.host.machine import n_cores

MB = 10**6


def _fill(mb: int) -> int:
    import threading

    held = bytearray(mb * MB)
    threading.Event().wait(0.1)  # workload
    return len(held) // MB


def _fill_and_wait(mb: int) -> int:
    import threading

    held = bytearray(mb * MB)
    while not weft.get_worker().is_cancelled:
        threading.Event().wait(0.01)  # workload
    return len(held)


@pytest.fixture
def client():
    with weft.Client(n_workers=1, threads_per_worker=2, memory_limit="2GB") as client:
        yield client


def test_a_function_that_uses_more_than_its_category_may_fails_with_what_it_used(client):
    small = weft.Category("small", max_memory="50MB")
    error = client.submit(_fill_and_wait, 200, category=small).exception(timeout=60)
    assert isinstance(error, AllotmentExceeded)
    assert (error.category, error.allotted_nbytes, error.limit) == (
        *("small", 50 * MB),
        "its max_memory=",
    )
    assert error.used_nbytes > 150 * MB


def test_a_program_that_uses_more_is_run_again_with_a_whole_worker(client):
    fills = weft.Category("fills", mode="max")
    fill = weft.Command("head -c {0}000000 /dev/zero | tail -n 1 | wc -c; sleep {1}")  # workload
    small = [client.submit(fill, 20 + i, 0.2, category=fills) for i in range(5)]
    assert [int(run.stdout) for run in client.gather(small)] == [(20 + i) * MB for i in range(5)]
    large = client.submit(fill, 400, 3, category=fills)
    assert int(large.result(timeout=60).stdout) == 400 * MB
    first, last = large.attempts()
    assert re.match(r"used .* of memory, more than its category gave it", first.end)
    assert last.end == "finished"


def test_lessons_of_a_category_outlive_a_scheduler_that_is_killed(tmp_path, wait_until):
    fills = weft.Category("fills", mode="max")
    fill = weft.Command("head -c {0}000000 /dev/zero | tail -n 1 | wc -c; sleep {1}")  # workload
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nthreads", "1", folder=tmp_path) as worker,
    ):
        worker.wait_for("registered", 1)
        with weft.Client(connection_file=file_of(started)) as client:
            small = [client.submit(fill, 20 + i, 0.2, category=fills) for i in range(5)]
            client.gather(small)
        wait_until(lambda: learned_in(tmp_path) == [5], 60, "five tasks on record")
        restarted(started, real_pid(started))
        with weft.Client(connection_file=file_of(started)) as client:
            client.wait_for_workers(1, timeout=60)
            large = client.submit(fill, 150, 3, category=fills)
            assert int(large.result(timeout=60).stdout) == 150 * MB
            first, last = large.attempts()
            assert re.match(r"used .* of memory, more than its category gave it", first.end)
            assert last.end == "finished"


def learned_in(folder):
    """Return how many tasks each category of the journal has learned from."""
    path = next(folder.rglob("journal.sqlite"), None)
    if path is None:
        return []
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            learned = database.execute("SELECT learned FROM learned_categories")
        except sqlite3.OperationalError:  # it is being made
            return []
        return [msgpack.unpackb(packed)[1] for (packed,) in learned]


@pytest.mark.skipif(n_cores() < 2, reason="no program keeps two cores busy here")
def test_programs_that_keep_several_cores_busy_take_two_threads_each(tmp_path, wait_until):
    wide = weft.Category("wide", mode="max")
    # So many that they have most of two cores also beside what else runs on this machine.
    spin = "for i in $(seq 16); do timeout 0.3 sh -c 'while :; do :; done' & done; wait"
    burn = weft.Command(f"mkdir {{0}} || echo beside; {spin}; rmdir {{0}}")
    cores = [0.0]  # that the programs have kept busy

    def run(n: int, **options: int) -> tuple[set[str], set[str]]:
        """Run so many programs; return what they print, and what their category has given them."""
        path = tmp_path / "one"
        options |= {"pure": False}
        futures = [client.submit(burn, path, category=wide, **options) for _ in range(n)]
        details = [future.explain().details for future in futures]
        given = {line for lines in details for line in lines if "its category 'wide' gives" in line}
        ended = client.gather(futures)
        cores.extend(run.cpu_s / run.wall_s for run in ended)
        return {run.stdout for run in ended}, given

    with (
        weft.LocalCluster(n_workers=1, threads_per_worker=2, memory_limit="2GB") as cluster,
        weft.Client(cluster) as client,
    ):
        run(5)
        for _ in range(20):
            if max(cores) < 1.3:
                run(1)
        if max(cores) < 1.3:
            pytest.skip(f"the machine is too busy: a program had {max(cores):.2g} cores at most")
        wait_until(lambda: "2 cores" in str(run(1)), 60, "two cores are learned")
        printed, given = run(3)
        assert printed == {""}
        assert all(line.endswith("of memory and 2 cores") for line in given)
        assert "cores" not in str(run(1, cores=1))


def test_functions_have_results_whether_they_are_measured_or_not(client):
    fits = weft.Category("fits")
    assert client.gather(client.map(_fill, [5] * 12, pure=False, category=fits)) == [5] * 12


def test_functions_in_the_process_of_a_program_are_not_measured():
    with weft.Client(processes=False, n_workers=2, threads_per_worker=1) as client:
        small = weft.Category("small", max_memory="1MB")
        assert client.submit(_fill, 30, category=small).result(timeout=60) == 30


def _wait_the_first_time(path: str) -> int:
    import threading
    from pathlib import Path

    marker = Path(path)
    while marker.name == "late" and not marker.exists():
        marker.touch()
        while not weft.get_worker().is_cancelled:
            threading.Event().wait(0.01)  # workload
    threading.Event().wait(0.05)  # workload
    return 1


def test_a_straggler_ends_on_another_worker(tmp_path):
    quick = weft.Category("quick", idempotent=True, abort_stragglers=3.0)
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        names = [str(tmp_path / f"quick-{i}") for i in range(12)]
        assert sum(client.gather(client.map(_wait_the_first_time, names, category=quick))) == 12
        late = client.submit(_wait_the_first_time, str(tmp_path / "late"), category=quick)
        assert late.result(timeout=60) == 1
        first, last = late.attempts()
        assert re.match(r"took .* s, others of its category .* s in the mean", first.end)
        assert last.end == "finished"
        assert first.worker != last.worker


def test_of_a_straggler_that_is_copied_the_first_result_counts(tmp_path):
    quick = weft.Category("quick", idempotent=True, copy_stragglers=3.0)
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        names = [str(tmp_path / f"quick-{i}") for i in range(12)]
        assert sum(client.gather(client.map(_wait_the_first_time, names, category=quick))) == 12
        late = client.submit(_wait_the_first_time, str(tmp_path / "late"), category=quick)
        assert late.result(timeout=60) == 1
        assert "finished" in [attempt.end for attempt in late.attempts()]
        # The other one waits until it is interrupted, and its thread is free after that.
        both = client.map(_wait_the_first_time, names[:2], pure=False, key="after")
        assert client.gather(both) == [1, 1]


def test_a_call_that_takes_longer_than_its_category_may_fails_with_an_error_that_names_it(client):
    brief = weft.Category("brief", max_memory="50MB", max_wall_time=0.2)
    error = client.submit(_fill_and_wait, 1, category=brief).exception(timeout=60)
    assert isinstance(error, weft.TaskTimedOut)
    assert error.category == "brief"
    assert "for longer than max_wall_time=0.2 s of its category 'brief'" in str(error)
