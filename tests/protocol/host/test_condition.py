"""The condition of a process and its machine."""

from __future__ import annotations

import os
import time

from weft.protocol.host.condition import process_condition


def test_the_condition_is_plain_numbers_of_this_process_and_machine():
    before = time.time()
    found = process_condition()
    assert before <= found["time_s"] <= time.time()
    assert found["pid"] == os.getpid()
    with open(os.devnull, "rb"):
        assert process_condition()["open_files"] == found["open_files"] + 1
    assert 0 < found["rss"] < found["machine_memory"] < 1 << 48
    assert 0 < found["available_memory"] <= found["machine_memory"]
    assert found["memory_limit"] < found["machine_memory"]
    assert {type(value) for value in found.values()} == {int, float}
