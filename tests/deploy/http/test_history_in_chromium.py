"""The page of the last hour in a browser: drawn, pointed at, zoomed, and found by its address."""

from __future__ import annotations

import json

import pytest

import weft
from tests.browser import chromium
from tests.deploy.http.serving import Pages
from tests.deploy.http.test_in_chromium import CONTRASTS, UNNAMED
from weft.deploy.http.history_page import CHARTS

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

QUERY = "new URLSearchParams(location.search)"
DRAWN = "document.querySelector('.axes')?.dataset.drawn === '1'"
#: What the legend of a chart says, {name: value}.
VALUES = """Object.fromEntries([...document.querySelectorAll('.chart')[%d]
  .querySelectorAll('button')].map((e) => [e.dataset.name, e.querySelector('b').innerText]))"""
#: How many pixels of a chart have some colour, by the name of its variable.
PIXELS = """((i, name) => {
  const shown = document.querySelectorAll('.chart canvas')[i];
  const of = getComputedStyle(document.querySelector('.axes')).getPropertyValue('--' + name).trim();
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(of.slice(k, k + 2), 16));
  const canvas = document.createElement('canvas');
  Object.assign(canvas, {width: shown.width, height: shown.height});
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.drawImage(shown, 0, 0);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
  let n = 0;
  for (let k = 0; k < data.length; k += 4)
    n += data[k] === r && data[k + 1] === g && data[k + 2] === b && data[k + 3] === 255;
  return n;
})(%d, %s)"""
#: The page gets these samples, the last of them at present, and then none.
SAMPLED = """let nAsked = 0;
const now = Date.now() / 1000, given = %s, n = given.at_ms.length;
fetch = async () => nAsked++ ? new Promise(() => {}) : new Response(JSON.stringify({
  next: "x.1", goes_on: false, now, to_unix_s: now - 2.5 - given.at_ms[n - 1] / 1000,
  columns: given}));"""


def samples(n, step_s=2, **columns):
    """Return columns of samples; those that are not given are zero."""
    names = {one.column for chart in CHARTS for one in chart.series}
    found = {name: [0] * n for name in names} | {"at_ms": [i * step_s * 1000 for i in range(n)]}
    return found | {name: [of(i) for i in range(n)] for name, of in columns.items()}


async def opened(browser, cluster, query="", given=None, **window):
    """Sign in, and open the page."""
    page = await browser.open(cluster.dashboard_link, **window)
    await page.wait_for("document.querySelector('.tiles') !== null")
    if given is not None:
        source = SAMPLED % json.dumps(given)
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    await page.go(f"{cluster.dashboard_link.partition('?')[0]}history{query}")
    await page.wait_for(DRAWN)
    return page


async def press(page, key):
    """Press a key in the charts."""
    await page.js("document.querySelector('.charts').focus()")
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key=key)


async def point(page, chart, part):
    """Point at a chart, at a part of its width."""
    x, y = await page.js(
        f"(({{left, top, width}}) => [left + width * {part}, top + 30])"
        f"(document.querySelectorAll('.chart canvas')[{chart}].getBoundingClientRect())"
    )
    await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


async def test_charts_show_what_the_cluster_has_done_and_the_link_leads_to_the_stream(
    cluster, url, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        with weft.Client(cluster) as client:
            client.gather(client.map(abs, range(-500, 0), pure=False))
        await page.wait_for(f"{PIXELS % (0, json.dumps('done'))} > 0")
        await page.wait_for(f"Number(({VALUES % 1}).threads) > 0")
        await page.wait_for(f"({VALUES % 5}).workers === '2'")
        await page.click("[data-seconds='60']")
        await page.wait_for(f"{QUERY}.get('last') === '60.00'")
        await page.click("#other")
        await page.wait_for("document.querySelector('#lanes') !== null")
        assert await page.js(f"{QUERY}.get('last')") == "60.00"
        page.assert_clean(url)


async def test_rates_are_what_has_grown_and_the_line_shows_the_values_below_it(
    cluster, url, tmp_path
):
    given = samples(
        100, completed=lambda i: 200 * min(i, 50), cpu_us=lambda i: 3_000_000 * i,
        threads=lambda i: 4, managed=lambda i: 3 << 20, unmanaged=lambda i: 5 << 20,
    )  # fmt: skip
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster, "?last=200", given)
        assert (await page.js(VALUES % 0))["done"] == "0"
        assert await page.js(VALUES % 1) == {"threads": "4", "busy": "0", "cpu": "1.5"}
        assert (await page.js(VALUES % 2))["managed"] == "3 MiB"
        await point(page, 3, 0.25)
        await page.wait_for(f"({VALUES % 0}).done === '100'")  # 200 in two seconds
        assert (await page.js("document.querySelector('#shown').innerText")).count(":") == 2
        await press(page, "Escape")
        await page.wait_for(f"({VALUES % 0}).done === '0'")
        for _ in range(45):
            await press(page, ",")
        await page.wait_for(f"({VALUES % 0}).done === '100'")
        page.assert_clean(url)


async def test_a_series_is_hidden_by_its_name_and_so_it_is_at_the_same_address(
    cluster, url, tmp_path
):
    given = samples(50, completed=lambda i: 100 * i, failed=lambda i: 10 * i)
    failed = PIXELS % (0, json.dumps("fail"))
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster, "?last=60", given)
        assert await page.js(failed) > 0
        await page.click(".chart [data-name=failed]")
        await page.wait_for(f"{QUERY}.get('hide') === '0failed'")
        assert await page.js(failed) == 0
        await page.go(await page.js("location.href"))
        await page.wait_for(DRAWN)
        assert await page.js(failed) == 0
        pressed = "document.querySelector('.chart [data-name=failed]').ariaPressed"
        assert await page.js(pressed) == "false"
        await page.click(".chart [data-name=failed]")
        await page.wait_for(f"{failed} > 0")
        page.assert_clean(url)


async def test_keys_zoom_and_move_all_charts_and_the_address_keeps_the_place(
    cluster, url, tmp_path
):
    given = samples(1800, completed=lambda i: i)
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster, "", given)
        seconds = "document.querySelector('#seconds').innerText"
        assert await page.js(seconds) == "5 min"
        await press(page, "-")
        await page.wait_for(f"{seconds} === '10 min'")
        await press(page, "ArrowLeft")
        await page.wait_for(f"{QUERY}.has('from')")
        assert await page.js("document.querySelector('#live-button').ariaPressed") == "false"
        shown = await page.js("document.querySelector('#shown').innerText")
        await page.go(await page.js("location.href"))
        await page.wait_for(DRAWN)
        assert await page.js("document.querySelector('#shown').innerText") == shown
        await press(page, "End")
        await page.wait_for(f"!{QUERY}.has('from')")
        await page.click("[data-seconds='3600']")
        await page.wait_for(f"{seconds} === '60 min'")
        page.assert_clean(url)


async def test_with_reduced_motion_charts_move_when_there_is_something_new_only(
    cluster, url, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster, "", samples(50, completed=lambda i: i))
        feature = {"name": "prefers-reduced-motion", "value": "reduce"}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        frames = (
            "(async () => { for (let i = 0; i < 30; i++)"
            " await new Promise((go) => requestAnimationFrame(go)); return 1; })()"
        )
        await page.js(frames)
        await page.js(
            "nDrawn = 0, of = document.querySelector('canvas').getContext('2d'),"
            "clear = of.clearRect.bind(of), of.clearRect = (...a) => (nDrawn++, clear(...a)), 1"
        )
        await page.js(frames)
        assert await page.js("nDrawn") == 0
        page.assert_clean(url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1600])
async def test_the_history_is_readable_light_and_dark_wide_and_narrow(
    cluster, url, tmp_path, scheme, width
):
    async with chromium(tmp_path) as browser:
        given = samples(50, managed=lambda i: i << 30)
        page = await opened(browser, cluster, "", given, width=width, scheme=scheme)
        assert await page.js("document.documentElement.scrollWidth") == width
        found = await page.js(CONTRASTS)
        assert found["n"] > 20
        assert found["low"] == []
        assert await page.js(UNNAMED) == []
        page.assert_clean(url)


def test_programs_with_the_view_token_and_no_others_get_the_numbers(cluster, url):
    pages = Pages(url, cluster.security.token_for("view"))
    assert pages.ask("/history/data")[0].status == 401
    assert pages.ask("/history")[0].status == 303
    answer, text = pages.ask("/history/data", authorized=True)
    assert answer.status == 200
    first = json.loads(text)
    assert len(first["columns"]["at_ms"]) > 0
    assert {len(column) for column in first["columns"].values()} == {len(first["columns"]["at_ms"])}
    again = json.loads(pages.ask(f"/history/data?after={first['next']}", authorized=True)[1])
    assert again["goes_on"]
    assert len(again["columns"]["at_ms"]) < 5
    other = json.loads(pages.ask(f"/history/data?after=x.{'9' * 5000}", authorized=True)[1])
    assert not other["goes_on"]
