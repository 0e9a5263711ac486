"""The rules for every test.

- A test that passes must leave nothing behind: no thread, open file, socket, child process (also
  checked for each module as a whole) and no asyncio task. See tests/leaks.py for what counts.
  A test that failed is not examined; its processes are killed. A client of a wider scope connects
  to workers when it needs them: the sockets of a test that uses one are checked with its module.
- Hypothesis has no deadlines (a busy machine is not a bug), and with CI set it tries the same
  examples each time.
- `wait_until(condition)` instead of sleeping.
- The settings of the developer do not reach tests: neither files nor variables of weft.
- What `make test` leaves out is marked with the reason, here (thorough.py) or by the test itself.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import leaks
from tests.postgresql import postgresql  # noqa: F401 - a fixture
from tests.thorough import why_thorough
from weft.protocol.settings import sources

# A shell lets commands in the background ignore Ctrl-C, and their children too: tests of it would
# wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("weft", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "weft")

#: Variables that are for the tests themselves.
_FOR_TESTS = re.compile("WEFT_(TOOLS|WITHOUT_TOOLS|TEST.*|SIM_.*|BENCHMARK_.*)")

TESTS = Path(__file__).parent

#: Each begins with reading all test files.
MAX_PROCESSES = 12

_FAILED = pytest.StashKey[bool]()

#: Fixtures of a scope wider than a test that have opened sockets, and may open more.
_CONNECTED: set[pytest.FixtureDef[object]] = set()


@pytest.fixture(autouse=True, scope="session")
def settings_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide settings, connection files and tokens of the user and of the machine."""
    folder = tmp_path_factory.mktemp("nobody")
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name.startswith("WEFT_") and not _FOR_TESTS.fullmatch(name):
                patch.delenv(name)
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
            patch.setenv(name, str(folder))
        patch.setattr(sources, "MACHINE_FILE", Path(folder, "machine.toml"))
        yield


@pytest.fixture
def wait_until() -> Callable[..., object]:
    """Return `leaks.wait_until(condition, timeout_s=10, what="")`."""
    return leaks.wait_until


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path, unlike `tmp_path`, leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="wt") as folder:
        yield Path(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than two cores have, and so on: half of the time tests wait for others."""
    return min(math.ceil((os.cpu_count() or 1) * 1.5), MAX_PROCESSES)


@pytest.hookimpl(tryfirst=True)  # before markers are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each coroutine test `no_leaked_tasks`, which needs the test's own loop."""
    for item in items:
        if item.get_closest_marker("slow") is not None:
            why = why_thorough(item.path.relative_to(TESTS).as_posix())
            if why is not None:
                item.add_marker(pytest.mark.thorough(why))
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            # Before the first fixture of the test's own scope, so that it is torn down after them
            # all: they may end the tasks that the test started through them.
            known = item._fixtureinfo.name2fixturedefs
            own = (
                index
                for index, name in enumerate(item.fixturenames)
                if name in known and known[name][-1].scope == "function"
            )
            item.fixturenames.insert(next(own, len(item.fixturenames)), "no_leaked_tasks")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Note a fixture of a wider scope that opens sockets."""
    if fixturedef.scope == "function":
        return (yield)
    before = leaks.Snapshot.take()
    value = yield
    if leaks.Snapshot.take().n_sockets > before.n_sockets:
        _CONNECTED.add(fixturedef)
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note that a test failed, before its fixtures are torn down."""
    report = yield
    if report.failed:
        for node in item.listchain():
            node.stash[_FAILED] = True
    return report


@pytest.fixture
async def no_leaked_tasks(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail if an asyncio task that the test started outlives it."""
    before = asyncio.all_tasks()
    yield
    if _FAILED in request.node.stash:
        return
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=leaks.GRACE_S)
    if left:
        pytest.fail("asyncio tasks left running:\n" + "\n".join(sorted(map(str, left))))


@pytest.fixture(autouse=True)
def nothing_left_by_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if the test leaves a thread, an open file or a process."""
    before = leaks.Snapshot.take()
    yield
    if request.node.get_closest_marker("shares_resources") is None:
        _judge(request.node, before, may_connect=_uses_connected(request.node))


@pytest.fixture(autouse=True, scope="module")
def nothing_left_by_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if a fixture of a wider scope leaves a thread, an open file or a process."""
    before = leaks.Snapshot.take()
    yield
    _judge(request.node, before)


def _uses_connected(test: pytest.Item) -> bool:
    if not isinstance(test, pytest.Function):
        return False
    fixtures = test._fixtureinfo.name2fixturedefs
    return any(fixtures[name][-1] in _CONNECTED for name in test.fixturenames if name in fixtures)


def _judge(
    node: pytest.Item | pytest.Collector, before: leaks.Snapshot, *, may_connect: bool = False
) -> None:
    if _FAILED in node.stash:
        leaks.kill(leaks.Snapshot.take().children - before.children)
    elif left := leaks.leaks_since(before, may_connect=may_connect):
        pytest.fail("left behind:\n  " + "\n  ".join(left))
