"""A program in a group of its own: all of it ends, whoever ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from weft.worker.commands.process_group import run_process


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def run(tmp_path, script, **options):
    return run_process(["/bin/sh", "-c", script], env=os.environ, folder=str(tmp_path), **options)


#: Two processes, which write their numbers and go on for ever.
TWO = 'sleep 1000 & echo "$! $$" > pids.tmp; mv pids.tmp pids; wait'


def numbers(path, wait_until):
    wait_until(path.exists)
    return [int(word) for word in path.read_text().split()]


def test_processes_that_a_program_leaves_behind_are_ended(tmp_path, wait_until):
    end = run(tmp_path, "sleep 1000 & echo $!")
    assert end.returncode == 0
    wait_until(lambda: not is_alive(int(end.stdout)))


def test_a_program_is_asked_to_end_and_then_killed(tmp_path, wait_until):
    script = 'trap "echo asked" TERM; echo > ready; while :; do sleep 0.01; done'
    end = run(tmp_path, script, is_wanted=lambda: not (tmp_path / "ready").exists())
    assert (end.returncode, end.stdout) == (-signal.SIGKILL, b"asked\n")
    end = run(tmp_path, TWO, is_wanted=lambda: not (tmp_path / "pids").exists())
    assert end.returncode == -signal.SIGTERM
    found = numbers(tmp_path / "pids", wait_until)
    wait_until(lambda: not any(map(is_alive, found)))


def test_processes_that_a_shell_has_started_have_time_to_end_as_well(tmp_path):
    inner = 'trap "sleep 0.1; echo > saved; exit" TERM; echo > ready; while :; do sleep 0.01; done'
    script = f"sh -c '{inner}' | cat"
    end = run(tmp_path, script, is_wanted=lambda: not (tmp_path / "ready").exists())
    assert end.returncode == -signal.SIGTERM
    assert (tmp_path / "saved").exists()


def test_a_group_gets_signals_only_while_its_number_is_certainly_its_own(tmp_path, monkeypatch):
    send, signalled = os.killpg, []

    def killpg(group, number):
        # A child that is not reaped holds its number.
        signalled.append(os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        send(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    assert run(tmp_path, "true").returncode == 0
    ready = tmp_path / "ready"
    run(tmp_path, "echo > ready; sleep 1000", is_wanted=lambda: not ready.exists())
    assert len(signalled) >= 3


def test_a_program_whose_time_is_over_is_ended_and_what_it_has_printed_is_kept(tmp_path):
    end = run(tmp_path, "echo so far; sleep 1000", timeout_s=0.1)
    assert (end.returncode, end.stdout, end.is_late) == (-signal.SIGTERM, b"so far\n", True)
    assert not run(tmp_path, "echo", timeout_s=60).is_late


def test_an_exception_of_the_waiting_thread_ends_the_program(tmp_path, wait_until):
    def look():
        if (tmp_path / "pids").exists():
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, TWO, is_wanted=look)
    found = numbers(tmp_path / "pids", wait_until)
    wait_until(lambda: not any(map(is_alive, found)))


def test_a_program_ends_with_the_process_that_runs_it_however_that_ends(tmp_path, wait_until):
    code = (
        "import os, sys\n"
        "from weft.worker.commands.process_group import run_process\n"
        "run_process(['/bin/sh', '-c', sys.argv[1]], env=os.environ, folder=sys.argv[2])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, TWO, str(tmp_path)])
    found = numbers(tmp_path / "pids", wait_until)
    assert all(map(is_alive, found))
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_alive, found)))


def test_a_process_that_has_left_the_group_holds_nobody_up(tmp_path, wait_until):
    leaver = "import os, time; os.setsid(); print(os.getpid(), file=open('pids.tmp', 'w')); "
    leaver += "os.rename('pids.tmp', 'pids'); time.sleep(1000)"
    wait = "while ! test -e pids; do sleep 0.01; done; echo done"
    end = run(tmp_path, f'{sys.executable} -c "{leaver}" & {wait}')
    try:
        assert (end.returncode, end.stdout) == (0, b"done\n")
    finally:
        (pid,) = numbers(tmp_path / "pids", wait_until)
        os.kill(pid, signal.SIGKILL)


def test_many_run_in_threads_at_the_same_time(tmp_path):
    ends = []
    threads = [
        threading.Thread(target=lambda i=i: ends.append(run(tmp_path, f"cat; echo {i}").stdout))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == [b"%d\n" % i for i in range(8)]


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "nowhere", "true")


def test_the_memory_of_all_processes_is_seen_while_they_run(tmp_path):
    hold = "x = bytearray(40_000_000); open(f'held-{n}', 'w'); import time; time.sleep(1000)"
    script = " & ".join(f'exec {sys.executable} -c "n = {n}; {hold}"' for n in (1, 2))
    seen = []

    def is_wanted():
        """Let both go on until both hold their memory, and that was seen."""
        are_here = all((tmp_path / f"held-{n}").exists() for n in (1, 2))
        return not are_here or max(seen) < 80_000_000

    end = run(tmp_path, script, seen=seen.append, is_wanted=is_wanted)
    assert end.returncode == -signal.SIGTERM
    assert 80_000_000 < max(seen) < 400_000_000
