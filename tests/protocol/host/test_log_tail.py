"""The end of a log in a file, which is read when its process is dead."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys

import pytest

from weft.protocol.host.log_ring import LogRing
from weft.protocol.host.log_tail import LogTail, read_tail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.log"


@pytest.fixture
def logger(path):
    tail = LogTail(path)
    logger = logging.Logger("app")
    logger.addHandler(LogRing(tail=tail))
    yield logger
    tail.close()


def texts(path):
    return [line.partition(" app: ")[2] for line in read_tail(path).splitlines()]


def test_lines_have_time_level_logger_and_text(path, logger):
    assert read_tail(path) == ""
    logger.warning("%d of %d", 1, 2)
    when, level, name, text = read_tail(path).split(" ", 3)
    assert [len(part) for part in when.split(":")] == [2, 2, 2]
    assert (level, name, text) == ("WARNING", "app:", "1 of 2\n")


def test_the_latest_lines_are_kept_whole_however_many_there_were(path, logger):
    for i in range(20_000):
        logger.warning("line %d", i)
        if i % 997 == 0:
            assert texts(path)[-1] == f"line {i}"
    found = texts(path)
    assert len(found) > 500
    assert found == [f"line {i}" for i in range(20_000 - len(found), 20_000)]


def test_of_a_long_record_the_begin_and_the_end_are_kept(path, logger):
    logger.warning("before")
    logger.warning("begin %s end", "é\n" * 100_000)
    logger.warning("after")
    first, *_, last, after = read_tail(path).splitlines()
    assert first.endswith("before")
    assert last == " end"
    assert after.endswith("after")
    assert "app: begin é" in read_tail(path)


def test_the_lines_before_a_sigkill_are_there(path):
    script = (
        "import logging, os, signal, sys\n"
        "from pathlib import Path\n"
        "from weft.protocol.host.log_ring import keep_latest\n"
        "from weft.protocol.host.log_tail import LogTail\n"
        "keep_latest(LogTail(Path(sys.argv[1])))\n"
        "logging.getLogger('app').error('the last words')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert texts(path) == ["the last words"]


@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes that fork are missing: not on Windows"
)
def test_processes_that_a_task_has_forked_write_nothing(path, logger):
    logger.warning("of the worker")
    pid = os.fork()
    if not pid:
        logger.warning("of its child")
        os._exit(0)
    os.waitpid(pid, 0)
    assert texts(path) == ["of the worker"]


@pytest.mark.parametrize("data", [None, b"", b"half made"])
def test_a_file_that_is_not_there_or_not_whole_has_no_lines(path, data):
    if data is not None:
        path.write_bytes(data)
    assert read_tail(path) == ""
