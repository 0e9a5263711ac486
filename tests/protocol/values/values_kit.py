"""Objects for tests of pickling, and programs whose main module has them."""

from __future__ import annotations

import operator
import subprocess
import sys
import textwrap
import threading


def run_as_main(script, *arguments):
    """Run a script as `__main__` of another process, and return its output as bytes."""
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Fails:
    def __init__(self, when):
        self.when = when

    def __reduce__(self):
        if self.when == "dumps":
            raise ZeroDivisionError("dumps")
        return operator.truediv, (1, 0)


LOCK = threading.Lock()
