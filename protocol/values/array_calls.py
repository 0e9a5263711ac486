"""The function of an array: one call for each row, and one when all rows have succeeded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functions import function_name


class ArrayFunction:
    """Calls a function with the number of a row; without one, all rows have succeeded."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        #: The label of its tasks.
        self.__name__ = function_name(function)

    def __call__(self, *number: Any) -> Any:
        """Return the result of the call of a row, or None when all have succeeded."""
        return self.function(*number) if number else None
