"""A report in a browser: it needs nothing else, fits narrow screens, and zooms."""

from __future__ import annotations

import pytest

from tests.browser import chromium
from tests.client.display.test_report import worker
from tests.client.display.test_timeline import timing
from weft.client.display.report import ReportContent, report_page

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

TICKS = "[...document.querySelectorAll('.axis span')].map((e) => e.textContent)"
FIRST = f"{TICKS}[0]"
DRAWN = "document.querySelector('.timeline').dataset.drawn === '1'"
POINT = """(() => {
  const {left, top} = document.querySelector('#lanes').getBoundingClientRect();
  document.querySelector('.plot').dispatchEvent(new PointerEvent('pointermove',
    {clientX: left + %d, clientY: top + 6, bubbles: true}));
  return document.querySelector('.tip').innerText;
})()"""
WHEEL = (
    "document.querySelector('.plot').dispatchEvent(new WheelEvent('wheel', "
    "{deltaY: %d, clientX: 400, clientY: 300, cancelable: true, bubbles: true}))"
)


@pytest.fixture
def url(tmp_path):
    file = tmp_path / "report.html"
    some = [timing(i / 4, i / 4 + 0.2, "fg"[i % 2], thread=i % 3) for i in range(40)]
    shown = ReportContent(some, 0.0, 10.0, "today", workers={"tcp://w-0": worker(nthreads=3)})
    file.write_text(report_page(shown), encoding="utf-8")
    return file.as_uri()


async def test_a_report_needs_nothing_else_and_shows_the_attempt_that_is_pointed_at(url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url, width=1200)
        await page.wait_for(DRAWN)
        assert (await page.js(TICKS))[:2] == ["0 s", "2 s"]
        assert "40" in await page.text()
        shown = await page.js(POINT % 5)
        assert shown.split("\n") == [
            "f-0.0",
            "f on w-0 · 0, host here",
            "0.000 s – 0.200 s: 200 ms",
            "int, 8 B",
        ]
        page.assert_clean(url)


async def test_the_wheel_and_keys_zoom_a_report_and_move_in_it(url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url, width=1200)
        await page.wait_for(DRAWN)
        whole = await page.js(TICKS)
        await page.js(WHEEL % -400)
        await page.wait_for(f"{TICKS}.some((text) => text.includes('.'))")
        await page.js(WHEEL % 4000)
        assert await page.js(TICKS) == whole
        press = (
            "document.querySelector('.plot').focus(), document.activeElement.dispatchEvent("
            "new KeyboardEvent('keydown', {key: '%s', cancelable: true, bubbles: true}))"
        )
        await page.js(press % "+")
        await page.js(press % "+")
        assert await page.js(FIRST) == "4.0 s"
        await page.js(press % "ArrowRight")
        assert await page.js(FIRST) == "4.5 s"
        await page.js(press % "End")
        assert await page.js(FIRST) == "7.5 s"
        await page.js(press % "0")
        assert await page.js(TICKS) == whole
        page.assert_clean(url)


async def test_a_report_runs_no_script_but_its_own(tmp_path):
    bad = "</script><script>document.title = 'bad'</script>"
    file = tmp_path / "report.html"
    some = [timing(0.0, 1.0, bad, worker=bad, key=bad, span=(bad,))]
    page = report_page(ReportContent(some, 0.0, 1.0, bad, code=bad, notes=[bad]))
    file.write_text(page.replace("<main>", "<main><script>document.title = 'bad'</script>"))
    async with chromium(tmp_path) as browser:
        opened = await browser.open(file.as_uri())
        await opened.wait_for(DRAWN)
        assert await opened.js("document.title") != "bad"
        assert any("Content Security Policy" in text for text in opened.complaints)


async def test_a_report_fits_a_narrow_screen(url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url, width=400)
        await page.wait_for(f"{TICKS}.length > 0")
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.js(overflow) <= 0
        page.assert_clean(url)
