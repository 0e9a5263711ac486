"""The facts that are printed and written with every figure: machine, versions and commit."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil


def commit(root: Path) -> str:
    """Return the short commit id of the checkout, "+" behind it if files differ from it;
    "unknown" outside one.
    """
    head = _git(root, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    return head + ("+" if _git(root, "status", "--porcelain") else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def describe(root: Path) -> dict[str, Any]:
    """Return the facts that identify this machine and this state of the code."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(root),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cores": n_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        # More than a few tenths per core at the start: other processes are at work, and every
        # figure suffers.
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def headline(title: str, facts: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Return the first lines of every output."""
    return (
        f"{title}, {facts['date']}, commit {facts['commit']}\n"
        f"{facts['implementation']} {facts['python']} on {facts['system']}, {facts['cpu']}, "
        f"{facts['cores']} cores, {facts['memory_bytes'] / 2**30:.0f} GiB; load at the start "
        f"{facts['load_1min']}\n"
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )
