"""The command as the first process of a container, to which the kernel passes few signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.deploy.daemons import environment

_UNSHARE = ["unshare", "--pid", "--fork", "--kill-child"]


@pytest.fixture
def first_process() -> list[str]:
    """The beginning of a command line that makes the rest the first process."""
    try:
        subprocess.run([*_UNSHARE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a namespace for processes needs root, and unshare of util-linux")
    return _UNSHARE


def test_a_command_that_is_stopped_while_it_starts_ends_at_once(first_process, tmp_path):
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('it goes on')"
    for begin, code in (("import weft.__main__; ", 143), ("", 0)):
        done = subprocess.run(
            [*first_process, sys.executable, "-c", begin + stop],
            env=environment(tmp_path / "run"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # Without the handler the kernel drops the signal: that is what is tested here.
        assert (done.returncode, done.stdout) == (code, "" if code else "it goes on\n")
