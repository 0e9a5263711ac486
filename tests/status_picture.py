"""Make the pictures of the status page in the documentation.

    python -m tests.status_picture docs/images

A cluster of four workers runs three functions, one of which fails now and then, and one task asks
for what no worker has. The page is taken when a part of the tasks is done.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.browser import chromium
from weft.client.client import Client
from weft.deploy.local.cluster import LocalCluster


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


if __name__ == "__main__":
    main()
