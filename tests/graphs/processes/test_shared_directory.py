"""The directory on shared memory: private, and removed after each kind of end of its owner."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from weft.graphs.processes import shared_directory
from weft.graphs.processes.shared_directory import PREFIX, SharedDirectory
from weft.protocol.errors import ConfigError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no locks on directories there")

OWNER = """
    import os, sys
    from weft.graphs.processes.sharing import SharedDirectory, pack

    owner = SharedDirectory.create()
    pack(b"x" * 1_000_000, owner.path)
    print(owner.path, len(os.listdir(owner.path)), flush=True)
"""


def start(code):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER) + textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def path_of(process):
    path, n_files = process.stdout.readline().split()
    assert n_files == "1"
    assert f"{PREFIX}{process.pid}-" in path
    return path


def others_come():
    SharedDirectory.create().close()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """As if there were no shared memory, and this the folder for temporary files."""
    monkeypatch.setattr(shared_directory, "_SHARED_MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_directory_is_private_and_named_after_its_owner():
    with SharedDirectory.create() as made:
        status = os.stat(made.path)
        assert status.st_mode & 0o777 == 0o700
        assert status.st_uid == os.geteuid()
        assert os.path.basename(made.path).startswith(f"{PREFIX}{os.getpid()}-")
        assert os.path.isabs(made.path)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what is mounted")
def test_the_shared_directory_is_in_memory_where_that_is_possible(tmp_path):
    assert not shared_directory._is_in_memory(str(tmp_path / "nothing"))
    assert not shared_directory._is_in_memory("/proc")
    if not shared_directory._is_in_memory("/dev/shm"):
        pytest.skip("no tmpfs on /dev/shm")
    with SharedDirectory.create() as made:
        assert os.path.dirname(made.path) == "/dev/shm"


def test_the_shared_directory_is_among_the_temporary_files_elsewhere(elsewhere):
    with SharedDirectory.create() as made:
        assert os.listdir(elsewhere) == [os.path.basename(made.path)]
    assert os.listdir(elsewhere) == []


def test_place_without_room_is_a_config_error(elsewhere, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere / "missing"))
    with pytest.raises(ConfigError, match=r"No such file or directory .*missing.*TMPDIR"):
        SharedDirectory.create()


def test_close_removes_all_and_may_come_twice():
    n_files = len(os.listdir("/dev/fd"))
    made = SharedDirectory.create()
    for name in "abc":
        Path(made.path, name).write_text(name)
    made.close()
    assert not os.path.exists(made.path)
    made.close()
    assert len(os.listdir("/dev/fd")) == n_files


def test_close_after_the_directory_was_removed_is_no_error():
    made = SharedDirectory.create()
    os.rmdir(made.path)
    made.close()


def test_forgotten_directory_goes_with_its_object():
    made = SharedDirectory.create()
    path = made.path
    del made
    gc.collect()
    assert not os.path.exists(path)


@pytest.mark.slow
def test_forgotten_directory_goes_when_the_interpreter_ends():
    process = start("sys.modules['keeper'] = owner  # alive to the end\nsys.exit(3)")
    path = path_of(process)
    assert process.wait(60) == 3
    assert not os.path.exists(path)
    process.communicate()


@pytest.mark.slow
def test_the_next_directory_removes_that_of_a_killed_owner():
    process = start("sys.stdin.read()")
    path = path_of(process)
    others_come()
    assert os.path.exists(path), "its owner lives"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert os.path.exists(path)
    others_come()
    assert not os.path.exists(path)


@pytest.mark.slow
def test_directory_stays_while_a_forked_child_of_a_killed_owner_lives(wait_until):
    process = start("os.fork()\nos.write(1, b'ready\\n')\nsys.stdin.read()")
    path = path_of(process)
    for _ in range(2):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    others_come()
    assert os.path.exists(path), "a child may be using it"
    process.communicate()  # the end of its input ends the child

    def is_gone():
        others_come()
        return not os.path.exists(path)

    wait_until(is_gone)


@pytest.mark.slow
def test_end_of_a_forked_child_removes_nothing():
    process = start("""
        if os.fork() == 0:
            owner.close()
            sys.exit()
        os.wait()
        print(os.path.exists(owner.path), flush=True)
    """)
    path = path_of(process)
    # Not `communicate`, which would lose the data that `readline` has read and not returned.
    assert process.stdout.read() == "True\n"
    process.communicate(timeout=60)
    assert not os.path.exists(path)


def test_only_own_directories_are_tidied_up(elsewhere):
    target = elsewhere / "precious"
    target.mkdir()
    (target / "file").write_text("keep")
    (elsewhere / f"{PREFIX}1-link").symlink_to(target)
    (elsewhere / f"{PREFIX}2-file").write_text("keep")
    (elsewhere / "other-3-x").mkdir()
    abandoned = elsewhere / f"{PREFIX}4-abandoned"
    abandoned.mkdir()
    (abandoned / "4-0").write_text("x")
    not_ours = elsewhere / f"{PREFIX}5-x"
    not_ours.mkdir()
    if os.geteuid() == 0:
        os.chown(not_ours, 12345, -1)
    before = {*os.listdir(elsewhere)}
    others_come()
    gone = {abandoned.name} | (set() if os.geteuid() == 0 else {not_ours.name})
    assert {*os.listdir(elsewhere)} == before - gone
    assert (target / "file").read_text() == "keep"
