"""The pages of tasks and workers in a browser: links between them, buttons, and their look."""

from __future__ import annotations

import pytest

import weft
from tests.browser import chromium
from tests.deploy.http.test_detail_pages import bad, wait_for_file
from tests.deploy.http.test_in_chromium import CONTRASTS, UNNAMED
from tests.tools.find import tool
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.trust.page_access import link_into
from weft.protocol.wire.levels import Level

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

TEXT = "(document.querySelector('main')?.innerText || '')"


@pytest.fixture(scope="module")
def cluster():
    tool("chromium")  # without it nothing would end the tasks of the tests that are skipped
    with LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with weft.Client(cluster, name="notebook") as client:
        yield client


@pytest.fixture
def running_task(client, tmp_path):
    """A task that runs until the end of a test."""
    running = client.submit(wait_for_file, str(tmp_path / "go"), pure=False)
    yield running
    (tmp_path / "go").touch()
    running.result()


def link(cluster, url, level):
    return link_into(url, cluster.security, level)


async def test_an_admin_clicks_from_a_failure_to_its_page_and_cancels_a_running_task(
    cluster, client, url, tmp_path
):
    running = client.submit(wait_for_file, str(tmp_path / "never"), key="runs-on")
    failed = client.submit(bad, 3, key="has-failed")
    assert failed.exception() is not None
    async with chromium(tmp_path / "profile") as browser:
        page = await browser.open(link(cluster, url, Level.ADMIN))
        await page.wait_for(f"{TEXT}.includes('part 3 is missing')")
        failures = "[...document.querySelectorAll('td a')]"
        await page.js(f"{failures}.find(a => a.innerText.includes('part 3')).click()")
        await page.wait_for(f"{TEXT}.includes('Traceback')")
        assert await page.js("location.search") == "?key=has-failed"
        assert "bad(3)" in await page.js(TEXT)
        # By the search, with the keyboard.
        await page.js("document.querySelector('input[type=search]').focus()")
        await page.call("Input.insertText", text="runs-o")
        await page.js("document.querySelector('input[type=search]').form.requestSubmit()")
        await page.wait_for(f"location.pathname === '/search' && {TEXT}.includes('runs-on')")
        await page.click("main a[href*='task?key=runs-on']")
        await page.wait_for(f"{TEXT}.includes('It is now at')")
        await page.click(".actions a[href*='do=cancel']")
        await page.wait_for(f"{TEXT}.includes('Cancel task runs-on?')")
        assert not running.done()
        await page.click("main button.danger")
        await page.wait_for(f"{TEXT}.includes('runs-on is cancelled.')")
        assert isinstance(running.exception(), weft.TaskCancelled)
        page.assert_clean(url)


@pytest.mark.parametrize("level", [Level.VIEW, Level.CLIENT])
async def test_others_see_no_button(cluster, client, url, tmp_path, level):
    running = client.submit(wait_for_file, str(tmp_path / "go"), key="stays")
    worker = next(iter(client.scheduler_info()["workers"].values()))["id"]
    async with chromium(tmp_path / "profile") as browser:
        page = await browser.open(link(cluster, url, level))
        await page.wait_for("document.querySelector('.tiles') !== null")
        for path in ("task?key=stays", f"worker?address={worker}", "workers"):
            await page.go(url + path)
            await page.wait_for(f"{TEXT} !== ''")
            assert await page.js("document.querySelectorAll('main a[href*=order]').length") == 0
            assert await page.js("document.querySelectorAll('main form').length") == 0
        assert await page.js("document.querySelector('[action=logout] span') !== null") == (
            level is Level.CLIENT
        )
        page.assert_clean(url)
    (tmp_path / "go").touch()
    assert running.result() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
async def test_pages_are_readable_light_and_dark_wide_and_narrow(
    cluster, client, running_task, url, tmp_path, scheme, width
):
    failed = client.submit(bad, 5, key="a-key-" + "long" * 40)
    reader = client.submit(abs, failed)
    assert reader.exception() is not None
    worker = next(iter(client.scheduler_info()["workers"].values()))["id"]
    async with chromium(tmp_path / "profile") as browser:
        page = await browser.open(link(cluster, url, Level.ADMIN), width=width, scheme=scheme)
        await page.wait_for("document.querySelector('.tiles') !== null")
        for path, drawn in (
            (f"task?key={failed.key}", ""),
            (f"worker?address={worker}", ""),
            ("search?q=key", ""),
            (f"order?do=retry&key={failed.key}", ""),
            ("workers", ""),
            (f"graph?key={failed.key}", ".graph .chosen"),
            ("profile", ".bars [aria-label^=wait_for_file]"),
        ):
            await page.go(url + path)
            await page.wait_for(f"{TEXT} !== ''")
            if drawn:
                await page.wait_for(f"document.querySelector('{drawn}') !== null")
            assert await page.js("document.documentElement.scrollWidth") == width, path
            found = await page.js(CONTRASTS)
            assert found["n"] > 5
            assert found["low"] == [], path
            assert await page.js(UNNAMED) == [], path
        page.assert_clean(url)
