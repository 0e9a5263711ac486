"""`weft top` in a terminal: reads keys, asks the scheduler twice a second, and draws. A shell."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from ...protocol.errors import CommError, WeftError
from ...protocol.trust.connection_file import ConnectionFile
from ..http.viewer import ask_task
from ..overview.wording import describe_task
from .keyboard import reading_keys
from .screen import draw
from .view import Action, Explain, Quit, RetireOne, View
from .watching import OverviewReader

#: A worker may take so long to finish its tasks; it leaves later all the same.
_RETIRE_S = 3600.0


class TopApp:
    """The program.

    Args:
        find: returns the connection file.
        interval_s: between two questions.
        console: where it is drawn.
    """

    def __init__(
        self, find: Callable[[], ConnectionFile], interval_s: float, console: Console
    ) -> None:
        self._watcher = OverviewReader(find, time.monotonic)
        self._interval_s = interval_s
        self._console = console
        self._view = View()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run until the user quits.

        Raises:
            WeftError: there is no scheduler at the beginning, or it cannot be asked.
        """
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        snapshot = await self._watcher.step()
        if snapshot.down:
            # Nothing is to be seen yet, and the reason would vanish with the screen.
            raise CommError(snapshot.down)
        try:
            with (
                Live(
                    console=self._console, screen=True, auto_refresh=False, redirect_stderr=False
                ) as live,
                reading_keys(sys.stdin.fileno(), self._on_key),
            ):
                await self._loop(live)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._watcher.close()

    async def _loop(self, live: Live) -> None:
        loop = asyncio.get_running_loop()
        asking = loop.create_task(self._ask_regularly())
        ended = loop.create_task(self._ended.wait())
        try:
            while not self._ended.is_set():
                width, height = self._console.size
                live.update(draw(self._watcher.snapshot, self._view, width, height), refresh=True)
                changed = loop.create_task(self._changed.wait())
                await asyncio.wait([changed, ended, asking], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self._changed.clear()
                if asking.done():
                    asking.result()
        finally:
            asking.cancel()
            ended.cancel()
            await asyncio.wait([asking, ended])

    async def _ask_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._watcher.step()
            self._changed.set()

    def _on_key(self, key: str) -> None:
        action = self._view.press(key, self._watcher.snapshot)
        if isinstance(action, Quit):
            self._ended.set()
        elif action is not None:
            task = asyncio.get_running_loop().create_task(self._act(action))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._changed.set()

    async def _act(self, action: Action) -> None:
        viewer = self._watcher.viewer
        try:
            if viewer is None:
                self._view.message = "the scheduler cannot be reached now"
            elif isinstance(action, Explain):
                self._view.show(describe_task(await ask_task(viewer, action.key)))
            elif isinstance(action, RetireOne):
                self._view.message = f"{action.name} finishes what it runs, and leaves"
                self._changed.set()
                arguments = {"order": uuid.uuid4().hex, "workers": [action.worker_id]}
                answer = await viewer.ask_all("retire", arguments, _RETIRE_S)
                for end in answer["workers"].values():
                    self._view.message = f"{end['name']}: {end['end']}"
        except (TimeoutError, WeftError) as error:
            self._view.message = str(error)
        self._changed.set()
