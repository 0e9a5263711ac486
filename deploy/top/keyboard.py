"""Reads single keys from a terminal. A shell."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Final

from .view import BACKSPACE, DOWN, ENTER, ESCAPE, PAGE_DOWN, PAGE_UP, TAB, UP

_SEQUENCES: Final = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
}
_SINGLE: Final = {
    "\r": ENTER,
    "\n": ENTER,
    "\t": TAB,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
    "\x1b": ESCAPE,
}


def keys_in(text: str) -> list[str]:
    """Return the keys of what a terminal has sent; unknown sequences are left out."""
    keys = []
    i = 0
    while i < len(text):
        character = text[i]
        if character == "\x1b" and text[i + 1 : i + 2] in ("[", "O"):
            end = i + 2
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            found = _SEQUENCES.get(text[i : end + 1])
            keys += [found] if found else []
            i = end + 1
            continue
        keys.append(_SINGLE.get(character, character))
        i += 1
    return keys


@contextlib.contextmanager
def reading_keys(fd: int, on_key: Callable[[str], None]) -> Iterator[None]:
    """Call `on_key` in the running loop for each key; the terminal is as before at the end.

    Ctrl-C stays a signal.
    """
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(fd)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        for key in keys_in(decoder.decode(os.read(fd, 1024))):
            on_key(key)

    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
