"""Asks the HTTP process of a scheduler, or serves its pages in the loop of a test."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from weft.deploy.http.server import HttpConfig, serve
from weft.protocol.trust.security import Security, new_cluster_id, new_token
from weft.protocol.wire.levels import Level
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.server import SchedulerServer


class Pages:
    """Asks one server."""

    def __init__(self, url, token):
        parts = urlsplit(url)
        self.secure = parts.scheme == "https"
        self.place = parts.hostname, parts.port
        self.token = token

    def ask(self, path, method="GET", *, authorized=False, **headers):
        answer, data = self.ask_bytes(path, method, authorized=authorized, **headers)
        return answer, data.decode()

    def ask_bytes(self, path, method="GET", *, authorized=False, **headers):
        if self.secure:
            # Pinned in the connection file, but not for this host's name.
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(*self.place, timeout=30, context=context)
        else:
            connection = http.client.HTTPConnection(*self.place, timeout=30)
        if authorized:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


def view_token(file):
    return file.to_security().token_for("view")


@asynccontextmanager
async def pages_in_this_loop(**options):
    """Serve the pages of a scheduler of this loop; yields it, the port and the token."""
    security = Security(new_token().encode(), new_cluster_id())
    started = SchedulerServer(SchedulerConfig(["tcp://127.0.0.1:0"], security))
    await started.start()
    view = security.lowered(Level.VIEW)
    config = HttpConfig("127.0.0.1", 0, started.addresses[0], view, **options)
    listening = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    serving = asyncio.create_task(serve(config, lambda port: listening.set_result(port), over.wait))
    try:
        yield started, await listening, security.token_for("view")
    finally:
        over.set()
        await serving
        await started.stop()
