"""A real Prometheus server scrapes a real busy cluster with the view token."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

import weft
from tests.deploy.daemons import daemon, file_of, scheduler
from tests.leaks import wait_until
from tests.prometheus import Prometheus
from tests.tools.find import tool
from weft.protocol.trust.connection_file import ConnectionFile

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Scraping(Prometheus):
    """A server that scrapes a cluster."""

    def query(self, expression):
        """Return {values of the labels but job and instance: value}."""
        left_out = ("job", "instance", "__name__")
        return {
            tuple(labels[k] for k in sorted(labels) if k not in left_out): value
            for labels, value in self.series(expression)
        }

    def one(self, expression):
        """Return the value of an expression that has one; None if it has none yet."""
        found = self.query(expression)
        assert len(found) < 2, found
        return next(iter(found.values()), None)

    def wait_for(self, expression, condition):
        """Wait until the value of an expression meets a condition, and return it."""

        def found():
            value = self.one(expression)
            return [value] if value is not None and condition(value) else None

        return wait_until(found, 60, expression)[0]


@contextmanager
def prometheus(folder, token, jobs):
    """Run a server with these jobs, {name: what a scrape configuration has beside the token}."""
    credentials = folder / "token"
    credentials.write_text(token)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": name,
                "authorization": {"credentials_file": str(credentials)},
                **job,
            }
            for name, job in jobs.items()
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))
    checked = subprocess.run(
        [tool("promtool"), "check", "config", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    address = f"127.0.0.1:{free_port()}"
    command = [
        tool("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with open(folder / "prometheus.log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )
    try:
        server = Scraping(f"http://{address}")
        wait_until(server.is_ready, 60, "Prometheus")
        yield server
    finally:
        process.terminate()
        process.wait(30)


class Cluster:
    """A scheduler; a family of workers that it sums, and one that has a page of its own."""

    def __init__(self, started, families):
        self.started = started
        self.families = families
        self.path = file_of(started)
        self.file = ConnectionFile.read(self.path)
        self.token = self.file.to_security().token_for("view")

    def client(self):
        return weft.Client(connection_file=self.path, timeout=60)

    @property
    def page(self):
        """Return host and port of the scheduler's pages."""
        return urlsplit(self.file.dashboard).netloc

    @property
    def family_page(self):
        """Return host and port of the page of the second family."""
        (process,) = [p for p in self.families[1].family() if p.cmdline()[0] == "weft metrics"]
        (port,) = [c.laddr.port for c in process.net_connections() if c.status == "LISTEN"]
        return f"127.0.0.1:{port}"


@pytest.fixture
def cluster(tmp_path):
    tool("prometheus"), tool("promtool")
    pages = f"127.0.0.1:{free_port()}"
    options = "--nworkers", "1", "--nthreads", "2"
    state = "--state-dir", str(tmp_path / "state")
    with scheduler("--dashboard-address", pages, *state, folder=tmp_path) as started:
        of_file = "--connection-file", str(file_of(started))
        with (
            daemon("worker", *of_file, *options, "--name", "summed", folder=tmp_path) as summed,
            daemon(
                *("worker", *of_file, *options, "--name", "own"),
                *("--metrics-address", "127.0.0.1:0"),
                folder=tmp_path,
            ) as own,
        ):
            started.wait_for("joined from", 2)
            yield Cluster(started, [summed, own])


def work(client, n=200):
    """Keep both workers busy, and let one of the tasks raise."""
    client.gather(client.map(abs, range(n), workers=["summed"], pure=False))
    client.gather(client.map(abs, range(n), workers=["own"], pure=False))
    failing = client.submit(int, "no number")
    assert failing.exception() is not None


@pytest.mark.parametrize("is_discovered", [False, True], ids=["file", "discovery"])
def test_a_server_scrapes_the_pages_and_counters_survive_a_new_scheduler(
    cluster, tmp_path, is_discovered
):
    discovery = {
        "url": f"http://{cluster.page}/sd",
        # Of a discovery, unlike of a scrape, Prometheus 2.42 does not take Bearer for granted.
        "authorization": {"type": "Bearer", "credentials_file": str(tmp_path / "token")},
        "refresh_interval": "1s",
    }
    by_hand = {"static_configs": [{"targets": [cluster.family_page]}]}
    jobs = {
        "scheduler": {"static_configs": [{"targets": [cluster.page]}]},
        "workers": {"http_sd_configs": [discovery]} if is_discovered else by_hand,
    }
    executed = "weft_worker_tasks_executed_total{outcome='finished'}"
    with prometheus(tmp_path, cluster.token, jobs) as server, cluster.client() as client:
        work(client)
        server.wait_for("sum(up)", lambda n: n == 2)
        server.wait_for("weft_scheduler_tasks_completed_total", lambda n: n == 400)
        server.wait_for("weft_scheduler_tasks_failed_total{reason='exception'}", lambda n: n == 1)
        # Half of the tasks are on each page, and none on both.
        server.wait_for(f"sum({executed})", lambda n: n == 400)
        server.wait_for(f"{executed[:-1]},worker='own'}}", lambda n: n == 200)
        server.wait_for("weft_scheduler_task_duration_seconds_count", lambda n: n >= 400)
        server.wait_for(
            "histogram_quantile(0.5, weft_scheduler_task_queue_seconds_bucket)", lambda s: s > 0
        )
        series = set(server.query("{__name__=~'weft_scheduler_.+|weft_worker_.+',job='scheduler'}"))

        epoch = server.one("weft_scheduler_epoch_timestamp_seconds")
        kill_scheduler(cluster)
        server.wait_for("weft_scheduler_epoch_timestamp_seconds", lambda s: s > epoch)
        work(client, 50)
        server.wait_for("weft_scheduler_tasks_completed_total", lambda n: n == 100)
        # The 200 tasks before are the past of the worker, and not an increase now.
        server.wait_for(f"sum({executed[:-1]},job='scheduler'}})", lambda n: n == 50)
        server.wait_for("resets(weft_scheduler_tasks_completed_total[10m])", lambda n: n == 1)
        after = set(server.query("{__name__=~'weft_scheduler_.+|weft_worker_.+',job='scheduler'}"))
        assert series <= after


def kill_scheduler(cluster):
    """Kill the scheduler's process; its parent starts another one."""
    _, process, *_ = cluster.started.family()
    assert isinstance(process, psutil.Process)
    assert Path(cluster.path).exists()
    process.kill()
    cluster.started.wait_for("scheduler listens at", 2)


@pytest.mark.parametrize("role", ["worker", "client"])
def test_a_token_that_can_do_more_leaves_the_target_down(cluster, tmp_path, role):
    token = cluster.file.to_security().token_for(role)
    jobs = {"scheduler": {"static_configs": [{"targets": [cluster.page]}]}}
    with prometheus(tmp_path, token, jobs) as server:
        server.wait_for("up", lambda n: n == 0)
        (target,) = server.targets().values()
        assert "401" in target["lastError"]
