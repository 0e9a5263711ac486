"""A headless Chromium for tests, driven by its DevTools protocol.

    async with chromium(tmp_path) as browser:
        page = await browser.open("http://127.0.0.1:8787/", width=400)
        await page.wait_for("document.querySelector('main') !== null")
        page.assert_clean()

No package is needed for that: the protocol is JSON on a WebSocket, and tornado has those. A page
notes all that its console shows and all that it loads, so a test can demand that nothing comes from
elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import tornado.websocket

from tests.tools.find import tool

#: For loaded machines; nothing waits so long as a rule.
_LIMIT_S = 60.0
_LOOK_AGAIN_S = 0.02
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


class Browser:
    """One Chromium with a profile of its own."""

    def __init__(self, socket: tornado.websocket.WebSocketClientConnection) -> None:
        self._socket = socket
        self._n_sent = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, BrowserTab] = {}
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while (text := await self._socket.read_message()) is not None:
            message = json.loads(text)
            answer = self._answers.pop(message.get("id", 0), None)
            if answer is not None:
                if not answer.done():
                    answer.set_result(message)
            elif message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].note(message["method"], message["params"])
        for answer in self._answers.values():
            answer.cancel()

    async def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        """Call a method of the protocol; return its result."""
        self._n_sent += 1
        command = {"id": self._n_sent, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._n_sent] = answer
        await self._socket.write_message(json.dumps(command))
        message = await asyncio.wait_for(answer, _LIMIT_S)
        assert "error" not in message, (method, message["error"])
        return message["result"]

    async def open(
        self, url: str, *, width: int = 1200, height: int = 900, scheme: str = "light"
    ) -> BrowserTab:
        """Open a page in a tab of its own, in an emulated window, light or dark."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = self._pages[attached["sessionId"]] = BrowserTab(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.call(f"{domain}.enable")
        await page.call("Page.setLifecycleEventsEnabled", enabled=True)
        await page.show_as(width=width, height=height, scheme=scheme)
        await page.go(url)
        return page

    async def close(self) -> None:
        """End the connection."""
        self._socket.close()
        await self._reading


class BrowserTab:
    """One tab: what it shows, what it has loaded, what its console says."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        #: URLs of all requests
        self.requested: list[str] = []
        #: errors and warnings of the console, and exceptions of scripts
        self.complaints: list[str] = []
        #: {its number: None} of documents that were loaded as a whole
        self._loaded: dict[str, None] = {}
        self._noted = asyncio.Event()

    def note(self, method: str, parameters: dict[str, Any]) -> None:
        """Note an event."""
        self._noted.set()
        if method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Page.lifecycleEvent" and parameters["name"] == "load":
            self._loaded[parameters["loaderId"]] = None
        elif method == "Log.entryAdded":
            entry = parameters["entry"]
            if entry["level"] in ("error", "warning"):
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(parameters["args"]))

    @property
    def n_loads(self) -> int:
        """How many documents were loaded as a whole."""
        return len(self._loaded)

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol for this page."""
        return await self._browser.call(method, self._session, **parameters)

    async def show_as(self, *, width: int, height: int, scheme: str) -> None:
        """Emulate a window, light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def go(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        found = await self.call("Page.navigate", url=url)
        await self.wait_until(lambda: found["loaderId"] in self._loaded)

    async def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    async def text(self) -> str:
        """Return the visible text."""
        text: str = await self.js("document.body.innerText")
        return text

    async def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true in this document or a later one; return its value."""
        end = asyncio.get_running_loop().time() + _LIMIT_S
        # A promise in the page would wait for ever if its document is put aside, as for "back".
        while True:
            with suppress(AssertionError):  # the document is replaced just now
                if value := await self.js(expression):
                    return value
            assert asyncio.get_running_loop().time() < end, expression
            self._noted.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._noted.wait(), _LOOK_AGAIN_S)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until an event has made a condition true."""
        while not condition():
            self._noted.clear()
            await asyncio.wait_for(self._noted.wait(), _LIMIT_S)

    async def type(self, selector: str, text: str) -> None:
        """Type a text into a field."""
        await self.js(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        """Click in the middle of an element, as the mouse does, when the document is painted.

        Chromium drops what the mouse does before.
        """
        await self.wait_for("document.readyState === 'complete'")
        await self.js(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        box = await self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page."""
        found = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def assert_clean(self, origin: str) -> None:
        """Assert that nothing was loaded from elsewhere, and that the console is empty."""
        foreign = [url for url in self.requested if not url.startswith((origin, "about:"))]
        assert foreign == []
        assert self.complaints == []


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Browser]:
    """Start a Chromium with an empty profile in `folder`; skips the test without one."""
    process = await asyncio.create_subprocess_exec(
        str(tool("chromium")),
        *_FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
        start_new_session=True,
    )
    assert process.stderr is not None
    draining: asyncio.Future[bytes] | None = None
    try:
        url = await asyncio.wait_for(_url_in(process.stderr), _LIMIT_S)
        draining = asyncio.ensure_future(process.stderr.read())
        socket = await tornado.websocket.websocket_connect(url, max_message_size=100 << 20)
        browser = Browser(socket)
        try:
            yield browser
        finally:
            await browser.close()
    finally:
        # All its processes are in the session that was made for it.
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if draining is not None:
            await draining


async def _url_in(output: asyncio.StreamReader) -> str:
    """Return the address that Chromium prints when it is ready."""
    said = b""
    while line := await output.readline():
        said += line
        if line.startswith(b"DevTools listening on "):
            return line.split()[-1].decode()
    raise AssertionError(f"Chromium has ended: {said.decode()}")
