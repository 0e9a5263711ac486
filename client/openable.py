"""The base of `Client` and `LocalCluster`: `with`, `async with` and `await` open and close them."""

from __future__ import annotations

import abc
from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T", bound="Openable")


class Openable(abc.ABC):
    """An object that is open when it is made; an asynchronous one is opened when it is awaited."""

    #: Whether its methods are awaited.
    asynchronous: bool

    @abc.abstractmethod
    def close(self) -> object:
        """Close it; a coroutine if it is asynchronous. A second call does nothing."""

    @abc.abstractmethod
    async def _open_async(self: T) -> T:
        """Open it, unless it is open, and return it."""

    @abc.abstractmethod
    async def _close_async(self) -> None:
        """Close it without blocking the event loop longer than is unavoidable."""

    def __enter__(self: T) -> T:
        if self.asynchronous:
            raise TypeError(f"an asynchronous {type(self).__name__} needs `async with`")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self: T) -> T:
        return await self._open_async()

    async def __aexit__(self, *_: object) -> None:
        await self._close_async()

    def __await__(self: T) -> Generator[Any, None, T]:
        """Open an asynchronous object, and return it."""
        return self._open_async().__await__()
