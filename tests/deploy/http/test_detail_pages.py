"""The pages of tasks and workers, the search, and orders, by HTTP, on a real cluster."""

from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest

import weft
from tests.deploy.http.test_visiting import Browser
from weft.deploy.http.order_page import ORDER_KINDS
from weft.deploy.http.ordering import GIVERS
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.trust.page_access import link_into
from weft.protocol.wire.levels import Level

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with weft.Client(cluster, name="notebook") as client:
        yield client


async def visitor(cluster, level):
    """Return a browser that has followed a link of a role."""
    url = cluster.dashboard_link.partition("?")[0]
    browser = Browser(int(url.rstrip("/").rpartition(":")[2]))
    await browser.follow(link_into(url, cluster.security, level))
    return browser


async def until(ask, is_there):
    """Ask for JSON until something is there; return it."""
    end = time.monotonic() + 60
    while True:
        found = json.loads((await ask())[1])
        if is_there(found) or time.monotonic() > end:
            return found


def bad(n, secret=""):
    raise ValueError(f"part {n} is missing")


def wait_for_file(path):
    from pathlib import Path

    while not Path(path).exists():
        time.sleep(0.01)  # workload
    return 1


async def test_the_page_of_a_failed_task_shows_to_each_visitor_what_the_role_permits(
    cluster, client
):
    future = client.submit(bad, 7, secret="opensesame", key="bad-<7>")
    reader = client.submit(abs, future, key="reads it")
    assert isinstance(reader.exception(), ValueError)
    path = f"task?key={quote('bad-<7>')}"
    for level in (Level.VIEW, Level.CLIENT, Level.ADMIN):
        browser = await visitor(cluster, level)
        answer, page = await browser.get(f"/{path}")
        assert answer.status == 200
        assert "part 7 is missing" in page
        assert "bad-&lt;7&gt;" in page
        assert "<7>" not in page
        assert "task?key=reads+it" in page
        may_read = level >= Level.CLIENT
        assert ("Traceback (most recent call last)" in page) == may_read
        assert ("bad(7, secret=&#x27;opensesame&#x27;)" in page) == may_read
        assert ("client.dashboard_link" in page) != may_read
        assert ("do=retry" in page) == (level is Level.ADMIN)
        answer, text = await browser.get(f"/api/v1/{path}")
        task = json.loads(text)
        assert (task["state"], task["function"]) == ("erred", "bad")
        assert ("traceback" in task, "call" in task) == (may_read, may_read)
        # What failed with it names it, and has no call of its own to show.
        _, text = await browser.get("/api/v1/task?key=reads+it")
        assert ("call" in json.loads(text)) is False
        assert json.loads(text).get("culprit") == ("bad-<7>" if may_read else None)


async def test_an_unknown_key_is_answered_with_what_to_do(cluster):
    browser = await visitor(cluster, Level.VIEW)
    answer, page = await browser.get("/task?key=nope")
    assert answer.status == 404
    assert "There is no task nope" in page
    assert "forgets a task" in page
    answer, text = await browser.get("/api/v1/task?key=nope")
    assert (answer.status, "nope" in text) == (404, True)
    assert (await browser.get("/worker?address=nope"))[0].status == 404
    assert (await browser.get("/api/v1/worker?address=nope"))[0].status == 404


async def test_the_page_of_a_worker_shows_what_it_runs(cluster, client, tmp_path):
    running = client.submit(wait_for_file, str(tmp_path / "go"), key="running")
    worker = next(iter(client.scheduler_info()["workers"].values()))
    browser = await visitor(cluster, Level.CLIENT)
    facts = await until(
        lambda: browser.get(f"/api/v1/worker?address={quote(worker['name'])}"),
        lambda facts: facts["stacks"],
    )
    assert list(facts["stacks"]) == facts["given"] == ["running"]
    assert any("wait_for_file" in frame for frame in facts["stacks"]["running"])
    assert facts["versions"]
    assert isinstance(facts["log"], list)
    _, page = await browser.get(f"/worker?address={quote(worker['id'])}")
    assert "Calls under way" in page
    assert "task?key=running" in page
    assert "order?do" not in page
    looking = await visitor(cluster, Level.VIEW)
    _, page = await looking.get(f"/worker?address={quote(worker['id'])}")
    assert "task?key=running" in page
    assert "Calls under way" not in page
    _, page = await looking.get("/api/v1/task?key=running")
    assert "stack" not in json.loads(page)
    _, page = await browser.get("/task?key=running")
    assert "It is now at" in page
    (tmp_path / "go").touch()
    assert running.result() == 1


async def test_a_search_finds_tasks_functions_workers_and_failures(cluster, client):
    future = client.submit(bad, 8, key="search-me")
    assert future.exception() is not None
    name = next(iter(client.scheduler_info()["workers"].values()))["name"]
    browser = await visitor(cluster, Level.VIEW)

    async def found(text):
        return json.loads((await browser.get(f"/api/v1/search?q={quote(text)}"))[1])

    assert [row[0] for row in (await found("arch-m"))["keys"]] == ["search-me"]
    assert [row[0] for row in (await found("ba"))["functions"]] == ["bad"]
    assert [w["name"] for w in (await found(name))["workers"]] == [name]
    # All visitors share one overview per second.
    seen = await until(lambda: browser.get("/api/v1/search?q=part%208"), lambda f: f["failures"])
    assert [failure["key"] for failure in seen["failures"]] == ["search-me"]
    _, page = await browser.get("/search?q=arch-m")
    assert "task?key=search-me" in page
    assert 'value="arch-m"' in page
    _, page = await browser.get("/search?q=%3Cscript%3E")
    assert "Nothing was found" in page
    assert "<script>" not in page
    assert (await browser.get("/search"))[0].status == 200
    assert (await browser.get("/api/v1/search"))[0].status == 404


def form_of(page):
    """Return the hidden fields of the form in a page that asks."""
    fields = {}
    for part in page.split('<input type="hidden" ')[1:]:
        name, value = part.split('name="')[1].split('"')[0], part.split('value="')[1].split('"')[0]
        fields[name] = value
    return fields


async def test_an_admin_cancels_a_running_task_and_runs_a_failed_one_again(
    cluster, client, tmp_path
):
    running = client.submit(wait_for_file, str(tmp_path / "never"), key="cancel-me")
    failed = client.submit(bad, 9, key="retry-me")
    assert failed.exception() is not None
    browser = await visitor(cluster, Level.ADMIN)
    _, page = await browser.get("/order?do=cancel&key=cancel-me")
    assert "Cancel task cancel-me?" in page
    assert not running.done()
    answer, page = await browser.post("/order", **form_of(page))
    assert (answer.status, "cancel-me is cancelled." in page) == (200, True)
    error = running.exception()
    assert isinstance(error, weft.TaskCancelled)
    assert "a visitor of the pages (admin at 127.0.0.1)" in str(error)
    _, page = await browser.get("/order?do=retry&key=retry-me")
    answer, page = await browser.post("/order", **form_of(page))
    assert (answer.status, "retry-me runs again." in page) == (200, True)
    assert failed.exception() is not None
    _, page = await browser.get("/order?do=cancel&key=cancel-me")
    answer, page = await browser.post("/order", **form_of(page))
    assert "the scheduler does not have it any more" in page
    assert "Nothing was done" in page


@pytest.mark.parametrize("level", [Level.VIEW, Level.CLIENT])
async def test_only_admins_give_orders(cluster, client, level):
    future = client.submit(bad, 1, key="leave-me")
    assert future.exception() is not None
    admin, other = await visitor(cluster, Level.ADMIN), await visitor(cluster, level)
    _, page = await admin.get("/order?do=retry&key=leave-me")
    assert (await other.get("/order?do=retry&key=leave-me"))[0].status == 403
    answer, text = await other.post("/order", **form_of(page))
    assert answer.status == 403
    assert "weft dashboard --role admin" in text


async def test_a_form_is_taken_from_a_page_of_this_visit_only(cluster, client, tmp_path):
    running = client.submit(wait_for_file, str(tmp_path / "go"), key="keep-me")
    browser, other = await visitor(cluster, Level.ADMIN), await visitor(cluster, Level.ADMIN)
    _, page = await other.get("/order?do=cancel&key=keep-me")
    fields = form_of(page)
    own = form_of((await browser.get("/order?do=cancel&key=keep-me"))[1])
    assert own["form"] != fields["form"]
    answer, text = await browser.post("/order", **fields)
    assert (answer.status, "not of this visit" in text) == (403, True)
    answer, _ = await browser.post("/order", **{**own, "form": ""})
    assert answer.status == 403
    answer, _ = await browser.post("/order", {"Origin": "http://evil.example"}, **own)
    assert answer.status == 403
    assert (await browser.get("/order?do=nothing&key=keep-me"))[0].status == 404
    assert (await browser.post("/order", **{**own, "do": "run"}))[0].status == 403
    # After the end of the visit the scheduler refuses it.
    await browser.post("/logout")
    assert (await browser.post("/order", **own))[0].status == 303
    (tmp_path / "go").touch()
    assert running.result() == 1


async def test_workers_are_started_restarted_and_retired(cluster, client):
    browser = await visitor(cluster, Level.ADMIN)
    _, page = await browser.get("/workers")
    assert "Workers wanted" in page
    _, page = await browser.get("/order?do=scale&n=2")
    answer, page = await browser.post("/order", **form_of(page))
    assert (answer.status, "2 workers wanted." in page) == (200, True)
    client.wait_for_workers(2, timeout=60)
    before = {w["name"]: w["id"] for w in client.scheduler_info()["workers"].values()}
    name, worker_id = next(iter(before.items()))
    _, page = await browser.get(f"/order?do=restart&worker={worker_id}")
    assert f"Restart worker {name}?" in page
    answer, page = await browser.post("/order", **form_of(page))
    assert (answer.status, "another one starts" in page) == (200, True)
    client.restart_workers([n for n in before if n != name], timeout=60)
    _, page = await browser.get("/order?do=scale&n=1")
    answer, page = await browser.post("/order", **form_of(page))
    assert (answer.status, "1 worker wanted." in page) == (200, True)
    for text in ("x", "-1", "9999999"):
        _, page = await browser.get("/order?do=scale&n=2")
        answer, page = await browser.post("/order", **{**form_of(page), "n": text})
        assert (answer.status, "no number of workers" in page) == (403, True)


def test_every_order_has_one_that_gives_it():
    assert set(ORDER_KINDS) == set(GIVERS)
