"""The benchmark of what runs in parallel, in small."""

from __future__ import annotations

import pytest

from benchmarks import parallelism


@pytest.mark.slow
def test_each_engine_that_there_is_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--ms 0.1 --tasks 4 --tiny 20 --workers 1 2 --repeat 1"
    parallelism.main(arguments.split())
    out = capsys.readouterr().out
    for name in parallelism.engines():
        assert out.count(f"| {name} |") == 2, "in both tables"
    assert "GIL" in out


def test_a_wrong_result_is_no_measurement() -> None:
    with pytest.raises(AssertionError, match="bare loop"):
        parallelism.measure(lambda: 1, 2, repeat=1)
