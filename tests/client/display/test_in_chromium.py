"""A report in a browser: it needs nothing else, fits narrow screens, and zooms."""

from __future__ import annotations

import pytest

from tests.browser import chromium
from tests.client.display.test_report import worker
from tests.client.display.test_timeline import timing
from weft.client.display.report import ReportContent, report_page

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

TICKS = "[...document.querySelectorAll('.axis span')].map((e) => e.textContent)"
SHOWN = "document.querySelector('.plot svg').viewBox.baseVal.width"
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


async def test_a_report_needs_nothing_else_and_zooms(url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url, width=1200)
        await page.wait_for(f"{TICKS}.length > 3")
        assert (await page.js(TICKS))[:2] == ["0 s", "2 s"]
        assert "40" in await page.text()
        whole = await page.js(SHOWN)
        await page.js(WHEEL % -400)
        assert await page.js(SHOWN) < whole / 2
        await page.wait_for(f"{TICKS}.some((text) => text.includes('.'))")
        await page.js(WHEEL % 4000)
        assert await page.js(SHOWN) == whole
        page.assert_clean(url)


async def test_keys_zoom_a_report_and_move_in_it(url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url, width=1200)
        await page.wait_for(f"{TICKS}.length > 3")
        whole = await page.js(SHOWN)
        left = "document.querySelector('.plot svg').viewBox.baseVal.x"
        press = (
            "document.querySelector('.plot').focus(), document.activeElement.dispatchEvent("
            "new KeyboardEvent('keydown', {key: '%s', cancelable: true, bubbles: true}))"
        )
        await page.js(press % "+")
        assert await page.js(SHOWN) == pytest.approx(whole / 2)
        assert await page.js(left) == pytest.approx(whole / 4)
        await page.js(press % "ArrowRight")
        assert await page.js(left) == pytest.approx(whole * 0.35)
        await page.js(press % "End")
        assert await page.js(left) == pytest.approx(whole / 2)
        await page.js(press % "0")
        assert [await page.js(SHOWN), await page.js(left)] == [whole, 0]
        page.assert_clean(url)


async def test_a_report_fits_a_narrow_screen(url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url, width=400)
        await page.wait_for(f"{TICKS}.length > 0")
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.js(overflow) <= 0
        page.assert_clean(url)
