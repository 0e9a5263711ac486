"""Values through shared memory: they arrive unchanged, and leave no file behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import bench_sharing
from weft.graphs.processes import sharing
from weft.graphs.processes.sharing import (
    ALIGNMENT,
    SHARED_NBYTES,
    Packed,
    SharedDirectory,
    discard,
    pack,
    unpack,
)
from weft.protocol.errors import SerializationError

N_LARGE = SHARED_NBYTES // 8  # float64s that go through shared memory
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def directory():
    with SharedDirectory.create() as made:
        yield made.path
        assert os.listdir(made.path) == [], "each test discards what it packed"


@contextmanager
def packed(obj, directory):
    made = pack(obj, directory)
    try:
        yield made
    finally:
        discard(made, directory)


def round_trip(obj, directory):
    with packed(obj, directory) as made:
        return unpack(pickle.loads(pickle.dumps(made)), directory)


def python(code):
    """Run `code` in a fresh interpreter; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- round trips ----------------------------------------------------------------------------------

SIZES = st.sampled_from([0, 1, 100, 4095, 4096, 4097, 20_000, SHARED_NBYTES - 100, 70_001, 200_000])


def some_bytes(n):
    return bytes(bytearray(range(251)) * (n // 251 + 1))[:n]


@st.composite
def arrays(draw):
    dtype = draw(st.sampled_from(["u1", "f8", "c16", "M8[s]", "S3", "i4,f8"]))
    data = some_bytes(draw(SIZES))
    itemsize = np.dtype(dtype).itemsize
    array = np.frombuffer(data[: len(data) // itemsize * itemsize], dtype).copy()
    if len(array) % 2 == 0:
        array = array.reshape(2, -1)
    array = draw(st.sampled_from([array, array.T, array[::2], array[..., ::-1]]))
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


LEAVES = st.one_of(
    st.none(), st.integers(), SIZES.map(some_bytes), SIZES.map(some_bytes).map(bytearray), arrays()
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def assert_same(left, right):
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        assert_same(list(left.values()), list(right.values()))
    else:
        assert left == right


@settings(max_examples=60)
@given(value=NESTED)
def test_value_round_trips(directory, value):
    with packed(value, directory) as made:
        assert_same(unpack(made, directory), value)
        assert_same(unpack(made, directory), value)  # as many readers as there are
        assert len(pickle.dumps(made)) < SHARED_NBYTES + 1000


@pytest.mark.parametrize("n", [10, 2000, N_LARGE], ids=["tiny", "medium", "shared"])
def test_array_is_writable_if_it_was(directory, n):
    array = np.arange(n, dtype=float)
    assert round_trip(array, directory).flags.writeable
    array.flags.writeable = False
    back = round_trip(array, directory)
    # Where pickle copies a small array into its stream, numpy forgets the flag.
    assert not back.flags.writeable or n == 10
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0),
        np.zeros((0, 100_000)),
        np.arange(400_000.0)[::3],
        np.arange(400_000.0).reshape(400, 1000)[:, ::2],
        np.asfortranarray(np.arange(400_000.0).reshape(400, 1000)),
        np.arange(400_000.0).reshape(400, 1000).T,
        np.array(["a", None, 3] * 30_000, dtype=object),
        np.array(12.0),
        np.ma.masked_greater(np.arange(30_000.0), 100),
    ],
    ids=["empty", "flat", "stride", "columns", "fortran", "transposed", "objects", "0d", "masked"],
)
def test_array_of_any_layout_round_trips(directory, array):
    back = round_trip(array, directory)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable
    assert type(back) is type(array)


def test_dataframe_round_trips_and_can_be_changed(directory):
    frame = pd.DataFrame(
        {
            "x": np.arange(50_000.0),
            "name": [f"n{i}" for i in range(50_000)],
            "when": pd.date_range("2020", periods=50_000, freq="s"),
            "kind": pd.Categorical(["a", "b"] * 25_000),
        }
    )
    back = round_trip(frame, directory)
    pd.testing.assert_frame_equal(back, frame)
    back.loc[0, "x"] = -1.0
    back["y"] = back.x + 1
    assert (back.x[0], frame.x[0]) == (-1.0, 0.0)


def test_arrow_table_round_trips(directory):
    table = pa.table({"x": np.arange(50_000), "s": [str(i) for i in range(50_000)]})
    back = round_trip(table, directory)
    back.validate(full=True)
    assert back.equals(table)


# --- blob or segment ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, (1, 2), "text", b"x" * 1000, [np.arange(1000.0)] * 3])
def test_small_value_stays_in_the_blob(directory, value):
    made = pack(value, directory)
    assert made.segments == ()
    assert_same(unpack(made, directory), value)


@pytest.mark.parametrize(
    "value",
    [
        np.ones(N_LARGE),
        [np.ones(1000) for _ in range(20)],  # together
        b"x" * SHARED_NBYTES,
        "ä" * SHARED_NBYTES,
        list(range(100_000)),
        [np.full(1000, float(i)) for i in range(600)],  # more buffers than pickling keeps apart
    ],
    ids=["array", "arrays", "bytes", "text", "numbers", "many arrays"],
)
def test_large_value_is_one_file_and_a_short_message(directory, value):
    with packed(value, directory) as made:
        assert len(pickle.dumps(made)) < 4096 + 1024 * 3
        (segment,) = made.segments
        (name,) = os.listdir(directory)
        assert segment.name == name
        status = os.stat(os.path.join(directory, name))
        assert status.st_size == segment.nbytes >= SHARED_NBYTES
        assert status.st_mode & 0o777 == 0o600
        assert_same(unpack(made, directory), value)


def test_buffers_are_aligned(directory):
    value = [np.arange(10_001, dtype="u1"), np.arange(30_001, dtype="u1"), np.ones(N_LARGE)]
    for back in round_trip(value, directory):
        assert back.ctypes.data % ALIGNMENT == 0


def test_plain_tuple_is_as_good_as_a_packed(directory):
    with packed([1, np.ones(N_LARGE)], directory) as made:
        plain = pickle.loads(pickle.dumps(tuple(made)))
        assert type(plain) is tuple
        assert_same(unpack(plain, directory), [1, np.ones(N_LARGE)])
        discard(plain, directory)
        assert os.listdir(directory) == []


def test_file_of_the_same_name_is_not_touched(directory):
    with packed(np.ones(N_LARGE), directory) as first:
        pid, number = first.segments[0].name.split("-")
        taken = Path(directory, f"{pid}-{int(number, 16) + 1:x}")
        taken.write_text("of another process that had this pid")
        with packed(np.zeros(N_LARGE), directory) as second:
            assert second.segments[0].name not in {first.segments[0].name, taken.name}
        assert taken.read_text() == "of another process that had this pid"
        taken.unlink()


# --- sharing --------------------------------------------------------------------------------------


def test_writing_to_an_array_changes_no_other_reader(directory):
    original = np.zeros(4 * N_LARGE)
    with packed(original, directory) as made:
        mine, yours = unpack(made, directory), unpack(made, directory)
        mine[:] = 1
        assert (yours == 0).all()
        assert (unpack(made, directory) == 0).all()
        assert (original == 0).all()
        original[:] = 2
        assert (yours == 0).all()


def test_discarded_value_stays_valid_for_its_readers(directory):
    made = pack({"a": np.arange(N_LARGE)}, directory)
    value = unpack(made, directory)
    discard(made, directory)
    discard(made, directory)
    np.testing.assert_array_equal(value["a"], np.arange(N_LARGE))
    value["a"][0] = 5
    with pytest.raises(FileNotFoundError):
        unpack(made, directory)


def test_shortened_file_is_refused(directory):
    """Otherwise reading the array would end the process."""
    with packed(np.ones(N_LARGE), directory) as made:
        os.truncate(os.path.join(directory, made.segments[0].name), 5000)
        with pytest.raises(ValueError, match=r"segment|length is greater"):
            unpack(made, directory)


def mappings(directory):
    return Path("/proc/self/maps").read_text().count(directory)


@on_linux
def test_value_keeps_a_mapping_but_no_open_file(directory):
    sharing._libc_mmap()  # loads a library
    n_files = len(os.listdir("/proc/self/fd"))
    with packed([np.ones(N_LARGE), np.ones(N_LARGE)], directory) as made:
        values = [unpack(made, directory) for _ in range(50)]
        assert len(os.listdir("/proc/self/fd")) == n_files
        assert mappings(directory) == 50
        part = values[0][1][100:200]
        del values
        gc.collect()
        assert mappings(directory) == 1
    assert part.sum() == 100
    del part
    assert mappings(directory) == 0


@on_linux
def test_value_without_arrays_keeps_nothing(directory):
    with packed(list(range(100_000)), directory) as made:
        value = unpack(made, directory)
        assert mappings(directory) == 0
    assert value[-1] == 99_999


@on_linux
def test_failed_mapping_is_an_error_and_leaves_the_memory_alone(directory):
    fd = os.open(directory, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="No such device"):
            sharing._map(fd, 1)
    finally:
        os.close(fd)


@on_linux
@pytest.mark.slow
def test_value_is_read_where_it_cannot_be_mapped(directory):
    with packed(np.arange(N_LARGE), directory) as made:
        out = python(f"""
            import logging, resource, sys
            from weft.graphs.processes.sharing import Segment, unpack

            logging.basicConfig(level="DEBUG", format="%(message)s", stream=sys.stdout)
            made = {tuple(made)!r}
            first = unpack(made, {directory!r})
            rooms = [bytearray(100_000) for _ in range(100)]  # too small to be mapped themselves
            lid = [bytearray(1000) for _ in range(100)]  # or their memory could be given back
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (1, hard))  # no new memory at all
            del rooms
            second = unpack(made, {directory!r})
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            second[0] += 1
            print(first.sum(), second.sum())
        """)
        said, sums = out.splitlines()
        assert said.startswith(f"{made.segments[0].name} is read, because mapping it failed")
        expected = N_LARGE * (N_LARGE - 1) // 2
        assert sums == f"{expected} {expected + 1}"


# --- no room --------------------------------------------------------------------------------------


@contextmanager
def file_system_of(size, path):
    """Mount a file system of memory of this size on `path`."""
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        done = subprocess.run(["mount", *options], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount here")
    if done.returncode:
        pytest.skip("only root may mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def tiny_directory(tmp_path):
    """A directory with room for 256 KiB."""
    with file_system_of("256k", tmp_path):
        yield str(tmp_path)


def test_value_that_finds_no_room_stays_in_the_blob(tiny_directory, caplog):
    sharing._say_no_room.cache_clear()
    caplog.set_level("DEBUG", "weft.client")
    value = {"a": np.arange(20_000.0), "b": bytearray(b"y" * 5000), "c": np.ones(1000)}
    with packed(value, tiny_directory) as first:
        assert first.segments
        for _ in range(3):
            second = pack(value, tiny_directory)
            assert second.segments == ()
            assert_same(unpack(second, tiny_directory), value)
            assert unpack(second, tiny_directory)["a"].flags.writeable
        assert os.listdir(tiny_directory) == [first.segments[0].name]
        assert len(caplog.records) == 1
        assert "No space left" in caplog.text
    with packed(value, tiny_directory) as third:  # there is room again
        assert third.segments


def test_missing_room_is_seen_before_the_rest_is_filled(tiny_directory):
    with open(Path(tiny_directory, "file"), "wb") as file:
        sharing._check_room(file.fileno(), 200_000)
        with pytest.raises(OSError, match="No space left"):
            sharing._check_room(file.fileno(), 300_000)


def test_file_system_without_a_limit_has_room(tmp_path):
    with file_system_of("0", tmp_path), packed(np.ones(N_LARGE), str(tmp_path)) as made:
        assert made.segments


@pytest.mark.skipif(sys.platform == "win32", reason="no such limits")
@pytest.mark.slow
def test_failure_while_writing_leaves_no_file(directory):
    """The limit is met in the middle of the file, which asking for free space does not foresee."""
    code = f"""
        import os, resource
        import numpy as np
        from weft.graphs.processes.sharing import pack, unpack

        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        value = [np.arange(10_000.0), np.arange(10_000.0), b"z" * 200_000]
        made = pack(value, {directory!r})
        assert made.segments == ()
        back = unpack(made, {directory!r})
        assert all((a == b).all() for a, b in zip(back[:2], value)) and back[2] == value[2]
        assert pack(b"z" * 200_000, {directory!r}).segments == ()
        print(os.listdir({directory!r}))
    """
    assert python(code) == "[]\n"


def test_directory_that_is_gone_is_no_room(tmp_path):
    made = pack(np.ones(N_LARGE), str(tmp_path / "closed"))
    assert made.segments == ()
    assert_same(unpack(made, str(tmp_path / "closed")), np.ones(N_LARGE))


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [b"", np.ones(N_LARGE)], ids=["small", "large"])
def test_an_object_that_cannot_be_pickled_is_named(directory, beside):
    value = {"rows": beside, "conn": [1, threading.Lock()]}
    with pytest.raises(SerializationError) as info:
        pack(value, directory, "the result of 'load'")
    assert info.value.where == "the result of 'load'['conn'][1]"
    assert info.value.type_name == "_thread.lock"
    assert os.listdir(directory) == []


def test_function_of_main_travels_by_value(directory):
    factor = np.arange(N_LARGE)
    with packed(lambda x: factor * x, directory) as made:
        assert made.segments
        np.testing.assert_array_equal(unpack(made, directory)(2), factor * 2)


# --- processes ------------------------------------------------------------------------------------


def double_until_none(connection, directory):
    """Answer each packed list of arrays by one with twice the numbers, made in place."""
    while (made := connection.recv()) is not None:
        values = unpack(made, directory)
        for array in values:
            array *= 2
        connection.send(pack(values, directory))
        connection.send(len(os.listdir("/dev/fd")))


@pytest.mark.slow
def test_processes_hand_values_to_each_other(directory):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=double_until_none, args=(theirs, directory))
    process.start()
    theirs.close()
    n_files = []
    for n in [10, 1000, N_LARGE, 100_000, 100_000]:
        value = [np.arange(n), np.ones(n)]
        with packed(value, directory) as made:
            ours.send(made)
            answer = ours.recv()
            n_files.append(ours.recv())
            assert isinstance(answer, Packed)
            assert bool(answer.segments) == (n >= N_LARGE)
            assert_same(unpack(answer, directory), [np.arange(n) * 2, np.ones(n) * 2])
            assert_same(unpack(made, directory), value)
            discard(answer, directory)
    ours.send(None)
    process.join()
    ours.close()
    process.close()
    assert n_files[-1] == n_files[2], "a worker keeps no file open for a value"


@pytest.mark.slow
def test_benchmark_runs():
    rows = bench_sharing.run(sizes=[1024, 2 * SHARED_NBYTES], repeat=2)
    assert [row.nbytes for row in rows] == [1024, 2 * SHARED_NBYTES]
    assert all(row.shared_s > 0 and row.pipe_s > 0 for row in rows)
