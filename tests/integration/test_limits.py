"""Limits that users can meet: one clear error at submit, and the client goes on."""

from __future__ import annotations

import pytest

import weft
from weft.protocol.wire.message import MAX_DEPENDENCIES


@pytest.mark.slow
def test_a_task_with_too_many_inputs_is_refused_at_submit_and_nothing_else_suffers() -> None:
    with weft.Client(processes=False, n_workers=1) as client:
        futures = client.map(abs, range(MAX_DEPENDENCIES + 1))
        with pytest.raises(ValueError, match=r"65537 futures.*tree"):
            client.submit(sum, futures)
        with pytest.raises(ValueError, match=r"65537 futures.*tree"):
            client.map(sum, [futures])
        assert client.submit(sum, futures[:3]).result() == 3
