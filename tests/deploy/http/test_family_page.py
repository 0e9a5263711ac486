"""The metrics page of a family of workers, served beside a real scheduler and real workers."""

from __future__ import annotations

import http.client
import subprocess
from contextlib import suppress
from urllib.parse import urlsplit

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

import weft
from tests.deploy.daemons import address_of, daemon, file_of, run, scheduler
from tests.deploy.http.serving import Pages
from tests.tools.find import tool
from weft.protocol.trust.connection_file import ConnectionFile

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def fetch(url, token=""):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", parts.path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def values_in(text):
    """Return {(name, values of the labels in order of their names): value}."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Cluster:
    """A scheduler with pages, and a family of two workers with a page of its own."""

    def __init__(self, started, workers):
        self.workers = workers
        self.path = file_of(started)
        self.file = ConnectionFile.read(self.path)
        self.address = address_of(started)
        self.token = self.file.to_security().token_for("view")
        self.scheduler_url = self.file.dashboard + "metrics"
        (self.process,) = [p for p in workers.family() if self.title(p) == "weft metrics"]
        (port,) = [c.laddr.port for c in self.process.net_connections() if c.status == "LISTEN"]
        self.url = f"http://127.0.0.1:{port}/metrics"

    @staticmethod
    def title(process):
        with suppress(psutil.NoSuchProcess):
            return process.cmdline()[0]
        return ""

    def client(self):
        return weft.Client(connection_file=self.path)

    def values(self):
        status, text = fetch(self.url, self.token)
        assert status == 200
        return values_in(text)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    with scheduler("--dashboard-address", "127.0.0.1:0", folder=folder) as started:
        options = "--nworkers", "2", "--nthreads", "1", "--metrics-address", "127.0.0.1:0"
        with daemon("worker", *options, "--name", "w", folder=folder) as workers:
            started.wait_for("joined from", 2)
            yield Cluster(started, workers)


def test_the_page_shows_each_worker_and_the_supervisor(cluster, wait_until):
    with cluster.client() as client:
        assert client.gather(client.map(abs, range(100))) == list(range(100))
    executed = "weft_worker_tasks_executed_total"
    wait_until(
        lambda: sum(cluster.values()[executed, "finished", w] for w in ("w-0", "w-1")) == 100, 30
    )
    wait_until(lambda: cluster.values()["weft_supervisor_workers", ""] == 2, 30)
    values = cluster.values()
    assert values["weft_worker_threads", "w-0"] == 1
    assert values["process_resident_memory_bytes", "w-0"] > 1e6
    pids = {p.pid for p in cluster.workers.family() if "weft worker w-" in cluster.title(p)}
    assert len(pids) == 2
    starts = {psutil.Process(pid).create_time() for pid in pids}
    shown = {values["process_start_time_seconds", w] for w in ("w-0", "w-1")}
    assert {round(start) for start in shown} <= {
        round(start) + off for start in starts for off in (-1, 0, 1)
    }


def test_the_scheduler_leaves_these_workers_out_of_its_sums(cluster, wait_until):
    executed = "weft_worker_tasks_executed_total"
    with cluster.client() as client:
        client.gather(client.map(abs, range(-10, 0)))
    wait_until(lambda: sum(cluster.values()[executed, "finished", w] for w in ("w-0", "w-1")), 30)
    _, text = fetch(cluster.scheduler_url, cluster.token)
    values = values_in(text)
    assert values["weft_scheduler_tasks_completed_total",] >= 10
    assert values[executed, "finished"] == 0
    assert values["weft_worker_threads",] == 0


@pytest.mark.parametrize("role", ["", "worker", "client", "admin"])
def test_the_page_takes_the_view_token_only(cluster, role):
    token = cluster.file.to_security().token_for(role) if role else ""
    status, text = fetch(cluster.url, token)
    assert status == 401
    assert "view token" in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/", "/metrics/", "/favicon.ico"])
def test_another_path_is_one_line_without_the_name_of_the_server(cluster, path, method):
    pages = Pages(cluster.url, cluster.token)
    answer, text = pages.ask(path, method)
    assert (answer.status, text) == (404, "404 Not Found\n")
    assert "Server" not in answer.headers
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_task_that_holds_the_interpreter_lock_does_not_hold_up_the_page(cluster, wait_until):
    with cluster.client() as client:
        busy = client.map(pow, [3, 5], [10**8, 10**8], pure=False)
        workers = [p for p in cluster.workers.family() if "weft worker w-" in cluster.title(p)]
        wait_until(lambda: any(p.cpu_percent() > 10 for p in workers), 30)
        before = cluster.values()["process_cpu_seconds_total", "w-0"]
        wait_until(lambda: cluster.values()["process_cpu_seconds_total", "w-0"] != before, 30)
        assert not any(future.done() for future in busy)
        client.cancel(busy)
        for process in workers:
            process.kill()


def test_promtool_finds_nothing_to_object_to(cluster):
    promtool = tool("promtool")
    for url in (cluster.url, cluster.scheduler_url):
        _, text = fetch(url, cluster.token)
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), url


def test_a_page_that_ends_is_served_again_at_the_same_port(cluster, wait_until):
    cluster.process.kill()
    cluster.workers.wait_for("the process of the metrics page ended (killed by SIGKILL)")

    def is_back():
        with suppress(OSError):
            return fetch(cluster.url, cluster.token)[0] == 200
        return False

    wait_until(is_back, 30)


def test_an_address_that_is_taken_is_one_line(cluster, tmp_path):
    port = urlsplit(cluster.url).port
    address = f"127.0.0.1:{port}"
    options = "--metrics-address", address, "--connect-timeout", "5s"
    token = tmp_path / "token"
    token.write_text(cluster.file.to_security().token_for("worker"))
    token.chmod(0o600)
    ended = run("worker", cluster.address, *options, folder=tmp_path, WEFT_TOKEN_FILE=str(token))
    assert ended.returncode == 2
    assert f"cannot serve metrics at {address}: Address already in use" in ended.stderr
    assert "--metrics-address" in ended.stderr
    assert "Traceback" not in ended.stderr
