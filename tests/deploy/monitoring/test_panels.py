"""Each query of the dashboard, on a real Prometheus that has scraped a busy cluster."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.daemons import Daemon, address_of, daemon, file_of, gone, scheduler
from tests.leaks import wait_until
from tests.prometheus import Prometheus
from tests.tools.find import tool
from weft.deploy.monitoring.panels import PANELS, RATE, VARIABLES, Panel
from weft.protocol.trust.connection_file import ConnectionFile

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

#: The command of the docs.
START = "import sys; from weft.deploy.monitoring.start import main; sys.exit(main(sys.argv[1:]))"
PAGE = ("--metrics-address", "127.0.0.1:0")
BUSY = Path(__file__).with_name("busy.py")


class Monitored(Prometheus):
    """A server that was started by the command of the docs."""

    def __init__(self, started: Daemon) -> None:
        self.started = started
        (line,) = [line for line in started.out.splitlines() if line.startswith("Prometheus")]
        super().__init__(line.split()[1].removesuffix("/targets"))

    def values(self, expr: str) -> list[float]:
        """Return the values of a panel's expression."""
        for name in VARIABLES:
            expr = expr.replace(f"${name}", ".*")
        values = [value for _, value in self.series(expr.replace(RATE, "15s"))]
        return [value for value in values if value == value]  # NaN: of a quantile without data


@contextmanager
def _pages_of_workers(path: Path) -> Iterator[None]:
    """Go on when the scheduler lists the page of a family of workers."""
    found = ConnectionFile.read(path)
    token = found.to_security().token_for("view")
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{found.dashboard}sd", headers=headers)

    def listed() -> list[object]:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    wait_until(listed, 60, "the page of the workers")
    yield


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    path = os.pathsep.join([str(tool("prometheus").parent), os.environ["PATH"]])
    folder = tmp_path_factory.mktemp("monitored")
    with (
        scheduler("--dashboard-address", "127.0.0.1:0", folder=folder) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "2", folder=folder) as _,
        daemon("worker", "--nworkers", "1", "--nthreads", "2", *PAGE, folder=folder) as _,
        # Prometheus asks for pages of workers when it starts, and then once a minute.
        _pages_of_workers(file_of(started)),
        daemon(
            "--connection-file",
            str(file_of(started)),
            "--prometheus-port=0",
            "--interval=1s",
            folder=folder,
            code=START,
            PATH=path,
        ) as servers,
    ):
        servers.wait_for("Ctrl-C ends this")
        found = Monitored(servers)
        address = address_of(started)
        code = BUSY.read_text()
        with daemon(address, str(folder / "died"), folder=folder, code=code) as busy:
            busy.wait_for("busy")
            yield found
            assert busy.process.poll() is None, busy.err


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title.replace(" ", "-"))
def test_a_panel_has_data(panel: Panel, prometheus: Monitored) -> None:
    for query in panel.queries:
        wait_until(lambda expr=query.expr: prometheus.values(expr), 60, f"data for {query.expr}")


def test_the_numbers_are_those_of_the_cluster(prometheus: Monitored) -> None:
    numbers = {panel.title: panel.queries[0].expr for panel in PANELS if panel.is_number}

    def value(title: str) -> float:
        (number,) = prometheus.values(numbers[title])
        return number

    wait_until(lambda: value("Workers") == 3, 60, "all workers")
    # The page of the third worker is scraped as well, and is no scheduler.
    wait_until(lambda: prometheus.series('up{job="weft-workers"} == 1'), 60, "its page")
    assert value("Schedulers") == 1
    (memory,) = (p for p in PANELS if p.title == "Memory of its process")
    wait_until(lambda: prometheus.values(memory.queries[0].expr), 60, "a process")
    assert len(prometheus.values(memory.queries[0].expr)) == 1
    assert value("No worker can run") == 1
    wait_until(lambda: 0 < value("Failures") < 0.5, 60, "failures")


def test_functions_are_shown_by_name(prometheus: Monitored) -> None:
    def names() -> set[str]:
        expr = 'weft_scheduler_tasks_finished_total{cluster!=""}'
        return {labels["prefix"] for labels, _ in prometheus.series(expr)}

    wait_until(lambda: {"load", "combine", "wait"} <= names(), 60, "three functions")


def test_an_alert_becomes_pending_for_what_is_wrong(prometheus: Monitored) -> None:
    def alerts() -> dict[str, str]:
        found = prometheus.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}

    wait_until(lambda: alerts().get("WeftUnrunnableTasks") == "pending", 60, "the alert")
    assert "WeftSchedulerDown" not in alerts()


def test_the_servers_end_with_the_command(prometheus: Monitored) -> None:
    processes = prometheus.started.family()
    assert len(processes) == 2, processes
    assert prometheus.started.stop(signal.SIGINT) == 0
    wait_until(lambda: gone(processes), 30, "the end of Prometheus")
    assert prometheus.started.err == ""
