"""The exceptions that users get, made from failures as messages carry them."""

from __future__ import annotations

import pytest

from weft.client.core.tasks import FutureState
from weft.client.results.failures import exception_of
from weft.protocol.values.exceptions import pack_exception


@pytest.mark.parametrize(
    ("attempts", "notes"), [([], []), ([3], ["weft: attempt 3 of 3: each one raised"])]
)
def test_the_error_of_a_task_that_raised_in_each_attempt_has_their_number(attempts, notes):
    state = FutureState("x")
    state.failure = ["exception", "x", *pack_exception(ValueError("bad"), "x", "w1"), *attempts]
    assert exception_of(state).__notes__ == ["weft: task x on worker w1", *notes]
