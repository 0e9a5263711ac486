"""The live task stream in a browser: drawn, zoomed, pointed at, and found again by its address."""

from __future__ import annotations

import base64
import json
import os
import time

import pytest

from tests.browser import chromium
from tests.deploy.http.serving import Pages
from tests.deploy.http.test_in_chromium import CONTRASTS, UNNAMED
from tests.protocol.columns import read
from tests.protocol.test_attempt_columns import report
from weft.protocol.attempt_columns import AttemptColumns, answer_of

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

PRESSED = "document.querySelector('#live-button').ariaPressed"
COUNT = "document.querySelector('#count').innerText"
QUERY = "new URLSearchParams(location.search)"
LEGEND = "[...document.querySelectorAll('.legend li')].map((e) => e.innerText.trim())"
#: The first pixel of some colour in a lane, from the left edge of the plot; null = there is none.
BAR = """(() => {
  const shown = document.querySelector('#lanes'), canvas = document.createElement('canvas');
  Object.assign(canvas, {width: shown.width, height: shown.height});
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.drawImage(shown, 0, 0);
  const high = document.querySelector('.timeline').dataset.lane;
  const row = context.getImageData(0, high * %d + 6, canvas.width, 1).data;
  for (let x = 0; x < canvas.width; x++) if (row[4 * x + 3] > 0) return x;
  return null;
})()"""
#: Of some lanes: whether there is a bar, a line below it, and something red.
PIXELS = """(() => {
  const shown = document.querySelector('#lanes'), canvas = document.createElement('canvas');
  Object.assign(canvas, {width: shown.width, height: shown.height});
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.drawImage(shown, 0, 0);
  const pixels = (y) => {
    const found = [], data = context.getImageData(0, y, canvas.width, 1).data;
    for (let x = 0; x < canvas.width; x++)
      if (data[4 * x + 3] > 0) found.push([...data.slice(4 * x, 4 * x + 3)]);
    return found;
  };
  const isRed = ([r, g, b]) => r > 180 && g < 100 && b < 100;
  const high = Number(document.querySelector('.timeline').dataset.lane);
  return %s.map((lane) => [pixels(high * lane + 6).length > 0,
                           pixels(high * lane + high - 2).length > 0,
                           pixels(high * lane + 6).some(isRed)]);
})()"""
#: Where the lanes are, and how high one is.
PLACE = """(({top, left}) => [top, left, Number(document.querySelector('.timeline').dataset.lane)])
  (document.querySelector('#lanes').getBoundingClientRect())"""
#: The first question has this answer, and no other one is answered.
ANSWERED = """let nAsked = 0;
const bytes = Uint8Array.from(atob(%s), (c) => c.charCodeAt(0));
fetch = async () => nAsked++ ? new Promise(() => {}) : new Response(bytes);"""
#: The first question is answered at once, each other one when `letOne` is called.
ANSWERED_WHEN_LET = """let nAsked = 0, letOne = null;
const all = %s.map((text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
fetch = async () => {
  if (nAsked) await new Promise((go) => { letOne = go; });
  return new Response(all[nAsked++]);
};"""
#: How many pixels of the strip above the lanes are filled.
CURVE = """(() => {
  const shown = document.querySelector('#curve'), canvas = document.createElement('canvas');
  const {width, height} = Object.assign(canvas, {width: shown.width, height: shown.height});
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.drawImage(shown, 0, 0);
  const data = context.getImageData(0, 0, width, height).data;
  return data.filter((value, i) => i % 4 === 3 && value > 0).length;
})()"""
#: The browser has drawn what was wished until now.
DRAWN = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go(1))))"
#: Keeps some chunks, and of these so many attempts.
KEPT = """(() => {
  kept = new Attempts();
  for (const text of %s) kept.add(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  kept.trim(%d);
})()"""
KEPT_KEYS = """(() => {
  const [lane] = kept.lanes.values();
  return Array.from({length: lane.to - lane.from}, (_, i) => kept.about(lane, lane.from + i).key);
})()"""
HIDDEN = """Object.defineProperty(document, 'hidden', {value: %s, configurable: true}),
  document.dispatchEvent(new Event('visibilitychange'))"""
#: Counts what the page does: questions, pauses between two of them, drawings.
COUNTING = """nFetched = nPauses = nDrawn = 0;
(() => {
  const [ask, wait] = [fetch, setTimeout];
  fetch = (...given) => { nFetched += 1; return ask(...given); };
  setTimeout = (what, ms) => { nPauses += ms === 500; return wait(what, ms); };
  const canvas = document.querySelector('#lanes').getContext('2d');
  const clear = canvas.clearRect.bind(canvas);
  canvas.clearRect = (...box) => { nDrawn += 1; clear(...box); };
})()"""


async def opened(browser, cluster, query="", **window):
    """Sign in, and open the page."""
    page = await browser.open(cluster.dashboard_link, **window)
    await page.wait_for("document.querySelector('.tiles') !== null")
    await page.go(f"{cluster.dashboard_link.partition('?')[0]}stream{query}")
    await page.wait_for(f"{COUNT} !== ''")
    return page


async def press(page, key):
    """Press a key in the plot."""
    await page.js("document.querySelector('.plot').focus()")
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key=key)


async def point(page, lane, x):
    """Point at a lane."""
    top, left, high = await page.js(PLACE)
    await page.call(
        "Input.dispatchMouseEvent", type="mouseMoved", x=left + x, y=top + high * lane + 6
    )


async def click(page, lane, x):
    """Click on a lane."""
    top, left, high = await page.js(PLACE)
    for kind in ("mousePressed", "mouseReleased"):
        place = {"x": left + x, "y": top + high * lane + 6}
        await page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)


def wait_for_file(path):
    """Run until there is a file."""
    while not os.path.exists(path):
        time.sleep(0.01)  # workload


def run_some(client, n=40):
    """Run tasks of two functions, one of which fails now and then."""

    def load(number):
        if number % 10 == 7:
            raise ValueError(number)
        return number

    futures = client.map(load, range(n), key=[f"load-{i}-{n}" for i in range(n)], retries=0)
    for future in futures:
        future.exception()
    client.gather(client.map(abs, range(-n, 0)))


async def test_attempts_are_drawn_as_they_end_and_the_one_pointed_at_is_described(
    cluster, client, url, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        assert await page.js(PRESSED) == "true"
        run_some(client)
        await page.wait_for(f"{LEGEND}.includes('raised')")
        assert {"load", "abs"} <= {*await page.js(LEGEND)}
        await page.wait_for(f"{BAR % 0} !== null && {BAR % 1} !== null")
        await press(page, "0")
        assert await page.js(PRESSED) == "false"  # it stands still
        await page.js(DRAWN)
        x = await page.js(BAR % 0)
        assert x is not None
        await point(page, 0, x)
        tip = await page.wait_for("document.querySelector('.tip:not([hidden])')?.innerText")
        assert "on local-" in tip or " · 0" in tip
        assert any(unit in tip for unit in (" µs", " ms"))
        assert tip.splitlines()[0].startswith(("load-", "abs-"))
        page.assert_clean(url)


async def test_a_page_with_few_seconds_shows_these_and_its_address_says_nothing_of_it(
    cluster, client, url, tmp_path
):
    columns = AttemptColumns()
    columns.add(report("k", durations_us=[500_000]), 1_000.0)
    head = {"next": "x.1", "goes_on": True, "is_all": True, "n_missed": 0, "n_late": 0}
    source = ANSWERED % json.dumps(
        base64.b64encode(answer_of({**head, "now": 1_003.0}, [columns.to_bytes()])).decode()
    )
    shown = "parseFloat(document.querySelector('#seconds').innerText)"
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link)
        await page.wait_for("document.querySelector('.tiles') !== null")
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
        await page.go(f"{url}stream")
        await page.wait_for(f"{shown} >= 10 && {shown} < 60")
        assert await page.js("document.querySelector('#other').getAttribute('href')") == "history"
        await press(page, "+")
        await page.wait_for(f"{QUERY}.has('last')")
        await page.go(f"{url}stream?last=60")
        await page.wait_for(f"{shown} === 60")


async def test_lanes_are_by_host_in_natural_order_with_fetches_and_failures_marked(
    cluster, url, tmp_path
):
    columns = AttemptColumns()
    names = [("b", "w-10"), ("b", "w-2"), ("a", "v")]
    for host, worker in names:
        columns.add(report("k", worker=worker, host=host, durations_us=[500_000]), 1_000.0)
    fetched = {"arrived_us": [1], "fetched_us": [400_000], "raised": [[0, "ValueError"]]}
    columns.add(report("k", worker="w-2", host="b", threads=[1], **fetched), 1_000.0)
    head = {"next": "x.4", "goes_on": True, "is_all": True, "n_missed": 0, "n_late": 0}
    answer = answer_of({**head, "now": 1_002.0}, [columns.to_bytes()])
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link)
        await page.wait_for("document.querySelector('.tiles') !== null")
        await page.call(
            "Page.addScriptToEvaluateOnNewDocument",
            source=ANSWERED % json.dumps(base64.b64encode(answer).decode()),
        )
        await page.go(f"{url}stream?from=1000&to=1001.2")
        await page.wait_for("document.querySelector('.timeline').dataset.drawn === '1'")
        labels = "[...document.querySelectorAll('#labels div')].map((e) => e.innerText)"
        assert await page.js(labels) == ["a", "v", "b", "w-2 · 0", "w-2 · 1", "w-10"]
        marks = await page.js(PIXELS % json.dumps([1, 3, 4, 5]))
        (bar, below, red), *_ = marks
        assert bar
        assert [below, red] == [False, False]
        assert [one[1:] for one in marks[1:]] == [[False, False], [True, True], [False, False]]
        page.assert_clean(url)
        # A click leads to the page of the task.
        width = await page.js("document.querySelector('#lanes').clientWidth")
        await point(page, 1, 0.6 * width)
        assert await page.js("document.querySelector('.plot').classList.contains('on-bar')")
        await click(page, 1, 0.6 * width)
        await page.wait_for(f"location.href === '{url}task?key=k'")


async def test_nothing_is_left_of_the_stream_of_another_process(cluster, url, tmp_path):
    columns = AttemptColumns()
    columns.add(report("k", durations_us=[500_000]), 1_000.0)
    head = {"is_all": True, "n_missed": 0, "n_late": 0, "now": 1_002.0}
    answers = [
        answer_of({**head, "next": "x.1", "goes_on": True}, [columns.to_bytes()]),
        answer_of({**head, "next": "y.0", "goes_on": False}, []),
    ]
    texts = [base64.b64encode(answer).decode() for answer in answers]
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link)
        await page.wait_for("document.querySelector('.tiles') !== null")
        source = ANSWERED_WHEN_LET % json.dumps(texts)
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
        await page.go(f"{url}stream?from=1000&to=1001.2")
        await page.wait_for(f"{CURVE} > 0")
        await page.wait_for("letOne !== null")
        await page.js("letOne()")
        await page.wait_for(f"{COUNT}.startsWith('No task has ended')")
        await page.wait_for("document.querySelector('.is-empty .none').innerText === 'no data yet'")
        assert await page.js("document.querySelectorAll('#labels div').length") == 0
        page.assert_clean(url)


def chunk_of(*keys, start_s=0.0, **more):
    """Return a chunk as the scripts of `KEPT` take it."""
    columns = AttemptColumns()
    columns.add(report(*keys, **more), start_s)
    return base64.b64encode(columns.to_bytes()).decode()


async def test_first_attempts_give_way_also_behind_some_that_were_placed_before_them(
    cluster, url, tmp_path
):
    places = [("a", 100), ("b", 102), ("placed-early", 98)]
    chunks = [chunk_of(key, start_s=start_s) for key, start_s in places]
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        await page.js(KEPT % (json.dumps(chunks), 2))
        assert await page.js(KEPT_KEYS) == ["placed-early", "b"]
        assert await page.js("[kept.total, kept.chunks.size]") == [2, 2]
        page.assert_clean(url)


async def test_times_of_spilling_before_an_attempt_ends_give_way_to_those_of_its_report(
    cluster, url, tmp_path
):
    place = ["here", "w", "tcp://w"]
    early = [[*place, 8.0, 8.5, 100, 0], [*place, 9.0, 9.5, 100, 0]]
    late = chunk_of("a", start_s=10.0, disk=[[-2.0, -1.5, 100, 0], [-1.0, -0.5, 100, 0]])
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        await page.js(KEPT % ("[]", 100))
        starts = "[...kept.disks.values()].flat().map((one) => one.start)"
        for rows in (early[:1], early):
            await page.js(f"kept.run([], {json.dumps(rows)})")
            assert await page.js(starts) == [row[3] for row in rows]
        assert await page.js("kept.hasDisk")
        source = f"Uint8Array.from(atob({json.dumps(late)}), (c) => c.charCodeAt(0)).buffer"
        await page.js(f"kept.add({source}), kept.run([], [])")
        assert await page.js(starts) == [8.0, 9.0]
        assert await page.js("[...kept.lanes.values()][0].disk.length") == 2
        page.assert_clean(url)


async def test_functions_without_attempts_are_forgotten(cluster, url, tmp_path):
    chunks = [chunk_of(f"k-{i}", start_s=i, functions=[f"f{i}"]) for i in range(150)]
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        await page.js(KEPT % (json.dumps(chunks), 2))
        names = "kept.functions.map((one) => [one.name, one.n, one.colour < OTHER])"
        assert await page.js(names) == [["f148", 1, True], ["f149", 1, True]]
        lane = "[...kept.lanes.values()][0]"
        about = f"((lane) => kept.about(lane, lane.to - 1))({lane})"
        assert (await page.js(about))["name"] == "f149"
        page.assert_clean(url)


async def test_keys_and_the_wheel_zoom_and_the_address_shows_the_same_again(
    cluster, client, url, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster, "?last=60")
        run_some(client, 30)
        await page.wait_for(f"{BAR % 0} !== null")
        await press(page, "+")
        await page.wait_for(f"{QUERY}.get('last') === '30.00'")
        assert await page.js(PRESSED) == "true"  # it is live as before
        await press(page, "ArrowLeft")
        await page.wait_for(f"{QUERY}.has('from')")
        assert await page.js(PRESSED) == "false"
        await page.js(
            "document.querySelector('.plot').dispatchEvent(new WheelEvent('wheel', "
            "{deltaY: -200, clientX: 600, clientY: 300, cancelable: true, bubbles: true}))"
        )
        await page.wait_for(f"{QUERY}.get('to') - {QUERY}.get('from') < 20")
        await page.click(".legend button")
        await page.wait_for(f"{QUERY}.has('function')")
        address = await page.js("location.href")
        shown = await page.js("document.querySelector('#shown').innerText")
        ticks = "[...document.querySelectorAll('.axis span')].map((e) => e.innerText)"
        before = await page.js(ticks)
        other = await browser.open(address)
        await other.wait_for(f"{COUNT} !== ''")
        await other.wait_for("document.querySelector('#shown').innerText !== ''")
        assert await other.js("document.querySelector('#shown').innerText") == shown
        assert await other.js(ticks) == before
        assert await other.js("document.querySelectorAll('[aria-pressed=true]').length") == 1
        await press(other, "End")
        await other.wait_for(f"!{QUERY}.has('from')")
        assert await other.js(PRESSED) == "true"
        page.assert_clean(url)
        other.assert_clean(url)


async def test_texts_of_users_are_texts_in_the_stream(cluster, client, url, tmp_path):
    def evil(number):
        return number

    evil.__name__ = "<img src=x onerror=\"document.title='owned'\">"
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        key = "<script>document.title='owned'</script>"
        assert client.submit(evil, 1, key=key).result() == 1
        await page.wait_for(f"{LEGEND}.some((text) => text.includes('onerror'))")
        await press(page, "0")
        assert await page.js("document.querySelectorAll('main img, main script').length") == 0
        assert "owned" not in await page.js("document.title")
        page.assert_clean(url)


async def test_a_page_that_is_not_visible_asks_for_nothing(cluster, client, url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        await page.js(HIDDEN % "true")
        await page.js(COUNTING)
        before = await page.js("nFetched")
        await page.wait_for("nPauses >= 3")
        assert await page.js("nFetched") == before
        await page.js(HIDDEN % "false")
        await page.wait_for(f"nFetched > {before}")
        page.assert_clean(url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
async def test_the_stream_is_readable_light_and_dark_wide_and_narrow(
    cluster, client, url, tmp_path, scheme, width
):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster, width=width, scheme=scheme)
        run_some(client, 20)
        await page.wait_for(f"{BAR % 0} !== null")
        await page.click("#live-button")
        assert await page.js("document.documentElement.scrollWidth") == width
        found = await page.js(CONTRASTS)
        assert found["n"] > 5
        assert found["low"] == []
        assert await page.js(UNNAMED) == []
        page.assert_clean(url)


async def test_with_reduced_motion_the_picture_moves_when_there_is_something_new_only(
    cluster, client, url, tmp_path
):
    async with chromium(tmp_path) as browser:
        page = await opened(browser, cluster)
        run_some(client, 10)
        await page.wait_for(f"{BAR % 0} !== null")
        feature = {"name": "prefers-reduced-motion", "value": "reduce"}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        await page.js(COUNTING)
        await page.wait_for("nFetched >= 3")
        drawn, fetched = await page.js("[nDrawn, nFetched]")
        assert 0 < drawn <= fetched + 1
        page.assert_clean(url)


def test_programs_with_the_view_token_and_no_others_get_the_columns(
    cluster, client, url, wait_until
):
    pages = Pages(url, cluster.security.token_for("view"))
    assert pages.ask("/stream/data")[0].status == 401
    assert pages.ask("/stream")[0].status == 303
    pages.ask_bytes("/stream/data", authorized=True)  # from now on they are recorded
    run_some(client, 17)

    def mine():
        _, rows = read(pages.ask_bytes("/stream/data", authorized=True)[1])
        return {row["key"]: row["raised"] for row in rows if row["key"].endswith("-17")}

    raised = {f"load-{i}-17": "ValueError" if i == 7 else None for i in range(17)}
    wait_until(lambda: mine() == raised)


def test_running_tasks_are_listed_until_they_have_ended(cluster, client, url, tmp_path, wait_until):
    pages = Pages(url, cluster.security.token_for("view"))

    def running():
        head, _ = read(pages.ask_bytes("/stream/data", authorized=True)[1])
        return [(row[4], row[5]) for row in head["running"] if row[6] <= head["now"]]

    assert running() == []
    gate = tmp_path / "gate"
    future = client.submit(wait_for_file, str(gate), key="long")
    wait_until(lambda: running() == [("long", "wait_for_file")])
    gate.touch()
    future.result()
    wait_until(lambda: running() == [])
