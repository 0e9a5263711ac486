"""Reads the arguments of operations, which peers may have sent wrong."""

from __future__ import annotations

from typing import Final

from ....protocol.wire.columns import MAX_KEY_CHARS
from ....protocol.wire.messages.coordination import BAD_CALL, CLOSED, MAX_COUNT, MAX_LOCKS
from .records import Call, ObjectRecord, OperationRefused

#: The longest time limit, seconds; a longer one is none.
MAX_TIMEOUT_S: Final = 1e9


def bad(text: str) -> OperationRefused:
    """Return the refusal of a call that is not valid."""
    return OperationRefused(BAD_CALL, text)


def closed(record: ObjectRecord) -> OperationRefused:
    """Return the refusal of an operation on an object that was closed."""
    return OperationRefused(
        CLOSED,
        f"{record.kind} {record.name!r} was closed; make an object of this name again to use it",
    )


def text_in(call: Call, name: str) -> str:
    """Return an argument that is a short text."""
    value = call.arguments.get(name)
    if type(value) is not str or not 1 <= len(value) <= MAX_KEY_CHARS:
        raise bad(f"{name}= of {call.operation} is a text of 1 to {MAX_KEY_CHARS} characters")
    return value


def count_in(call: Call, name: str, least: int, default: int) -> int:
    """Return an argument that is a whole number."""
    value = call.arguments.get(name, default)
    if type(value) is not int or not least <= value <= MAX_COUNT:
        raise bad(f"{name}= is a whole number from {least} to {MAX_COUNT}, not {str(value)[:40]!r}")
    return value


def names_in(call: Call) -> list[str]:
    """Return the names of a MultiLock's locks."""
    names = call.arguments.get("names")
    if type(names) is not list or not names or len(names) > MAX_LOCKS:
        raise bad(f"names= is a list of 1 to {MAX_LOCKS} names")
    if set(map(type, names)) != {str} or len(max(names, key=len)) > MAX_KEY_CHARS:
        raise bad(f"a name of a lock is a text of at most {MAX_KEY_CHARS} characters")
    if len(set(names)) != len(names):
        raise bad("the names of the locks of a MultiLock differ from each other")
    return names


def check_timeout(call: Call) -> None:
    """Check the time limit of a call; take out one that is none."""
    value = call.arguments.pop("timeout", None)
    if value is None:
        return
    if type(value) not in (int, float) or not value >= 0:
        raise bad(f"timeout= is a number of seconds >= 0, not {str(value)[:40]!r}")
    if value < MAX_TIMEOUT_S:
        call.arguments["timeout"] = value
