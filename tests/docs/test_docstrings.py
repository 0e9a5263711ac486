"""The examples in docstrings are run, and the results that they state are checked."""

from __future__ import annotations

import doctest
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

#: What programs call most.
DESCRIBED = (
    "Client",
    "Client.cancel",
    "Client.compute",
    "Client.gather",
    "Client.get",
    "Client.get_dataset",
    "Client.get_executor",
    "Client.log_event",
    "Client.map",
    "Client.persist",
    "Client.publish_dataset",
    "Client.register_plugin",
    "Client.replicate",
    "Client.retry",
    "Client.run",
    "Client.scatter",
    "Client.scheduler_info",
    "Client.set_metadata",
    "Client.submit",
    "Client.upload_file",
    "Client.wait_for_workers",
    "Client.who_has",
    "Future.add_done_callback",
    "Future.attempts",
    "Future.cancel",
    "Future.done",
    "Future.exception",
    "Future.result",
    "Future.retry",
    "Actor",
    "as_completed",
    "as_completed.add",
    "CountDown",
    "Event",
    "Executor",
    "Executor.map",
    "fire_and_forget",
    "get",
    "get_client",
    "get_task_stream",
    "get_worker",
    "limit",
    "LocalCluster",
    "LocalCluster.scale",
    "Lock",
    "MultiLock",
    "performance_report",
    "progress",
    "Queue",
    "Queue.get",
    "Queue.put",
    "Retries",
    "Semaphore",
    "ThreadPool",
    "Variable",
    "wait",
)


@pytest.fixture(scope="module")
def client() -> Iterator[weft.Client]:
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        yield client


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_example_of_a_docstring_gives_the_stated_results(
    name: str, client: weft.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    names: dict[str, Any] = {"weft": weft, "client": client}
    described = operator.attrgetter(name)(weft)
    (example,) = doctest.DocTestFinder(recurse=False).find(described, name, globs=names)
    assert example.examples, f"{name} has no example"
    said: list[str] = []
    assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)
