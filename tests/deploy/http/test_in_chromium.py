"""The status page in a browser: signing in, refreshing, light, dark and narrow."""

from __future__ import annotations

import pytest

from tests.browser import chromium

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture
def token(cluster):
    return cluster.security.token_for("view")


async def test_signing_in_by_the_form_and_out_again(url, token, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(url)
        assert await page.js("location.href") == f"{url}login"
        await page.type("#token", "guess")
        await page.click("button[type=submit]")
        text = await page.wait_for("document.querySelector('[role=alert]')?.innerText")
        assert text.startswith("This is not the view token of this cluster")
        await page.type("#token", token)
        await page.click("button[type=submit]")
        await page.wait_for("document.querySelector('.tiles') !== null")
        assert await page.js("location.href") == url
        assert await page.js("document.cookie") == ""  # scripts do not see it
        again = await browser.open(url)
        assert await again.js("location.href") == url
        await again.click("header button")
        await again.wait_for("document.querySelector('#token') !== null")
        await page.go(url)
        assert await page.js("location.href") == f"{url}login"
        page.complaints = [c for c in page.complaints if "403" not in c]  # the wrong token
        page.assert_clean(url)
        again.assert_clean(url)


async def test_a_link_signs_in_and_works_from_another_site_ever_after(cluster, url, tmp_path):
    link = cluster.dashboard_link
    elsewhere = tmp_path / "notebook.html"
    elsewhere.write_text(f'<a id="link" href="{link}">dashboard</a>')
    async with chromium(tmp_path) as browser:
        for _ in range(2):
            page = await browser.open(elsewhere.as_uri())
            await page.click("#link")
            await page.wait_for("document.querySelector('.tiles') !== null")
            assert await page.js("location.href") == url  # the link is not left in the address
    async with chromium(tmp_path) as browser:
        page = await browser.open(link)
        text = await page.text()
        assert "This link was used before, and works once." in text


async def test_a_page_refreshes_itself_and_stays_where_it_is(cluster, client, url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link, height=300)
        await page.wait_for("document.querySelector('.tiles') !== null")
        await page.go(url)
        n_loads = page.n_loads
        await page.js("scrollTo(0, 150)")
        assert client.gather(client.map(abs, range(-30, 0)))[0] == 30
        done = "document.querySelector('main').innerText.includes('30 done')"
        await page.wait_for(done)
        assert await page.js("scrollY") == 150
        assert page.n_loads == n_loads
        # Without a connection it says so, and goes on when there is one again.
        await page.call("Network.emulateNetworkConditions", offline=True, latency=0,
                        downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
        shown = "!document.querySelector('#silent').hidden"
        await page.wait_for(shown)
        assert "No answer since" in await page.text()
        await page.call("Network.emulateNetworkConditions", offline=False, latency=0,
                        downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
        await page.wait_for(f"!({shown})")
        page.complaints = [c for c in page.complaints if "ERR_INTERNET_DISCONNECTED" not in c]
        page.assert_clean(url)


async def test_a_refresh_keeps_the_box_the_focus_and_what_is_scrolled_or_selected(
    cluster, client, url, tmp_path
):
    client.gather(client.map(abs, range(-30, 0)))
    time = "document.querySelector('footer span').innerText"
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link, width=300)
        await page.wait_for("document.querySelector('.tiles') !== null")
        region = "document.querySelector('[role=region][aria-label=Workers]')"
        # It scrolls once the style is loaded and the workers have reported their memory.
        await page.wait_for(f"{region}.scrollLeft = 20, {region}.scrollLeft === 20")
        await page.js(f"{region}.focus()")
        for _ in range(2):
            before = await page.js(time)
            await page.wait_for(f"{time} !== '{before}'")
        assert await page.js(f"{region}.scrollLeft") == 20
        assert await page.js(f"document.activeElement === {region}")
        assert await page.js("document.querySelector('#live').checkVisibility()")
        # A page that becomes visible is fetched at once, but not while a text is selected, nor
        # when the box was cleared.
        await page.js("n = 0, original = fetch, fetch = (...a) => (n += 1, original(...a)), 0")
        seen = "n = 0, document.dispatchEvent(new Event('visibilitychange')), n"
        assert await page.js(seen) == 1
        select = "getSelection().selectAllChildren(document.querySelector('h2'))"
        assert await page.js(f"{select}, {seen}") == 0
        silent = "document.querySelector('#silent')"
        # A fetch that was under way takes the first selection away.
        told = f"{silent}.innerText.includes('not refreshed while text is selected')"
        await page.wait_for(f"{select}, {told}")
        assert await page.js(f"getSelection().removeAllRanges(), {seen}") == 1
        await page.wait_for(f"{silent}.hidden")
        # Not by the mouse: a refresh that is under way could move the box below it.
        await page.js("document.querySelector('#live').click()")
        assert await page.js(seen) == 0
        page.assert_clean(url)


async def test_a_page_without_scripts_reloads_as_a_whole(cluster, url, tmp_path):
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link)
        await page.wait_for("document.querySelector('.tiles') !== null")
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        await page.go(url)
        n_loads = page.n_loads
        await page.wait_until(lambda: page.n_loads > n_loads)


async def test_texts_of_users_are_texts_in_the_page(cluster, client, url, tmp_path):
    def evil():
        raise ValueError("<img src=x onerror=\"document.title='owned'\">")

    future = client.submit(evil, key="<script>document.title='owned'</script>")
    assert isinstance(future.exception(), ValueError)
    async with chromium(tmp_path) as browser:
        page = await browser.open(cluster.dashboard_link)
        await page.wait_for("document.querySelector('main')?.innerText.includes('onerror')")
        assert await page.js("document.querySelectorAll('main img, main script').length") == 0
        assert "owned" not in await page.js("document.title")
        page.assert_clean(url)


@pytest.mark.parametrize("path", ["", "workers", "login"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
async def test_pages_are_readable_light_and_dark_wide_and_narrow(
    cluster, client, url, tmp_path, path, scheme, width
):
    client.gather(client.map(abs, range(-30, 0)))
    async with chromium(tmp_path) as browser:
        if path == "login":
            page = await browser.open(f"{url}login", width=width, scheme=scheme)
        else:
            page = await browser.open(cluster.dashboard_link, width=width, scheme=scheme)
            await page.wait_for("document.querySelector('.tiles') !== null")
            await page.go(url + path)
        # Nothing is wider than the window. (Tables of long texts scroll in regions of their own.)
        assert await page.js("document.documentElement.scrollWidth") == width
        wide = (
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        )
        assert await page.js(f"{wide}.map(e => e.ariaLabel)") == []
        found = await page.js(CONTRASTS)
        assert found["n"] > 5
        assert found["low"] == []
        assert await page.js(UNNAMED) == []
        page.assert_clean(url)


#: Texts whose contrast to what is behind them is below the 4.5 of the accessibility guidelines.
CONTRASTS = """
(() => {
  // A mixed colour is `color(srgb 0.8 0.9 1)`.
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number)
    .map((v, i) => c.startsWith("color(srgb") && i < 3 ? 255 * v : v);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  };
  // Texts of drawings stand on the box of their group.
  const box = (e) => e.tagName === "text" && e.parentElement.querySelector("rect");
  const ink = (e) => getComputedStyle(e)[e.tagName === "text" ? "fill" : "color"];
  const ground = (e) => box(e) ? parse(getComputedStyle(box(e)).fill) : behind(e);
  const low = [];
  let n = 0;
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!own || !e.checkVisibility()) continue;
    n += 1;
    const a = light(parse(ink(e))), b = light(ground(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) low.push([e.textContent, contrast]);
  }
  return {n, low};
})()
"""

#: Tables, graphics, fields and buttons without a name for those who do not see them, and columns
#: without a header.
UNNAMED = """
[
  ...[...document.querySelectorAll("table, svg, section[aria-label], [role=region]")]
    .filter((e) => !e.getAttribute("aria-label")),
  ...[...document.querySelectorAll("input:not([type=hidden]), button")]
    .filter((e) => !(e.labels && e.labels.length) && !e.innerText),
  ...[...document.querySelectorAll("thead th")].filter((e) => e.scope !== "col" || !e.innerText
    && e.checkVisibility()),
  ...[...document.querySelectorAll("tbody tr")].filter((e) => !e.querySelector("th[scope^=row]")),
].map((e) => e.outerHTML)
"""
