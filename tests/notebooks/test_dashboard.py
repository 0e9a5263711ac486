"""`client.dashboard` in a cell of a real kernel: pictures come through the kernel, and end."""

from __future__ import annotations

import html
import re

import pytest

from tests.client.display.test_timeline import drawn
from tests.kernels import kernel  # noqa: F401

pytestmark = pytest.mark.slow

START = """
import weft
client = weft.Client(n_workers=1, threads_per_worker=2)
client.dashboard
"""


def page_of(kernel, cell):  # noqa: F811
    """Return the page in the frame that a cell shows now, whichever cell ran when it came."""
    place, found = None, ""
    for one in kernel.cells.values():
        for kind, content in one.messages:
            if kind not in ("display_data", "update_display_data"):
                continue
            if one is cell and place is None:
                place = content["transient"]
            if content["transient"] == place:
                found = content["data"]["text/html"]
    return html.unescape(re.search(r'srcdoc="([^"]*)"', found)[1])


def wait_for(kernel, cell, text):  # noqa: F811
    cell.wait(lambda cell: text in page_of(kernel, cell))
    return page_of(kernel, cell)


def test_a_cell_shows_what_runs_until_the_client_is_closed(kernel):  # noqa: F811
    cell = kernel.run(START)
    assert "No task ended in this time" in wait_for(kernel, cell, "with 2 threads")
    kernel.run("weft.wait(client.map(abs, range(20)))")
    page = wait_for(kernel, cell, "stream-data")
    assert {row["function"] for row in drawn(page)} == {"abs"}
    later = kernel.run("client.dashboard")
    wait_for(kernel, cell, "in the cell that was run later")
    kernel.run("client.close()")
    wait_for(kernel, later, "The client is closed")
    assert "Dashboard of" in kernel.run("print(repr(client.dashboard))").stdout
