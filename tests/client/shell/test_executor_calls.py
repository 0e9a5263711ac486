"""The rows of an executor's `map`, between the thread that reads and the loop that completes."""

from __future__ import annotations

from types import SimpleNamespace

from weft.client.shell.executor_calls import Rows


class Handle:
    """A future whose last row ends while its status is read."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._state = self

    @property
    def status(self) -> str:
        self._rows.handles.clear()
        return "finished"


def test_rows_may_end_while_they_are_dropped():
    rows = Rows(SimpleNamespace())
    rows.handles += [Handle(rows), Handle(rows)]
    rows.drop()
    assert not rows.handles
