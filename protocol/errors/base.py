"""The root of the tree of exceptions."""

from __future__ import annotations


class WeftError(Exception):
    """The base class of all errors that weft itself raises.

    Catch it to handle all of them at once. Exceptions that your tasks raise keep their own type.
    """

    def __init__(self, *fields: object) -> None:
        # super().__init__() would call that of OSError in ConnectTimeout, a TimeoutError: it takes
        # the fields for errno, strerror and filename, and drops the third from `args`.
        self.args = fields

    def __str__(self) -> str:
        # For the same reason: OSError formats its arguments in its own way.
        return str(self.args[0]) if self.args else type(self).__name__
