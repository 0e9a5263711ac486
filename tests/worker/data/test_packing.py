"""Whether the pickle of a result fits into a worker's memory."""

from __future__ import annotations

import threading

import numpy as np
import psutil
import pytest

from weft.worker.data.packing import why_too_large

MEBI = 1 << 20


@pytest.fixture(scope="module")
def limit():
    """A memory limit that leaves 40 MiB to this process."""
    return int((psutil.Process().memory_info().rss + 200 * MEBI) / 0.95)


def test_a_pickle_that_fits_beside_its_value_is_no_problem(limit):
    assert why_too_large(bytes(MEBI), MEBI, limit) == ""
    assert why_too_large(bytes(limit // 6), limit // 6, limit) == ""


@pytest.mark.parametrize("part", [1000, MEBI])
def test_many_values_or_a_large_one_are_counted_until_they_do_not_fit(limit, part):
    value = [bytes(part)] * 8 + [bytes(limit)]
    text = why_too_large(value, limit, limit)
    assert text.startswith(f"the result takes {limit} bytes and its pickle")
    assert f"may use {limit} in all" in text
    assert why_too_large(value, limit, 0) == ""


def test_an_array_is_not_copied_and_fits(limit):
    assert why_too_large(np.empty(limit, dtype=np.uint8), limit, limit) == ""


def test_the_size_check_ignores_values_that_cannot_be_pickled(limit):
    assert why_too_large([threading.Lock()], limit, limit) == ""
