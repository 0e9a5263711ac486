"""Errors about objects that cannot be pickled say what to do."""

from __future__ import annotations

import functools
import socket
import sqlite3
import tempfile
import threading

import pytest

from weft.protocol.errors import SerializationError, UnpicklableResult
from weft.protocol.values.serialize import dumps_arguments


def numbers():
    yield 1


async def answer():
    return 1


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (numbers, "make it a list"),
        (answer, "submit its function"),
        (threading.Lock, r"use a weft\.Lock"),
        (threading.RLock, r"use a weft\.Lock"),
        (threading.local, "leave it out in __getstate__"),
        (socket.socket, "connect in the task"),
        (lambda: sqlite3.connect(":memory:"), "connect in the task"),
        (tempfile.TemporaryFile, "pass its path, and open it in the task"),
        (functools.partial(tempfile.TemporaryFile, "w"), "pass its path, and open it in the task"),
        (functools.partial(open, __file__, "rb"), "pass its path, and open it in the task"),
    ],
)
def test_an_error_says_what_to_do_about_the_type(make, advice):
    value = make()
    try:
        with pytest.raises(SerializationError, match=rf"cannot be pickled .*; .*{advice}") as seen:
            dumps_arguments("load", (value,), {})
        assert advice.replace("\\", "") in str(UnpicklableResult("k", seen.value.type_name, "no"))
    finally:
        getattr(value, "close", lambda: None)()


def test_an_error_about_another_type_ends_with_the_message_of_pickle():
    assert str(SerializationError("x", "lib.Thing", "no")).endswith("(type lib.Thing): no")
