"""A real Grid Engine on loopback, with one host of four slots, for tests.

Its configuration, files and ports are its own. The two daemons run in the foreground, as children,
and end with the block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.leaks import wait_until
from tests.tools.find import tool

#: Where the packages of Debian put programs and what a new cluster needs.
_LIB = Path("/usr/lib/gridengine")
_SHARE = Path("/usr/share/gridengine")
_BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn false
spooling_method classic
spooling_lib libspoolc
spooling_params {cell}/common;{cell}/spool/qmaster
binary_path {root}/bin
qmaster_spool_dir {cell}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
jvm_threads 0
"""
_PARALLEL = """\
pe_name smp
slots 100
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
#: The settings of a kind that differ from the defaults.
_GLOBAL = {
    "min_uid": "0",
    "min_gid": "0",
    "mailer": "/bin/true",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:00 joblog=false "
    "sharelog=00:00:00",
}
_SCHEDULER = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
_QUEUE = {
    "qname": "all.q",
    "hostlist": "localhost",
    "load_thresholds": "NONE",
    "slots": "4",
    "pe_list": "smp",
    "shell_start_mode": "unix_behavior",
    "notify": "00:00:05",
}


@dataclass
class GridEngine:
    """A running Grid Engine; `env` is how its commands find it."""

    root: Path
    env: dict[str, str]

    def run(self, *command: str) -> str:
        """Run a command of it; return what it printed."""
        done = subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def configure(self, option: str, name: str, text: str) -> None:
        """Add or change an object by a file."""
        folder = Path(tempfile.mkdtemp(dir=self.root))
        (folder / name).write_text(text)
        self.run("qconf", option, str(folder / name))


@contextlib.contextmanager
def grid_engine() -> Iterator[GridEngine]:
    """Run sge_qmaster and sge_execd; the test is skipped without root."""
    tool("sge_qmaster"), tool("sge_execd"), tool("qsub")
    if os.geteuid() != 0:
        pytest.skip("the daemons of Grid Engine need root, which its users do not")
    root = Path(tempfile.mkdtemp(prefix="weft-sge-"))
    root.chmod(0o755)
    qmaster, execd = _ports(2)
    made = GridEngine(
        root,
        {
            **os.environ,
            "SGE_ROOT": str(root),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(qmaster),
            "SGE_EXECD_PORT": str(execd),
            "SGE_ND": "1",  # in the foreground
        },
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        _start(made, processes)
        yield made
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        shutil.rmtree(root, ignore_errors=True)


def _ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [server.getsockname()[1] for server in taken]


def _start(made: GridEngine, processes: list[subprocess.Popen[bytes]]) -> None:
    root, cell = made.root, made.root / "default"
    (cell / "common").mkdir(parents=True)
    (cell / "spool" / "qmaster" / "job_scripts").mkdir(parents=True)
    (root / "spool").mkdir()
    (root / "bin").mkdir()
    (root / "util").symlink_to(_SHARE / "util")
    arch = subprocess.run(
        [_SHARE / "util" / "arch"], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()
    (root / "bin" / arch).symlink_to(_LIB)
    common = cell / "common"
    (common / "bootstrap").write_text(_BOOTSTRAP.format(root=root, cell=cell))
    (common / "act_qmaster").write_text("localhost\n")
    # One name for this host, by whichever it is called.
    names = dict.fromkeys(["localhost", socket.gethostname(), socket.getfqdn()])
    (common / "host_aliases").write_text(" ".join(names) + "\n")
    text = _changed((_SHARE / "default-configuration").read_text(), _GLOBAL)
    (root / "global").write_text(text.replace("/var/spool/gridengine/execd", str(root / "spool")))
    spool = f"{common};{cell / 'spool' / 'qmaster'}"
    made.run(str(_LIB / "spoolinit"), "classic", "libspoolc", spool, "init")
    for what in (
        ("configuration", str(root / "global")),
        ("complexes", str(_SHARE / "util" / "resources" / "centry")),
        ("usersets", str(_SHARE / "util" / "resources" / "usersets")),
        ("managers", "root"),
    ):
        made.run(str(_LIB / "spooldefaults"), *what)
    processes.append(_daemon(made, "sge_qmaster"))
    wait_until(lambda: _answers(made, processes), 60, "sge_qmaster")
    made.run("qconf", "-as", "localhost")
    made.configure("-Msconf", "sconf", _changed(made.run("qconf", "-ssconf"), _SCHEDULER))
    made.configure("-Ap", "smp", _PARALLEL)
    processes.append(_daemon(made, "sge_execd"))
    made.configure("-Aq", "all.q", _changed(made.run("qconf", "-sq"), _QUEUE))
    wait_until(lambda: "lx-" in made.run("qhost"), 60, "sge_execd")


def _changed(text: str, values: dict[str, str]) -> str:
    """Return lines of a name and a value with other values."""
    text = text.replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.partition(" ")[0] not in values]
    return "\n".join([*lines, *(f"{name} {value}" for name, value in values.items())]) + "\n"


def _daemon(made: GridEngine, name: str) -> subprocess.Popen[bytes]:
    with open(made.root / f"{name}.out", "wb") as out:
        return subprocess.Popen(
            [_LIB / name], env=made.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )


def _answers(made: GridEngine, processes: list[subprocess.Popen[bytes]]) -> bool:
    assert processes[0].poll() is None, (made.root / "sge_qmaster.out").read_text()
    done = subprocess.run(
        ["qconf", "-sh"], env=made.env, capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0
