"""The profile and the graph of a selection in a browser: drawn, searched, zoomed, shared."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.browser import chromium
from tests.deploy.http.test_in_chromium import CONTRASTS, UNNAMED

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

BARS = """[...document.querySelectorAll('.bars > div')].map((e) => e.innerText)"""
QUERY = "decodeURIComponent(location.search)"
PRESSED = "document.querySelector('[data-span][aria-pressed=true]')?.innerText"
FOCUSED = "document.activeElement.getAttribute('aria-label')"


def deepest(gate):
    """Wait until a file is there."""
    while not Path(gate).exists():
        time.sleep(0.01)  # workload


def first_half(gate):
    deepest(gate)


def work(gate):
    first_half(gate)


def play(gate):
    deepest(gate)


def combine(*parts):
    return len(parts)


@pytest.fixture
def running(client, tmp_path):
    """A task of `work` and one of `play` that run on two workers, and others that wait for both."""
    gate = tmp_path / "gate"
    names = [one["name"] for one in client.scheduler_info()["workers"].values()]
    futures = [
        client.submit(function, str(gate), pure=False, workers=[name])
        for function, name in zip((work, play), names, strict=True)
    ]
    futures.append(client.submit(combine, *futures))
    futures += [client.submit(combine, futures[-1], i) for i in range(3)]
    yield futures
    gate.touch()
    client.gather(futures)


def base_of(cluster):
    return cluster.dashboard_link.partition("?")[0]


async def signed_in(browser, link, path, **window):
    """Enter by a link, and open a page."""
    page = await browser.open(link, **window)
    await page.wait_for("document.querySelector('.tiles') !== null")
    await page.go(f"{link.partition('?')[0]}{path}")
    return page


async def press(page, key):
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key=key)


async def test_a_profile_is_drawn_searched_and_zoomed_and_goes_back(
    cluster, client, running, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await signed_in(browser, client.dashboard_link, "profile")
        for name in ("work", "first_half", "deepest", "play"):
            await page.wait_for(f"{BARS}.includes('{name}')")
        assert await page.js(UNNAMED) == []
        assert (await page.js(CONTRASTS))["low"] == []

        # Search: what is found stands out, and the address says it.
        await page.js(
            "(() => { const e = document.querySelector('.flame-search'); e.value = 'first_h';"
            " e.dispatchEvent(new Event('input')); })()"
        )
        matched = "[...document.querySelectorAll('.bars .match')].map((e) => e.innerText)"
        assert await page.js(matched) == ["first_half"]
        assert "search=first_h" in await page.js(QUERY)
        assert "% in what was found" in await page.js("document.querySelector('.found').innerText")

        # A click shows a call alone; the browser's way back shows all again.
        await page.click(".bars .match")
        assert "function=work&in=work&in=first_half" in await page.js(QUERY)
        await page.wait_for(f"!{BARS}.includes('play')")
        await page.js("history.back()")
        await page.wait_for(f"{BARS}.includes('play')")

        # The address shows the same to somebody else.
        await page.go(f"{base_of(cluster)}profile?function=work&in=work")
        await page.wait_for(f"{BARS}.includes('first_half')")
        assert "play" not in await page.js(BARS)
        await page.click(".whole")
        await page.wait_for(f"{BARS}.includes('play')")
        assert await page.js("location.search") == ""

        # The keyboard: down to a call, Enter shows it alone, Escape more of it.
        await page.js("document.querySelector('.bars [tabindex=\"0\"]').focus()")
        assert (await page.js(FOCUSED)).startswith("all tasks")
        for key in ("ArrowDown", "ArrowDown"):
            await press(page, key)
        assert (await page.js(FOCUSED)).startswith(("work, /", "play, /"))
        await press(page, "Enter")
        await page.wait_for("location.search.startsWith('?function=')")
        assert not await page.js("document.querySelector('.flame-tip').hidden")
        await press(page, "Escape")
        await press(page, "Escape")
        await page.wait_for("location.search === ''")
        page.assert_clean(base_of(cluster))


async def test_a_profile_goes_on_while_it_is_live_and_begins_anew(
    cluster, client, running, tmp_path
):
    drawn = "Number(document.querySelector('.flame').dataset.drawn)"
    async with chromium(tmp_path) as browser:
        page = await signed_in(browser, client.dashboard_link, "profile")
        await page.wait_for(f"{drawn} > 20")
        await page.click("#anew")
        assert await page.js(drawn) == 0
        # Both workers have answered before it stops.
        await page.wait_for(f"{BARS}.includes('work') && {BARS}.includes('play')")
        await page.click("#live-button")
        assert await page.js("document.querySelector('#live-button').ariaPressed") == "false"

        # The latest part, which the address keeps; what is left out of it moves.
        await page.click("[data-span='30']")
        await page.wait_for("location.search === '?span=30'")
        await page.wait_for(f"{BARS}.includes('work')")
        await page.click("[data-span='']")
        await page.wait_for("location.search === ''")
        assert await page.js(PRESSED) == "all"
        await page.click("#live-button")
        await page.click("#anew")
        await page.wait_for(f"{PRESSED} === undefined && {drawn} > 0")

        # One worker alone, which the address keeps. It counts from the same moment on.
        await page.js(
            "(() => { const e = document.querySelector('#worker'); e.selectedIndex = 1;"
            " e.dispatchEvent(new Event('change')); })()"
        )
        await page.wait_for("location.search.startsWith('?worker=')")
        await page.wait_for(f"{BARS}.includes('work') !== {BARS}.includes('play')")
        query = parse_qs(urlsplit(page.requested[-1]).query)
        assert float(query["since"][0]) > 0
        assert await page.js(PRESSED) is None
        await page.click("[data-span='']")
        await page.wait_for(f"{PRESSED} === 'all'")
        page.assert_clean(base_of(cluster))


async def test_a_narrow_and_dark_profile_has_no_scroll_bar_and_enough_contrast(
    cluster, client, running, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await signed_in(
            browser, client.dashboard_link, "profile", width=400, height=800, scheme="dark"
        )
        await page.wait_for(f"{BARS}.includes('deepest')")
        assert await page.js("document.documentElement.scrollWidth <= innerWidth")
        assert (await page.js(CONTRASTS))["low"] == []


async def test_one_who_may_only_look_sees_why_there_is_no_profile(cluster, client, tmp_path):
    async with chromium(tmp_path) as browser:
        link, _, query = client.dashboard_link.partition("?")
        page = await browser.open(f"{link}?{query.partition('&')[0]}")  # without the claim
        await page.wait_for("document.querySelector('.tiles') !== null")
        await page.go(f"{link}profile")
        assert "client's right" in await page.text()
        status = "fetch('profile/data').then((answer) => answer.status)"
        assert await page.js(status) == 403


async def test_the_graph_of_a_selection_is_drawn_and_leads_on(cluster, client, running, tmp_path):
    key = running[2].key
    async with chromium(tmp_path) as browser:
        page = await signed_in(browser, client.dashboard_link, f"graph?key={quote(key)}")
        functions = "[...document.querySelectorAll('.graph a text:not(.small)')]"
        names = f"{functions}.map((e) => e.textContent).sort()"
        assert await page.js(names) == ["combine"] * 4 + ["play", "work"]
        assert await page.js("document.querySelectorAll('.graph path.near').length") == 5
        assert await page.js("document.querySelectorAll('.graph [style]').length") == 0
        assert await page.js(UNNAMED) == []
        chosen = "document.querySelector('.graph .chosen').getAttribute('href')"
        assert await page.js(chosen) == f"task?key={quote(key)}"

        # Another task leads to its own graph.
        await page.js(
            "location = document.querySelector('.graph a.processing').getAttribute('href')"
        )
        await page.wait_for("document.querySelector('.graph .chosen.processing') !== null")
        assert running[0].key in await page.js(QUERY) or running[1].key in await page.js(QUERY)
        page.assert_clean(base_of(cluster))

        await page.go(f"{base_of(cluster)}graph?key=nothing")
        assert "knows no task 'nothing'" in await page.text()
