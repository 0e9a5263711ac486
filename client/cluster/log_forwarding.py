"""`Client.forward_logging`: records of logging on the workers are handled in this program."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import NotSupported
from ...protocol.wire.messages import MAX_LOGGER_CHARS
from ..modes import waits
from ..shell.both_ways import settled

if TYPE_CHECKING:
    from ..client import Client
    from ..display.output import TaskOutputs
    from ..shell.engine import Engine

_OWN: Final = "weft"


@waits
def forward_logging(
    client: Client[Any], logger_name: str | None = None, level: int | str = logging.NOTSET
) -> None:
    """Hand what a logger logs on any worker to the logger of that name in this program.

    So the handlers of this program show it. The loggers below it are forwarded as well, and
    whatever logs: tasks of any client, their threads, plugins. It holds for all workers, those
    that come later too, until `unforward_logging` or the end of this client. The handlers
    that the workers have by then get what they would get without it. The exception is the
    stdout and stderr of a `LocalCluster`'s workers, which share the terminal of this program:
    what is forwarded is not written there. A handler that is added on a worker later gets all
    that is forwarded by its logger, unless it has a level itself.

    A record has its name, level, text, time and place in the source; its exception as text; and
    the attributes of `extra=` that are plain data. Those that it has in addition are
    `weft_worker` (a name) and `weft_key` (of the task, or "").

    Args:
        logger_name: of the logger; None = the root, which stands for all.
        level: records of this level and above, a number or a name; NOTSET = those that the
            logger of this program lets pass, whose changes are noticed within a second. What
            that logger does not let pass is not shown, whatever is given here.

    Raises:
        TypeError, ValueError: the name or level is none, or the name is one of weft's own
            loggers (`client.get_worker_logs()` returns their records).
        NotSupported: the caller is a task in a worker's process.
    """
    engine, outputs = _outputs(client)
    outputs.following.follow(checked_name(logger_name), _checked_level(level))
    engine.output = outputs
    engine.note_level()
    return settled(engine)


@waits
def unforward_logging(client: Client[Any], logger_name: str | None = None) -> None:
    """End what `forward_logging` has begun for this logger.

    Raises:
        ValueError: its records are not forwarded.
    """
    engine, outputs = _outputs(client)
    outputs.following.end(checked_name(logger_name))
    engine.note_level()
    if not (outputs.wants_lines or outputs.following.levels):
        engine.output = None
    return settled(engine)


def _outputs(client: Client[Any]) -> tuple[Engine, TaskOutputs]:
    engine = client._running()
    if engine.shown is None:
        raise NotSupported(
            "a task cannot have the records of other workers handled in its own process: call "
            "forward_logging in the program that submits the tasks"
        )
    return engine, engine.shown


def checked_name(name: str | None) -> str:
    """Return the name of a logger, "" for the root.

    Raises:
        TypeError, ValueError: it is none, too long, or of weft's own.
    """
    if name is None or name == "root":
        return ""
    if not isinstance(name, str):
        raise TypeError(f"logger_name= is the name of a logger, not {type(name).__name__}")
    if not name.isprintable():  # a surrogate, for instance, could not be sent
        raise ValueError(
            f"the name of a logger has printable characters, and not those of {name!r}"
        )
    if len(name) > MAX_LOGGER_CHARS:
        raise ValueError(
            f"the name of a logger has at most {MAX_LOGGER_CHARS} characters, not {len(name)}"
        )
    if name == _OWN or name.startswith(f"{_OWN}."):
        raise ValueError(
            f"records of weft's own logger {name!r} are not forwarded: client.get_worker_logs() "
            "returns them"
        )
    return name


def _checked_level(level: int | str) -> int:
    if isinstance(level, str):
        found = logging.getLevelName(level.upper())
        if found == f"Level {level.upper()}":  # what logging calls a level that it does not know
            raise ValueError(f"level= is a level of logging, such as 'INFO', not {level!r}")
        return int(found)
    if type(level) is not int:
        raise TypeError(f"level= is a level of logging, not {type(level).__name__}")
    if not 0 <= level < 1 << 31:
        raise ValueError(f"level= is a level of logging, not {level}")
    return level
