"""A real Slurm on loopback, with two nodes, for tests: munge, controller and node daemons.

Its configuration, key, sockets and ports are its own, so that it meets no other Slurm. The daemons
run in the foreground, as children, and end with the block.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.leaks import wait_until
from tests.tools.find import tool

NODES = ("n1", "n2")


@dataclass
class Slurm:
    """A running Slurm.

    Attributes:
        folder: of its configuration and logs.
        env: with which its commands find it.
    """

    folder: Path
    env: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *command: str, cwd: Path | None = None, **env: str) -> str:
        """Run a command of Slurm; return what it printed."""
        done = subprocess.run(
            command,
            env={**self.env, **env},
            cwd=cwd,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, *arguments: str, cwd: Path, env: dict[str, str]) -> str:
        """Submit a batch job; return its number."""
        return self.run("sbatch", "--parsable", *arguments, cwd=cwd, **env)

    def state_of(self, job: str) -> str:
        """Return PENDING, RUNNING, COMPLETED and so on; of an array, all of them."""
        return self.run("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job)

    def logs(self) -> str:
        """Return the logs of all daemons, for errors."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def _ports(n: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [server.getsockname()[1] for server in taken]


@contextlib.contextmanager
def slurm() -> Iterator[Slurm]:
    """Run munged, slurmctld and a slurmd for each node; the test is skipped without root."""
    munged, slurmctld, slurmd = tool("munged"), tool("slurmctld"), tool("slurmd")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root, which users of a Slurm do not")
    # munge refuses a folder that others cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="weft-slurm-"))
    folder.chmod(0o755)
    made = Slurm(folder, {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")})
    try:
        _start(made, str(munged), str(slurmctld), str(slurmd))
        yield made
    finally:
        for process in reversed(made.processes):
            process.terminate()
        for process in reversed(made.processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _start(made: Slurm, munged: str, slurmctld: str, slurmd: str) -> None:
    folder = made.folder
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    ctld, *ports = _ports(1 + len(NODES))
    (folder / "state").mkdir()
    n_cpus = min(2, os.cpu_count() or 1)
    nodes = "".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={n_cpus} "
        "RealMemory=500 State=UNKNOWN\n"
        for node, port in zip(NODES, ports, strict=True)
    )
    (folder / "slurm.conf").write_text(
        f"ClusterName=weft\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={ctld}\n"
        "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCryptoType=crypto/munge\n"
        f"AuthInfo=socket={folder}/munge.sock\nMpiDefault=none\n"
        "ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSwitchType=switch/none\n"
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n"
        "SchedulerType=sched/backfill\nReturnToService=2\n"
        f"SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid\n"
        f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n"
        f"SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/slurmd-%n.log\n"
        "KillWait=5\nMinJobAge=300\nAccountingStorageType=accounting_storage/none\n"
        "JobAcctGatherType=jobacct_gather/none\nJobCompType=jobcomp/none\n"
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2\nInactiveLimit=0\n"
        f"{nodes}PartitionName=debug Nodes=ALL Default=YES MaxTime=60 State=UP\n"
    )
    _daemon(
        made,
        *(munged, "--foreground", "--num-threads=1", f"--key-file={key}"),
        *(f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid"),
        *(f"--seed-file={folder}/munged.seed", f"--log-file={folder}/munged.log"),
    )
    wait_until(lambda: (folder / "munge.sock").exists(), 30, "munged")
    _daemon(made, slurmctld, "-D", "-f", str(folder / "slurm.conf"))
    for node in NODES:
        _daemon(made, slurmd, "-D", "-f", str(folder / "slurm.conf"), "-N", node)
    wait_until(lambda: _n_idle(made) == len(NODES), 60, "idle nodes")


def _daemon(made: Slurm, *command: str) -> None:
    name = Path(command[0]).name
    with open(made.folder / f"{name}-{len(made.processes)}.out.log", "wb") as out:
        process = subprocess.Popen(
            command, env=made.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    made.processes.append(process)


def _n_idle(made: Slurm) -> int:
    for process in made.processes:
        assert process.poll() is None, made.logs()
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%t"],
        env=made.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.split().count("idle")
