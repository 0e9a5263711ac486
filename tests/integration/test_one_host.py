"""Large values of real processes of one host: they are in memory once, and nothing stays behind.

What a process has mapped is read from /proc: a file in memory that weft has made has "memfd:weft"
in its name there, and random digits.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import weft

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files"),
]

MB = 1_000_000
NBYTES = 40 * MB
#: Elements of a smaller array, and their sum.
FEW = 2_000_000
SUM_OF_FEW = FEW * (FEW - 1) / 2
N = NBYTES // 8
WAIT_S = 60.0
_FILE = re.compile(r"/memfd:(weft-[0-9a-f]+)")


@pytest.fixture(params=["unix", "tcp"], scope="module")
def cluster(request):
    options = {"protocol": "tcp"} if request.param == "tcp" else {}
    with weft.LocalCluster(n_workers=3, threads_per_worker=1, **options) as cluster:
        with weft.Client(cluster) as client:
            client.wait_for_workers(3)
        yield cluster


@pytest.fixture
def client(cluster, wait_until):
    with weft.Client(cluster) as client:
        yield client
    wait_until(lambda: not left(), WAIT_S)


@pytest.fixture
def own_client(wait_until):
    """A client of a cluster whose processes may be killed."""
    with (
        weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client
        wait_until(lambda: not left(), WAIT_S)


def files_of(pid):
    """Return the files of weft in memory that a process has mapped or open."""
    texts = []
    try:
        texts.append(Path(f"/proc/{pid}/maps").read_text())
        for name in os.listdir(f"/proc/{pid}/fd"):
            texts.append(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PERF401
    except OSError:  # it ends, or closes one just now
        pass
    return {name for text in texts for name in _FILE.findall(text)}


def left():
    """Return all such files of this process and of those below it."""
    me = psutil.Process()
    return {
        name for process in [me, *me.children(recursive=True)] for name in files_of(process.pid)
    }


def make(n=N):
    return np.arange(n, dtype=float)


def look(array):
    """Read an array, write to it, and return what is mapped here."""
    total = float(array.sum())
    array[0] = -1.0
    return total, sorted(files_of(os.getpid())), os.getpid()


def peek(array):
    return float(array[0]), float(array[-1])


TOTAL = float(make().sum())


def ends(client):
    return sorted(client.nthreads())


def on(client, i, function, *arguments):
    return client.submit(function, *arguments, workers=[ends(client)[i]], pure=False)


def test_a_result_is_one_file_for_all_its_readers_and_each_writes_to_its_own_pages(client):
    made = on(client, 0, make)
    found = [on(client, i, look, made).result(WAIT_S) for i in (1, 2)]
    assert [total for total, _, _ in found] == [TOTAL, TOTAL]
    assert len({pid for _, _, pid in found}) == 2
    assert found[0][1] == found[1][1]
    assert len(found[0][1]) == 1
    array = made.result(WAIT_S)
    assert (array[0], array.sum()) == (0.0, TOTAL)
    assert sorted(files_of(os.getpid())) == found[0][1]
    array[0] = 5.0  # it is writable, and no other one's
    assert on(client, 0, peek, made).result(WAIT_S) == (0.0, N - 1)
    assert len(left()) == 1


def test_an_argument_is_one_file_and_each_call_has_it_unchanged(client):
    array = make()
    futures = [on(client, i, look, array) for i in (0, 1, 2, 0)]
    found = client.gather(futures, timeout=WAIT_S)
    assert [total for total, _, _ in found] == [TOTAL] * 4
    assert len(found[0][1]) == 1
    assert all(files == found[0][1] for _, files, _ in found)
    array[0] = 3.0  # that of the user is not shared
    assert on(client, 1, peek, array).result(WAIT_S) == (3.0, N - 1)


def test_scattered_data_is_one_file_which_the_client_does_not_keep(client, wait_until):
    future = client.scatter(make(), broadcast=True)
    found = [on(client, i, look, future).result(WAIT_S) for i in range(3)]
    assert [total for total, _, _ in found] == [TOTAL] * 3
    assert len({name for _, files, _ in found for name in files}) == 1
    wait_until(lambda: not files_of(os.getpid()), WAIT_S)


def test_a_reader_keeps_what_a_killed_holder_has_made(own_client, wait_until):
    client = own_client
    made = on(client, 0, make)
    pid = on(client, 0, os.getpid).result(WAIT_S)
    assert on(client, 1, look, made).result(WAIT_S)[0] == TOTAL
    array = made.result(WAIT_S)
    names = left()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), WAIT_S)
    assert array.sum() == TOTAL
    # The copy of the reader is passed on as the same file.
    client.wait_for_workers(2)
    assert client.submit(peek, made, pure=False).result(WAIT_S)[1] == N - 1
    assert left() == names
    assert len(names) == 1


def test_a_killed_reader_leaves_nothing(own_client, wait_until):
    client = own_client
    made = on(client, 0, make)
    pid = on(client, 1, look, made).result(WAIT_S)[2]
    assert len(files_of(pid)) == 1
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), WAIT_S)
    assert made.result(WAIT_S).sum() == TOTAL
    assert len(left()) == 1
    del made


CLIENT = """
import os, re, signal, numpy, weft

if __name__ == "__main__":
    client = weft.Client(n_workers=1)
    array = numpy.arange(2_000_000.0)
    assert client.submit(len, array).result() == 2_000_000
    paths = [f"/proc/self/fd/{i}" for i in range(100)]
    names = " ".join(os.readlink(path) for path in paths if os.path.lexists(path))
    print(*re.findall("/memfd:(weft-[0-9a-f]+)", names), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_client_leaves_nothing(tmp_path, wait_until):
    (tmp_path / "program.py").write_text(CLIENT)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        check=False,
        timeout=WAIT_S,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL
    names = set(done.stdout.split())
    assert len(names) == 1
    wait_until(lambda: not any(names & files_of(pid) for pid in psutil.pids()), WAIT_S)


def spilled_total(array):
    """Return the sum, and whether a file on disk is mapped here."""
    return float(array.sum()), ".spill/" in Path("/proc/self/maps").read_text()


def test_a_value_on_disk_is_read_from_there(tmp_path, wait_until):
    folder = tmp_path / "files"
    with (
        weft.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=280 * MB, local_directory=folder
        ) as cluster,
        weft.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        made = []
        for _ in range(16):  # together they would outrun the disk on a machine that is loaded
            made.append(on(client, 0, make, FEW))
            weft.wait(made, timeout=WAIT_S)
        wait_until(lambda: len(list(folder.glob("**/*.spill/*"))) >= 4, WAIT_S)
        # The first ones have left. Nothing of the reader has, so it is a file of the other worker.
        assert on(client, 1, spilled_total, made[0]).result(WAIT_S) == (SUM_OF_FEW, True)
        for future in made:
            assert on(client, 1, spilled_total, future).result(WAIT_S)[0] == SUM_OF_FEW
        assert sum(array.sum() for array in client.gather(made[:3])) == 3 * SUM_OF_FEW
        names = [event["event"] for _, event in client.get_events("scheduler")]
        assert "worker-lost" not in names
        del made, future
    assert list(folder.iterdir()) == []
