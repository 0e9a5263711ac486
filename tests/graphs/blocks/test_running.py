"""A block at its worker, without one."""

from __future__ import annotations

import pickle

from tests.graphs.blocks.kit import boom
from weft.graphs.blocks.running import (
    BlockOrder,
    _RunningBlock,
    early_reports,
    report_of,
    run_block,
)
from weft.protocol.values.serialize import dumps


def test_a_late_block_that_has_not_begun_keeps_its_first_task():
    order = BlockOrder("run", 1, "", 0.0, {}, [(i, 0, b"", [], ()) for i in range(3)])
    running = _RunningBlock(order)
    running.give_back()
    assert [item[0] for item in running.items] == [0]
    assert running.n_kept == 1
    running.items.popleft()
    running.current = 0
    running.give_back()
    assert running.n_kept == 1


def test_tasks_that_are_given_back_twice_add_up():
    order = BlockOrder("run", 1, "", 0.0, {}, [(i, 0, b"", [], ()) for i in range(4)])
    running = _RunningBlock(order)
    running.give_back()
    running.current = 0  # it was taken meanwhile, as it seems only now
    running.give_back()
    assert not running.items
    assert running.n_kept == 0


def test_a_failure_is_reported_before_the_end(tmp_path):
    """The last report may need a thread, and all may be busy."""
    calls = [(7, 0, (0, [1]), [], ())]
    order = BlockOrder("run", 1, "", 60.0, {0: (b"boom", bytes(dumps(boom)))}, calls)
    order.notes = str(tmp_path)
    last = report_of(run_block(pickle.dumps(order)))
    [data] = early_reports(str(tmp_path))
    run, early = pickle.loads(data)
    assert (run, early.block, early.finished, early.is_last) == ("run", 1, [], False)
    assert early.failed[0] == last.failed[0] == 7
