from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.tools import install, running
from tests.tools.running import GivenUpError, Stillness, Work, work_of


def run(*command, **environment):
    return running.run([*command], cwd=None, environment=environment)


@pytest.fixture
def impatience(monkeypatch):
    monkeypatch.setattr(running, "STILL_S", 0.2)


def test_a_command_that_makes_progress_is_never_given_up():
    stillness = Stillness(now=0.0)
    work = Work(0, 0.0, 0)
    for hour, grown in enumerate([Work(1, 0.0, 0), Work(1, 1.0, 0), Work(1, 1.0, 10**6)], 1):
        assert stillness.seconds(work, 3600.0 * hour - 1) > 3500
        work = grown
        assert stillness.seconds(work, 3600.0 * hour) == 0


def test_the_little_that_an_idle_runtime_does_is_no_progress():
    stillness = Stillness(now=0.0)
    assert stillness.seconds(Work(0, 0.9, 1000), 100.0) == 100.0
    assert stillness.seconds(Work(0, 1.8, 2000), 200.0) == 0


@pytest.mark.slow
def test_work_of_a_program_includes_that_of_processes_it_started(wait_until):
    reading = "while True: open('/dev/zero', 'rb').read(1 << 20)"
    starting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {reading!r}])"
    process = subprocess.Popen([sys.executable, "-c", starting], start_new_session=True)
    try:
        before = work_of(process.pid, 0)
        wait_until(lambda: work_of(process.pid, 0).cpu_s - before.cpu_s > 0.1)
        wait_until(lambda: work_of(process.pid, 0).chars - before.chars > 10 << 20)
    finally:
        for one in psutil.Process(process.pid).children():
            one.kill()
        process.wait()
    assert work_of(process.pid, 7) == Work(7, 0.0, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("impatience")
def test_a_command_that_stands_still_is_ended_with_what_it_started(tmp_path, wait_until):
    script = f"tail -f /dev/null & echo $! >{tmp_path}/pid; wait"
    with pytest.raises(GivenUpError, match=r"nothing for .* load of the machine is [\d.]+ on \d"):
        run("sh", "-c", script)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: has_ended(pid))


def has_ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_output_and_the_exit_code_come_back():
    done = run("sh", "-c", "echo out; echo $WORD >&2; exit 3", WORD="err")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)


@pytest.mark.usefixtures("impatience")
def test_an_installation_that_is_given_up_says_what_stood_still():
    with pytest.raises(install.InstallError, match=r"^tail -f /dev/null: it has printed, read"):
        install._run("tail", "-f", "/dev/null")
