"""Writes `wire/coders.py`, the functions that encode and decode messages (`wire/generating.py`).

A build does that (`setup.py`), also one for an editable install. In a checkout the file is written
again by the first process that finds it missing, or made from other declarations: it is not in git,
and no step is needed after a message was changed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import py_compile
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

_log = logging.getLogger("weft")

FILE: Final = Path(__file__).with_name("wire") / "coders.py"
_NAME: Final = f"{__package__}.wire.coders"


def text_of_file() -> str:
    """Return what the file has to contain."""
    from .wire import messages
    from .wire.generating import module_of
    from .wire.message import declared

    return module_of(cls for cls in declared() if cls.__module__.startswith(messages.__name__))


def write() -> str:
    """Write the file, unless it is up to date, and return its text.

    Raises:
        OSError: the folder cannot be written.
    """
    text = text_of_file()
    if not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
        # In one step: other processes may import it.
        new = FILE.with_name(f".coders.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(FILE)
        # To compile it takes 0.1 s, and Python does not always keep the result.
        with contextlib.suppress(OSError):
            py_compile.compile(str(FILE), doraise=True)
    return text


def renew() -> ModuleType:
    """Write the file, and return its module, which takes the place of one that was imported."""
    try:
        text = write()
    except OSError as error:
        text = text_of_file()
        _log.warning(
            "%s is missing or not up to date and cannot be written (%s): each process takes a "
            "moment to make it; run `python -m %s` as its owner, or install weft again",
            FILE,
            error,
            __name__,
            extra={"code": "coders-not-written"},
        )
    module = ModuleType(_NAME)
    module.__package__, _, name = _NAME.rpartition(".")
    # Not imported: a compiled file of the text before may look as new as this text.
    exec(compile(text, str(FILE), "exec"), vars(module))
    sys.modules[_NAME] = module
    setattr(sys.modules[module.__package__], name, module)
    return module


if __name__ == "__main__":
    write()
