"""A pytest plugin that runs dask's tests on one of weft's engines and counts the outcomes.

Loaded with `-p tests.conformance.plugin`; run.py does so. Owns the options below, the marking of
deselected tests and the report. Works under pytest-xdist: each worker installs the engine, and
the controller collects. Must not be loaded in a run of weft's own tests: dask is changed for
the whole process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import deselected, engines

#: Before the reason of our own xfail marks, to tell them from dask's.
_OURS = "weft: "


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--engine", choices=[*engines.ENGINES], default="threaded")
    group.addoption("--conformance-report", metavar="FILE", help="write the outcomes there (JSON)")
    group.addoption(
        "--no-deselected", action="store_true", help="treat deselected tests as all others"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Install the engine: dask's conftest.py, which comes next, imports the collections."""
    engines.install(early_config.known_args_namespace.engine)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(config), "conformance-report")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the engine where tests are run: not in the controller of pytest-xdist."""
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
        engine = config.getoption("--engine")
        engines.start(engine)
        config.add_cleanup(lambda: engines.stop(engine))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is on the list."""
    if config.getoption("--no-deselected"):
        return
    for item in items:
        entry = deselected.find(item.nodeid, config.getoption("--engine"))
        if entry is not None:
            # First, so that a mark of the test's own does not hide it.
            item.add_marker(
                pytest.mark.xfail(reason=_OURS + entry.reason, strict=False, run=entry.run),
                append=False,
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Note in the report of each phase how many graphs the engines ran since the last one."""
    report = yield
    # An attribute more is kept when pytest-xdist sends the report.
    report.graphs = engines.take_count()
    return report


class _Report:
    """Collects the outcomes, in the process that the user started."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        #: {node id: what `_outcome` says, seconds over all phases, graphs, the text of a failure}.
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests.setdefault(
            report.nodeid, {"outcome": "passed", "seconds": 0.0, "graphs": 0, "text": ""}
        )
        test["seconds"] += getattr(report, "duration", 0.0)
        test["graphs"] += getattr(report, "graphs", 0)
        # Only one phase says something else than "passed", unless the teardown fails as well.
        outcome = _outcome(report)
        if outcome != "passed" and test["outcome"] != "failed":
            test["outcome"] = outcome
            test["text"] = getattr(report, "wasxfail", "") or _text(report)

    def pytest_sessionfinish(self) -> None:
        path = self.config.getoption("--conformance-report")
        if path:
            import dask

            report = {
                "engine": self.config.getoption("--engine"),
                "dask": dask.__version__,
                "tests": self.tests,
            }
            Path(path).write_text(json.dumps(report, indent=1), encoding="utf-8")


def _outcome(report: pytest.TestReport) -> str:
    """Return "passed", "failed", "skipped", "deselected", or "listed" for a deselected pass."""
    wasxfail = getattr(report, "wasxfail", None)
    if wasxfail is None:
        return report.outcome
    if wasxfail.startswith(("reason: " + _OURS, _OURS, "[NOTRUN] " + _OURS)):
        return "listed" if report.passed else "deselected"
    # dask expects this failure itself: as good as a pass.
    return "passed"


def _text(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # skipped: (file, line, reason)
        return str(report.longrepr[2])
    return str(report.longreprtext)
