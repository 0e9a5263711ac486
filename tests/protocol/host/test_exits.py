"""Descriptions of the end of a process."""

from __future__ import annotations

import pytest

from weft.protocol.host.exits import describe_exit


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-11, "killed by SIGSEGV"),
        (-9, "killed by SIGKILL"),
        (-1000, "killed by signal 1000"),
        (None, "exit code None"),
    ],
)
def test_an_exit_is_described_in_words(code, words):
    assert describe_exit(code) == words
