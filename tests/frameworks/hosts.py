"""Programs of other projects, run as their users do: as processes, in a folder of their own."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import subprocess
import sys

import pytest

#: Of one program; those that hang fail, and their processes end with them.
LIMIT_S = 600


def required(distribution, extra):
    """Skip the test unless a distribution is installed; return its version."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is missing: pip install 'weft[{extra}]'")


def started(command, folder, stdout=subprocess.PIPE, **environment):
    """Start a command in a process group of its own, which `ended` ends as a whole."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "HOME": str(folder), **environment}
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env["PATH"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process):
    """Wait for a process; return its exit code, and what it printed."""
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, printed


def run(command, folder, **environment):
    """Run a command; return its exit code, and what it printed."""
    return ended(started(command, folder, **environment))


def run_python(program, folder, **environment):
    """Run a program of Python; return what it printed."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    code, printed = run([sys.executable, str(path)], folder, **environment)
    assert code == 0, printed
    return printed
