"""Clients, futures and progress in the cells of a real kernel."""

from __future__ import annotations

import pytest

from tests.client.display.test_html import Shown
from tests.kernels import kernel  # noqa: F401

pytestmark = pytest.mark.slow

START = """
import weft
client = weft.Client(n_workers=2, threads_per_worker=1)
client
"""


def test_a_cell_shows_a_client_its_workers_futures_and_lists_of_futures(kernel):  # noqa: F811
    cell = kernel.run(START)
    (text,), (page,) = cell.displayed("text/plain"), cell.displayed("text/html")
    assert "workers=2 threads=2>" in text
    assert "Workers at" in Shown(page).text
    (page,) = kernel.run("client.cluster").displayed("text/html")
    assert "LocalCluster" in Shown(page).text
    (page,) = kernel.run("fs = client.map(abs, range(9)); weft.wait(fs); fs").displayed("text/html")
    assert "9 futures" in Shown(page).text
    (page,) = kernel.run("fs[0]").displayed("text/html")
    assert "finished" in Shown(page).text
    (page,) = kernel.run("client.scheduler_info()['workers']").displayed("text/html")
    assert "running" not in Shown(page).text
    assert not kernel.run("[1, 2]").displayed("text/html")
    (page,) = kernel.run("client.close(); client").displayed("text/html")
    assert "closed" in Shown(page).text


SLOW = """
import os, time, weft
client = weft.Client(n_workers=1, threads_per_worker=2)
gate = os.path.join(client.cluster._directory, "gate")
def waits(x):
    while not os.path.exists(gate):
        time.sleep(0.01)  # workload
    if x == 3:
        raise ValueError(x)
    return x
futures = client.map(waits, range(10))
"""


def test_progress_below_a_cell_is_updated_and_ends_as_a_summary(kernel):  # noqa: F811
    kernel.run(SLOW)
    # With the default, the cell ends before the futures do.
    cell = kernel.run("weft.progress(futures)")
    cell.wait(lambda cell: cell.displayed("text/html"))
    assert "0/10" in Shown(cell.displayed("text/html")[0]).text
    kernel.run("open(gate, 'w').close()")
    blocking = kernel.run("weft.progress(futures, blocking=True)")
    page = Shown(blocking.displayed("text/html")[-1])
    assert "10 tasks of waits done" in page.text
    assert "1 failed" in page.text
    ids = {
        content["transient"]["display_id"]
        for kind, content in blocking.messages
        if kind in ("display_data", "update_display_data")
    }
    assert len(ids) == 1
    gathered = kernel.run("client.gather(client.map(str, range(5)), progress=True)")
    assert "5 tasks of str done" in Shown(gathered.displayed("text/html")[-1]).text
    iterated = kernel.run("[f for f in weft.as_completed(futures, progress=True)] and None")
    assert "10 tasks of waits done" in Shown(iterated.displayed("text/html")[-1]).text
    kernel.run("client.close()")
