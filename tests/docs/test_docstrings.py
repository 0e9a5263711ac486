"""The examples in docstrings are run, and the results that they state are checked."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from typing import Any

import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

#: What a newcomer calls first.
DESCRIBED = {
    "weft.Client": weft.Client,
    "weft.Client.submit": weft.Client.submit,
    "weft.Client.map": weft.Client.map,
    "weft.Client.gather": weft.Client.gather,
    "weft.Client.scatter": weft.Client.scatter,
    "weft.wait": weft.wait,
    "weft.as_completed": weft.as_completed,
}


@pytest.fixture(scope="module")
def client() -> Iterator[weft.Client]:
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        yield client


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_example_of_a_docstring_gives_the_stated_results(
    name: str, client: weft.Client
) -> None:
    names: dict[str, Any] = {"weft": weft, "client": client}
    (example,) = doctest.DocTestFinder(recurse=False).find(DESCRIBED[name], name, globs=names)
    assert example.examples, f"{name} has no example"
    said: list[str] = []
    assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)
