"""The names and limits of workers that are added to a family."""

from __future__ import annotations

import pytest

from weft.worker.family.config import WorkerSpec
from weft.worker.family.places import MAX_PLACES, CannotScale, Growth


def names(*specs: str, n: int = 2) -> list[str]:
    growth = Growth([WorkerSpec(name, 5, {"nthreads": 1}) for name in specs])
    return [spec.name for spec in growth.more(len(specs), n)]


def test_names_go_on_where_the_last_one_ended():
    assert names("w-0", "w-1") == ["w-2", "w-3"]
    assert names("host") == ["host-1", "host-2"]
    assert names("a-b-7") == ["a-b-8", "a-b-9"]
    assert names("w-0", n=0) == []


def test_no_name_is_given_twice():
    growth = Growth([WorkerSpec("w-0", 5, {})])
    first = growth.more(1, 2)
    assert [spec.name for spec in growth.more(1, 1)] == ["w-3"]
    assert first[0].memory_limit == 5


def test_a_family_has_a_limit():
    with pytest.raises(CannotScale, match=str(MAX_PLACES)):
        names("w-0", n=MAX_PLACES)
    with pytest.raises(CannotScale, match="without workers"):
        Growth([]).more(0, 1)


def test_a_family_that_begins_with_none_gets_the_first_names():
    growth = Growth([], WorkerSpec("w-0", 5, {}))
    assert [spec.name for spec in growth.more(0, 2)] == ["w-0", "w-1"]
    assert [spec.name for spec in growth.more(1, 1)] == ["w-2"]
