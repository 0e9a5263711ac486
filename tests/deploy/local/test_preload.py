"""Modules that the workers of a `LocalCluster` import first, and the functions in them."""

from __future__ import annotations

import sys

import pytest

import weft

pytestmark = pytest.mark.slow


def answer() -> object:
    return weft.get_worker().plugins.get("answer")


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "weft_prepared", raising=False)
    path = tmp_path / "weft_prepared.py"
    path.write_text(
        "steps = []\n"
        "async def weft_setup(worker):\n"
        "    steps.append('setup')\n"
        "    worker.plugins['answer'] = 42\n"
        "def weft_teardown(worker):\n"
        "    steps.append('teardown')\n"
    )
    yield path
    sys.modules.pop("weft_prepared", None)


@pytest.mark.parametrize("processes", [True, False])
def test_workers_import_a_module_and_call_its_setup(module, processes):
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": processes}
    with weft.Client(preload=module, **options) as client:
        assert client.submit(answer).result() == 42
    if not processes:
        assert sys.modules["weft_prepared"].steps == ["setup", "teardown"]


def test_a_module_that_is_missing_is_an_error_of_the_cluster():
    with pytest.raises(weft.ConfigError, match="cannot import 'no_such_module'"):
        weft.Client(preload=["no_such_module"], processes=False, n_workers=1)
    with (
        pytest.raises(weft.WeftError, match="cannot import 'no_such_module'"),
        weft.Client(preload="no_such_module", n_workers=1) as client,
    ):
        client.submit(abs, -1).result(timeout=60)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="preload= is the name of a module"):
        weft.LocalCluster(preload=[3])
