"""Prints the seconds that the tests of each folder took, for the budgets of tests/README.md.

make test ARGS="-p tests.times"
"""

from __future__ import annotations

from collections import Counter

import pytest

_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what the set-up, the call or the end of a test took."""
    folder = "/".join(report.nodeid.partition("::")[0].split("/")[:-1][:2])
    _seconds[folder] += report.duration
    _tests[folder] += report.when == "call"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, the longest first."""
    terminalreporter.section("seconds by folder")
    for folder, seconds in _seconds.most_common():
        terminalreporter.write_line(f"{seconds:8.0f} s {_tests[folder]:6d} tests  {folder}")
    terminalreporter.write_line(f"{_seconds.total():8.0f} s {_tests.total():6d} tests")
