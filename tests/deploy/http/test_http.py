"""The HTTP process, as a browser, a probe and Prometheus see it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from urllib.parse import urlsplit

import psutil
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.daemons import daemon, file_of, gone, scheduler
from tests.deploy.http.serving import Pages, pages_in_this_loop, view_token
from weft.deploy.http import viewer, watching
from weft.deploy.http.server import HttpConfig
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.page_access import link_into
from weft.protocol.trust.security import Security
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.features import METRICS
from weft.scheduler.core.insight.metrics import metrics
from weft.scheduler.core.recovery import barrier
from weft.scheduler.server import SchedulerServer

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0") as cluster:
        with cluster.get_client() as client:
            assert client.gather(client.map(abs, range(-10, 0))) == list(range(10, 0, -1))
        yield cluster


@pytest.fixture(scope="module")
def pages(cluster):
    return Pages(cluster.dashboard_link, cluster.security.token_for("view"))


@pytest.mark.parametrize(("path", "word"), [("/healthz", "ok\n"), ("/readyz", "ready\n")])
def test_probes_need_no_token_and_return_no_other_information(pages, path, word):
    answer, text = pages.ask(path)
    assert (answer.status, text) == (200, word)
    assert "Server" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"
    answer, text = pages.ask(path, "HEAD")
    assert (answer.status, text) == (200, "")


@pytest.mark.parametrize("path", ["/metrics", "/"])
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic dXNlcjpwYXNz",
        "Bearer \xff\xfe",
        "TOKEN",
    ],
)
def test_pages_need_the_token(pages, path, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    if authorization == "TOKEN":
        headers["Authorization"] = pages.token
    answer, text = pages.ask(path, **headers)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="weft"'
    assert text.count("\n") == 1
    assert "Authorization: Bearer" in text
    assert pages.token not in text


@pytest.mark.parametrize("role", ["admin", "client", "worker"])
def test_pages_refuse_a_token_that_can_do_more_and_name_the_one_to_use(cluster, pages, role):
    token = cluster.security.token_for(role)
    answer, text = pages.ask("/metrics", Authorization=f"Bearer {token}")
    assert answer.status == 401
    assert f"pages take the view token only, this one is of role {role}" in text
    assert "'weft token --role view --bare'" in text
    assert token not in text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.io"]
)
@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/", "/stream", "/stream/data"])
def test_a_name_that_is_not_ours_is_refused(pages, path, host):
    answer, text = pages.ask(path, Host=host, authorized=True)
    assert answer.status == 421
    assert text.count("\n") == 1
    assert "--dashboard-host-name NAME" in text
    assert "example" not in text
    assert "evil" not in text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "10.1.2.3:80", "[::1]:8"]
)
def test_our_names_and_all_addresses_are_answered(pages, host):
    assert pages.ask("/healthz", Host=host)[0].status == 200


async def test_names_that_were_given_are_answered_as_well():
    async with pages_in_this_loop(host_names=("pages.example", "WEFT")) as (_started, port, token):
        pages = Pages(f"http://127.0.0.1:{port}/", token)
        for host in ("pages.example", "Pages.Example.:80", "weft:1", "localhost"):
            answer, _ = await asyncio.to_thread(pages.ask, "/healthz", Host=host)
            assert answer.status == 200, host
        answer, _ = await asyncio.to_thread(pages.ask, "/healthz", Host="www.pages.example")
        assert answer.status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/", "/stream", "/stream/data"])
def test_no_other_method_exists(pages, path, method):
    answer, text = pages.ask(path, method, authorized=True)
    assert answer.status == 405
    assert text.count("\n") == 1


def test_an_unknown_path_is_one_line(pages):
    answer, text = pages.ask("/../../etc/passwd")
    assert (answer.status, text) == (404, "404 Not Found\n")


def test_metrics_count_the_events_of_the_cluster(pages):
    answer, text = pages.ask("/metrics", authorized=True)
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["weft_scheduler_tasks_submitted_total",] == 10
    assert values["weft_scheduler_tasks_completed_total",] == 10
    assert values["weft_scheduler_tasks_finished_total", "abs"] == 10
    assert values["weft_scheduler_tasks_failed_total", "exception"] == 0
    assert values["weft_scheduler_workers", "running"] == 1
    assert values["weft_scheduler_bytes_total", "in", "client"] > 0
    assert families["weft_scheduler_tasks"].type == "gauge"
    assert families["weft_scheduler_tasks_submitted"].type == "counter"
    assert families["weft_build_info"].samples[0].value == 1


def test_metrics_are_openmetrics_if_asked_for(pages):
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer, text = pages.ask("/metrics", authorized=True, Accept=accept)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in openmetrics.text_string_to_metric_families(text)}
    assert "weft_scheduler_tasks_submitted" in names
    assert text.endswith("# EOF\n")


def test_every_value_of_the_scheduler_is_a_declared_metric():
    server = SchedulerServer(SchedulerConfig((), Security(bytes(32), bytes(16))))
    state = server.state
    state.handle(SchedulerTick(server._meter.measurements(())), 0.0)
    values = metrics(state)
    assert {*values} == {*METRICS}
    for name, value in values.items():
        assert isinstance(value, dict) == bool(
            METRICS[name].labels or METRICS[name].is_histogram
        ), name
        assert METRICS[name].text.endswith("."), name


def test_the_index_describes_the_cluster(pages):
    answer, text = pages.ask("/", authorized=True)
    assert answer.headers["Content-Type"] == "application/json"
    content = json.loads(text)
    assert content["cluster"]["n_workers"] == 1
    assert {"/", "/healthz", "/metrics", "/readyz"} <= set(content["pages"])


def test_a_large_request_is_refused_and_the_next_one_served(pages):
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        pages.ask("/healthz", Cookie="x" * 20_000)
    assert pages.ask("/healthz")[0].status == 200


def test_a_scheduler_that_does_not_answer_is_not_ready(cluster, pages, wait_until):
    process = psutil.Process(cluster._scheduler.process.pid)
    process.suspend()
    try:
        # An answer holds for a second.
        wait_until(lambda: pages.ask("/readyz")[0].status == 503, 30)
        assert pages.ask("/readyz")[1] == "scheduler-silent\n"
        assert pages.ask("/healthz")[0].status == 503
    finally:
        process.resume()
    wait_until(lambda: pages.ask("/readyz")[0].status == 200, 30)


def test_pages_beyond_this_machine_are_https(tmp_path):
    # 127.0.0.1 is reachable by that name too, without any other network.
    with scheduler("--dashboard-address", "0.0.0.0:0", folder=tmp_path) as started:
        found = ConnectionFile.read(file_of(started))
        assert found.dashboard.startswith("https://")
        pages = Pages(f"https://127.0.0.1:{urlsplit(found.dashboard).port}/", view_token(found))
        assert pages.ask("/healthz")[1] == "ok\n"
        assert "weft_build_info" in pages.ask("/metrics", authorized=True)[1]


def test_names_of_the_pages_come_from_options_and_the_environment(tmp_path):
    options = ("--dashboard-address", "127.0.0.1:0", "--dashboard-host-name")
    with scheduler(*options, "Proxy.example", folder=tmp_path) as started:
        found = ConnectionFile.read(file_of(started))
        pages = Pages(found.dashboard, view_token(found))
        assert pages.ask("/healthz", Host="proxy.example")[0].status == 200
        assert pages.ask("/healthz", Host="weft.default.svc")[0].status == 421
    names = "weft.default.svc, weft"
    options = options[:2]
    with scheduler(*options, folder=tmp_path, WEFT_SCHEDULER_DASHBOARD_HOST_NAMES=names) as started:
        found = ConnectionFile.read(file_of(started))
        pages = Pages(found.dashboard, view_token(found))
        for host in ("weft.default.svc:80", "weft"):
            assert pages.ask("/healthz", Host=host)[0].status == 200, host
        assert pages.ask("/healthz", Host="proxy.example")[0].status == 421


def test_the_pages_end_with_the_scheduler_and_come_back_without_it(tmp_path, wait_until):
    with daemon(
        "scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0", folder=tmp_path
    ) as started:
        started.wait_for("connect ")
        found = ConnectionFile.read(file_of(started))
        pages = Pages(found.dashboard, view_token(found))
        process, _, http_process = started.family()
        link = link_into("/", found.to_security())
        html = {"Accept": "text/html"}
        assert pages.ask(link, **html)[0].status == 200
        http_process.kill()
        started.wait_for("the HTTP process ended (killed by SIGKILL) and is started again")

        def is_back():
            try:
                return pages.ask("/healthz")[0].status == 200
            except OSError:
                return False

        wait_until(is_back, 30)
        answer, text = pages.ask(link, **html)
        assert answer.status == 403
        assert "used before" in text
        family = started.family()
        assert len(family) == 3
        process.kill()
        started.process.wait(30)
        wait_until(lambda: gone(family), 30)


async def test_a_scheduler_that_accepts_no_connection_is_healthy_and_not_ready(monkeypatch):
    monkeypatch.setattr(watching, "HOLDS_S", 0.0)
    async with pages_in_this_loop() as (started, port, token):
        pages = Pages(f"http://127.0.0.1:{port}/", token)
        assert (await asyncio.to_thread(pages.ask, "/readyz"))[1] == "ready\n"
        (listener,) = started._listeners
        listener._max_unauthenticated = 0
        answer, text = await asyncio.to_thread(pages.ask, "/readyz")
        assert (answer.status, text) == (503, "scheduler-refuses\n")
        assert (await asyncio.to_thread(pages.ask, "/healthz"))[1] == "ok\n"


async def test_a_scheduler_that_waits_for_the_peers_of_the_last_one_is_not_ready():
    async with pages_in_this_loop() as (started, port, token):
        pages = Pages(f"http://127.0.0.1:{port}/", token)
        barrier.begin(started.state)
        answer, text = await asyncio.to_thread(pages.ask, "/readyz")
        assert (answer.status, text) == (503, "recovering\n")
        assert (await asyncio.to_thread(pages.ask, "/healthz"))[1] == "ok\n"


async def test_probes_of_health_share_an_answer_of_the_scheduler(monkeypatch):
    monkeypatch.setattr(watching, "HOLDS_S", 1000.0)
    asked = []
    metrics = viewer.Viewer.metrics
    monkeypatch.setattr(viewer.Viewer, "metrics", lambda self: asked.append(self) or metrics(self))
    async with pages_in_this_loop() as (_, port, token):
        pages = Pages(f"http://127.0.0.1:{port}/", token)
        for _ in range(5):
            assert (await asyncio.to_thread(pages.ask, "/healthz"))[0].status == 200
        assert len(asked) == 1


async def test_probes_of_readiness_connect_at_most_once_per_interval(monkeypatch):
    monkeypatch.setattr(watching, "HOLDS_S", 1000.0)
    async with pages_in_this_loop() as (started, port, token):
        pages = Pages(f"http://127.0.0.1:{port}/", token)
        connections = []
        listener = started._listeners[0]
        accept = listener._on_connection
        listener._on_connection = lambda made: connections.append(made) or accept(made)
        for _ in range(3):
            assert (await asyncio.to_thread(pages.ask, "/readyz"))[0].status == 200
        assert len(connections) == 1


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
async def test_a_connection_that_sends_no_whole_request_is_closed(sent):
    async with pages_in_this_loop(idle_timeout_s=0.3) as (_started, port, _token):
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for _, writer in pairs:
            writer.write(sent)
        # The server sends no answer, and closes the connection, perhaps before it has read it.
        for reader, writer in pairs:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()


def test_the_limit_for_a_request_is_short_unless_configured():
    assert HttpConfig("127.0.0.1", 0, "", Security(bytes(32))).idle_timeout_s <= 15
