"""Make the pictures of the pages of a scheduler in the documentation.

    python -m tests.status_picture docs/images

A cluster of four workers runs three functions, one of which fails now and then, and one task asks
for what no worker has. The status page is taken when a part of the tasks is done, the history when
there are some samples, and the task stream when sums of parts have followed, whose inputs are
fetched. The pages of a failed task and of its worker are those that an admin sees. The graph has
tasks in several states; the profile is that of functions that compute. A report is of the same work
as the task stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.browser import BrowserTab, chromium
from weft.client.client import Client
from weft.client.insight.performance_report import performance_report
from weft.deploy.local.cluster import LocalCluster
from weft.protocol.trust.page_access import link_into
from weft.protocol.wire.levels import Level

#: Samples of the history before its picture is taken; there is one each two seconds.
_N_SAMPLES = 20
#: Samples of the profile.
_N_STACKS = 600
#: Keys of the graph end so.
_GRAPH = "2026"


def load(number: int) -> int:
    """Read a part of the data."""
    time.sleep(0.004)  # workload
    return number


def train(number: int) -> int:
    """Compute for a while."""
    if number % 150 == 77:
        raise ValueError(f"part {number} has no column 'temperature'")
    time.sleep(0.02)  # workload
    return number


def summarize(number: int) -> bytes:
    """Make a result of some size."""
    time.sleep(0.03)  # workload
    return bytes(400_000)


def submit(client: Client) -> list[Any]:
    """Submit the work; return the futures."""
    return [
        client.map(load, range(6000)),
        client.map(summarize, range(700), priority=1),
        client.map(train, range(4000), priority=1),
        client.submit(train, -1, resources={"GPU": 1}),
    ]


def total(parts: list[bytes]) -> int:
    """Add parts, most of which are at other workers."""
    time.sleep(0.08)  # workload
    return sum(map(len, parts))


def read_days(number: int) -> list[dict[str, float]]:
    """Parse a part of the data."""
    days = [{"day": day, "rain": day * number % 17, "sun": day % 24} for day in range(400)]
    return parse(json.dumps(days))


def parse(text: str) -> list[dict[str, float]]:
    """Return the days of a text."""
    return [scaled(day) for day in json.loads(text)]


def scaled(day: dict[str, float]) -> dict[str, float]:
    """Return a day with values between 0 and 1."""
    return {name: value / 400 for name, value in day.items()}


def evaluate(number: int) -> int:
    """Compute something of some parts."""
    days = [day for part in range(3) for day in read_days(number + part)]
    return len(packed(days)) + round(rain_of(days))


def rain_of(days: list[dict[str, float]]) -> float:
    """Return a sum."""
    return sum(day["rain"] ** 0.5 for day in days for _ in range(8))


def packed(days: list[dict[str, float]]) -> bytes:
    """Return days in few bytes."""
    return zlib.compress(json.dumps(days).encode(), 6)


def compare(*parts: object) -> int:
    """Read results of others."""
    return len(parts)


def train_long(*parts: object) -> None:
    """Compute for longer than a picture takes."""
    for _ in range(10_000):
        time.sleep(0.05)  # workload


def submit_graph(client: Client) -> list[Any]:
    """Submit tasks that read each other's results: some are done, some run, some wait."""

    def named(name: str, function: Any, *inputs: Any) -> Any:
        return client.submit(function, *inputs, key=f"{name}-{_GRAPH}")

    days = [named(f"load-{month}", load, month) for month in ("may", "june", "july", "august")]
    means = [named(f"summarize-{i}", summarize, i) for i in range(2)]
    models = [
        named("fit-spring", compare, *days[:2], means[0]),
        named("fit-summer", train_long, *days[1:], means[1]),
        named("fit-rain", train_long, *days[2:]),
    ]
    scores = [named("score-spring", compare, models[0]), named("score", compare, *models)]
    return [*models, *scores, named("report", compare, *scores), named("archive", compare, *scores)]


def submit_in_waves(client: Client) -> list[Any]:
    """Submit work of several functions that read each other's results; return the futures."""
    futures: list[Any] = []
    for wave in range(5):
        parts = client.map(summarize, range(wave * 100, wave * 100 + 100), priority=2)
        futures += client.map(load, range(wave * 300, wave * 300 + 300))
        futures += client.map(total, [parts[i::12] for i in range(12)], priority=1)
        futures += client.map(train, range(wave * 100, wave * 100 + 100))
    return futures


async def take_stream(cluster: LocalCluster, client: Client, folder: Path) -> None:
    """Take the pictures of the task stream."""
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            link = cluster.dashboard_link
            assert link is not None
            page = await browser.open(link, width=1100, height=700)
            await page.wait_for("document.querySelector('.tiles') !== null")
            await page.go(f"{link.partition('?')[0]}stream")
            await page.wait_for("document.querySelector('#count').innerText !== ''")
            futures = submit_in_waves(client)
            await asyncio.to_thread(lambda: [future.exception() for future in futures])
            legend = "document.querySelector('.legend').innerText"
            await page.wait_for(
                f"{legend}.includes('inputs fetched') && {legend}.includes('raised')"
            )
            await page.click("#all")
            await page.wait_for("location.search.includes('from=')")
            for name, width, scheme in (
                ("stream-dark", 1100, "dark"),
                ("stream-narrow", 400, "light"),
                ("stream-light", 1100, "light"),
            ):
                await page.show_as(width=width, height=620, scheme=scheme)
                await page.go(await page.js("location.href"))
                await page.wait_for("document.querySelector('.timeline').dataset.drawn === '1'")
                if name == "stream-light":
                    await _point_at_a_bar(page)
                await page.picture(folder / f"{name}.png")


async def _point_at_a_bar(page: BrowserTab) -> None:
    """Move the mouse over the lanes until something is there."""
    box = await page.js(
        "(({top, left, width}) => [top, left, width])"
        "(document.querySelector('#lanes').getBoundingClientRect())"
    )
    for part in range(40, 100):
        x = box[1] + box[2] * part / 100
        await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=box[0] + 40)
        if await page.js("document.querySelector('.tip').innerText.includes('fetched')"):
            return


async def take_details(cluster: LocalCluster, client: Client, folder: Path) -> None:
    """Take the pictures of the pages of a failed task and of a worker."""
    failed = client.submit(train, 77, retries=1)
    await asyncio.to_thread(failed.exception)
    running = client.map(load, range(10_000, 12_000))
    link = cluster.dashboard_link
    assert link is not None
    url = link.partition("?")[0]
    worker = next(iter(client.scheduler_info()["workers"].values()))["id"]
    paths = {"task": f"task?key={failed.key}", "worker": f"worker?address={worker}"}
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            access = link_into(url, cluster.security, Level.ADMIN)
            assert access is not None
            page = await browser.open(access, width=1100, height=700)
            await page.wait_for("document.querySelector('.tiles') !== null")
            for name, path in paths.items():
                await page.go(url + path)
                await page.wait_for("document.querySelector('.facts') !== null")
                # A traceback has the folder of this checkout.
                await page.js(
                    "document.querySelectorAll('pre').forEach(e => e.innerText ="
                    f" e.innerText.replaceAll({json.dumps(str(Path(__file__).parent))} + '/', ''))"
                )
                await page.picture(folder / f"{name}-light.png")
            await page.go(f"{url}search?q=train")
            await page.wait_for("document.querySelector('table') !== null")
            await page.picture(folder / "search-light.png", whole=False)
    client.cancel(running, force=True)


async def take_graph(cluster: LocalCluster, client: Client, folder: Path) -> None:
    """Take the picture of the tasks around one."""
    futures = submit_graph(client)
    await asyncio.to_thread(futures[3].result)
    link = cluster.dashboard_link
    assert link is not None
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            page = await browser.open(link, width=1100, height=500)
            await page.wait_for("document.querySelector('.tiles') !== null")
            key = quote(futures[4].key)
            await page.go(f"{link.partition('?')[0]}graph?key={key}")
            await page.wait_for("document.querySelector('.graph .processing') !== null")
            await page.picture(folder / "graph-light.png")
    client.cancel(futures, force=True, running=True)


async def take_profile(cluster: LocalCluster, client: Client, folder: Path) -> None:
    """Take the picture of the profile."""
    futures = client.map(evaluate, range(100_000))
    link = cluster.dashboard_link
    assert link is not None
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            page = await browser.open(link, width=1100, height=700)
            await page.wait_for("document.querySelector('.tiles') !== null")
            await page.go(f"{link.partition('?')[0]}profile")
            drawn = "Number(document.querySelector('.flame').dataset.drawn)"
            await page.wait_for(f"{drawn} > {_N_STACKS}")
            await page.picture(folder / "profile-light.png", whole=False)
    client.cancel(futures, force=True)


async def take_report(client: Client, folder: Path) -> None:
    """Take the picture of the beginning of a report."""
    with tempfile.TemporaryDirectory() as profile:
        file = Path(profile) / "report.html"
        await asyncio.to_thread(report, client, file)
        async with chromium(Path(profile)) as browser:
            page = await browser.open(file.as_uri(), width=1100, height=1000)
            await page.wait_for("document.querySelector('.timeline')?.dataset.drawn === '1'")
            await page.picture(folder / "report-light.png", whole=False)


def report(client: Client, file: Path) -> None:
    """Make a report of some work."""
    with performance_report(file, client=client):
        for future in submit_in_waves(client):
            future.exception()


async def take(cluster: LocalCluster, folder: Path) -> None:
    """Take the pictures."""
    with tempfile.TemporaryDirectory() as profile:
        async with chromium(Path(profile)) as browser:
            link = cluster.dashboard_link
            assert link is not None
            page = await browser.open(link, width=1100)
            text = "document.querySelector('main').innerText"
            await page.wait_for(f"document.querySelector('.tiles') && {text}.includes('column')")
            await page.wait_for(f"{text}.includes('cannot run')")
            await page.wait_for(f"/about .* left/.test({text})")
            for name, width, scheme in (
                ("status-light", 1100, "light"),
                ("status-dark", 1100, "dark"),
                ("status-narrow", 400, "light"),
            ):
                await page.show_as(width=width, height=900, scheme=scheme)
                await page.picture(folder / f"{name}.png")
            await _take_history(page, f"{link.partition('?')[0]}history?last=60", folder)


async def _take_history(page: BrowserTab, address: str, folder: Path) -> None:
    """Take the pictures of the history of the same cluster."""
    await page.show_as(width=1100, height=600, scheme="light")
    await page.go(address)
    count = "parseInt(document.querySelector('#count').innerText)"
    await page.wait_for(f"{count} > {_N_SAMPLES}")
    for name, width, scheme in (
        ("history-dark", 1100, "dark"),
        ("history-narrow", 400, "light"),
        ("history-light", 1100, "light"),
    ):
        await page.show_as(width=width, height=600, scheme=scheme)
        await page.go(address)
        await page.wait_for("document.querySelector('.axes').dataset.drawn === '1'")
        if name == "history-light":
            await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=330, y=250)
            await page.wait_for(
                "!document.querySelector('#shown').innerText.includes('–')",
            )
        await page.picture(folder / f"{name}.png")


def main() -> None:
    """Make the pictures in the folder that is given."""
    parser = argparse.ArgumentParser(description="make the pictures of the status page")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with (
        LocalCluster(
            n_workers=4, memory_limit="400MB", dashboard_address="127.0.0.1:0", name="climate"
        ) as cluster,
        Client(cluster, name="notebook") as client,
    ):
        futures = submit(client)
        asyncio.run(take(cluster, folder))
        client.cancel([future for group in futures[:3] for future in group], force=True)
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=2, dashboard_address="127.0.0.1:0", name="climate"
        ) as cluster,
        Client(cluster, name="notebook") as client,
    ):
        asyncio.run(take_stream(cluster, client, folder))
        asyncio.run(take_details(cluster, client, folder))
        asyncio.run(take_report(client, folder))
        asyncio.run(take_graph(cluster, client, folder))
        asyncio.run(take_profile(cluster, client, folder))


if __name__ == "__main__":
    main()
