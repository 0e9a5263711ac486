"""The lines of tasks that are not shown: how many, and of which worker."""

from __future__ import annotations

from weft.client.display.output import MAX_LINES, TaskOutputs
from weft.protocol.wire import messages as m


def lines(n, worker, level=m.STDOUT, text="x"):
    columns = {"keys": ["k"] * n, "levels": [level] * n, "names": [""] * n, "texts": [text] * n}
    return m.TaskOutput(clients=[1] * n, worker=worker, **columns)


def test_lines_that_are_left_out_are_counted_by_worker_or_for_all_together(capsys):
    outputs = TaskOutputs()
    messages = [
        lines(MAX_LINES + 2, "w1"),
        lines(1, "w1", m.DROPPED_LINES, "30"),
        lines(1, "", m.DROPPED_LINES, "98000"),
    ]
    outputs._waiting.extend((message, outputs._rows_of(message)) for message in messages)
    outputs.show()
    shown = capsys.readouterr().out.splitlines()
    assert shown[:MAX_LINES] == ["(w1) x"] * MAX_LINES
    assert shown[MAX_LINES:] == ["(w1) ... 32 more", "... 98000 more lines of all workers"]
