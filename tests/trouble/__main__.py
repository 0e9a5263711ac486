"""Run rounds of a random graph on real daemons under trouble; see tests/trouble/README.md."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.daemons import run

from .cluster import Cluster
from .orders import Orders
from .troubles import Troubles

N_CLIENTS = 2
TICK_S = 0.05
#: Missing results of each client that are explained.
MAX_EXPLAINED = 3
#: Time that a client gets to report after it was asked to.
REPORT_S = 30


class Watched:
    """A client's process, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.n_done = 0
        self.n_wanted = 0
        self.report: dict[str, Any] | None = None
        self._reader = threading.Thread(target=self._read, name="client's output")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what = json.loads(line)
            self.n_done = what.get("done", self.n_done)
            self.n_wanted = what.get("wanted", self.n_wanted)
            self.report = what.get("report", self.report)

    @property
    def is_over(self) -> bool:
        return self.report is not None or self.process.poll() is not None

    def ask(self) -> None:
        """Have it report now."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("report\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended; what it has printed may still have to be read
        self.join()

    def join(self) -> None:
        """Wait until all of its output was read."""
        self._reader.join(REPORT_S)


@dataclass
class Outcome:
    """The outcome of one round."""

    seed: int
    tasks: int
    seconds: float = 0.0
    after_trouble_s: float = 0.0
    late: int = 0
    missing: int = 0
    wrong: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    diagnosis: str = ""

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.wrong or self.diagnosis)

    def describe(self) -> str:
        """Write the round's line."""
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.troubles.items()))
        return (
            f"seed {self.seed}: {self.tasks} tasks, {self.seconds:.1f} s "
            f"({self.after_trouble_s:.1f} s after the last trouble, {self.late} results came then)"
            f", {self.missing} missing, {self.wrong} wrong; trouble {sum(self.troubles.values())}: "
            f"{kinds or 'none'}"
        )


def run_round(seed: int, options: argparse.Namespace, folder: Path) -> Outcome:
    """Run one round in `folder`."""
    outcome = Outcome(seed, options.tasks)
    counted = folder / "tries"
    counted.mkdir()
    start = time.monotonic()

    def say(text: str) -> None:
        text = f"{time.strftime('%H:%M:%S')} {time.monotonic() - start:6.1f} s  {text}"
        with open(folder / "troubles.log", "a", encoding="utf-8") as file:
            print(text, file=file)
        if options.verbose:
            print(text, flush=True)

    cluster = Cluster(folder, options.hosts)
    orders = Orders(cluster.file, say)
    clients: list[Watched] = []
    try:
        for number in range(N_CLIENTS):
            arguments = ["--seed", str(seed), "--tasks", str(options.tasks // N_CLIENTS)]
            ports = [host.address.rsplit(":", 1)[1] for host in cluster.hosts]
            arguments += ["--folder", str(counted), "--spare", str(cluster.scheduler_port), *ports]
            clients.append(Watched(cluster.start_client(number, arguments)))
        start = time.monotonic()
        troubles = Troubles(seed, cluster, orders, N_CLIENTS, say)
        ticks = threading.Event()  # never set: it is waited for in steps
        while _is_open(clients) and time.monotonic() - start < options.trouble:
            troubles.step()
            ticks.wait(TICK_S)
        healed = time.monotonic()
        n_before = sum(client.n_done for client in clients)
        say(f"trouble ends, {n_before} results are there")
        troubles.heal()
        while _is_open(clients) and time.monotonic() - healed < options.patience:
            troubles.mend(time.monotonic())
            ticks.wait(TICK_S)
        if _is_open(clients):
            outcome.diagnosis = diagnose(cluster)
        outcome.seconds = time.monotonic() - start
        outcome.after_trouble_s = time.monotonic() - healed
        outcome.troubles = troubles.done
        for client in clients:
            client.ask()
            _count(outcome, client)
        n_done = sum(client.report["done"] for client in clients if client.report is not None)
        outcome.late = n_done - n_before if outcome.after_trouble_s > TICK_S else 0
        say(outcome.describe())
        if not outcome.is_good:
            outcome.diagnosis += explain(cluster, clients)
            outcome.diagnosis = f"{outcome.diagnosis}\nlogs, and what was done: {folder}"
            (folder / "diagnosis.txt").write_text(outcome.diagnosis, encoding="utf-8")
    finally:
        cluster.close()
        orders.close()
        for client in clients:
            client.join()
    return outcome


def _is_open(clients: list[Watched]) -> bool:
    return not all(client.is_over for client in clients)


def _count(outcome: Outcome, client: Watched) -> None:
    report = client.report
    if report is None:
        outcome.missing += client.n_wanted or 1
        outcome.diagnosis += f"\na client ended with {client.process.poll()} and no report"
        return
    outcome.missing += report["n_missing"]
    outcome.wrong += report["n_wrong"]
    for position, key, status in report["missing"]:
        outcome.diagnosis += f"\nmissing: call {position}, key {key}, its future is {status}"
    for position, key, found, expected in report["wrong"]:
        outcome.diagnosis += f"\nwrong: call {position}, key {key}: {found} instead of {expected}"


def diagnose(cluster: Cluster) -> str:
    """Describe a cluster that does not finish."""
    lines = [_answer(cluster, "info")]
    for host in cluster.hosts:
        processes = ", ".join(f"{p.pid} {p.status()}" for p in host.family())
        lines.append(f"{host.name}: processes {processes or 'none'}")
    return "\n".join(lines)


def explain(cluster: Cluster, clients: list[Watched]) -> str:
    """Ask why the first missing results are not there: their clients keep their lease for a while.

    An explanation leads to the task that the others wait for, and names its worker.
    """
    reports = [client.report for client in clients if client.report is not None]
    keys = [key for report in reports for _, key, _ in report["missing"][:MAX_EXPLAINED]]
    lines = [_answer(cluster, command, key) for key in keys for command in ("explain", "info")]
    return "".join(f"\n{line}" for line in lines)


def _answer(cluster: Cluster, *command: str) -> str:
    name, *arguments = command
    options = ("--connection-file", str(cluster.file))
    try:
        done = run(name, *options, *arguments, folder=cluster.folder, timeout=60)
    except subprocess.TimeoutExpired:
        return f"weft {' '.join(command)} got no answer within 60 s"
    return done.stdout + done.stderr


def main() -> int:
    """Run the rounds that the command line asks for; 1 if a result is missing or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.trouble", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how many; default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first round; then the next")
    parser.add_argument("--tasks", type=int, default=3000, help="in all; default %(default)s")
    parser.add_argument("--hosts", type=int, default=2, help="weft worker commands")
    parser.add_argument(
        "--trouble", type=float, default=120.0, metavar="SECONDS", help="ends after so long"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="how long after the last trouble all results have to come",
    )
    parser.add_argument("--folder", type=Path, help="for logs; default: temporary")
    parser.add_argument("--keep", action="store_true", help="keep the logs of good rounds")
    parser.add_argument("--verbose", action="store_true", help="print each trouble")
    options = parser.parse_args()
    # Ended from outside, it still ends what it has started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parent = options.folder or Path(tempfile.mkdtemp(prefix="weft-trouble-"))
    failed = []
    for seed in range(options.seed, options.seed + options.rounds):
        folder = parent / f"seed-{seed}"
        folder.mkdir(parents=True)
        outcome = run_round(seed, options, folder)
        print(outcome.describe(), flush=True)
        if not outcome.is_good:
            failed.append(seed)
            print(outcome.diagnosis, flush=True)
        elif not options.keep:
            shutil.rmtree(folder)
    if not failed and not options.keep and options.folder is None:
        parent.rmdir()
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
