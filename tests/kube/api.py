"""A client of the API server that needs no package: JSON over one TLS connection per call."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

Object = dict[str, Any]

PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class ApiError(Exception):
    """The API server refused a call; `code` is its HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        """Keep the status beside the text."""
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True)
class Api:
    """Calls of one user; threads may share it."""

    port: int
    token: str
    ca: Path

    def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Return the answer; raise ApiError for a refusal."""
        connection, response = self._open(method, path, body, content_type, 30)
        with response:
            text = response.read().decode()
        connection.close()
        if response.status >= 300:
            raise ApiError(response.status, text)
        try:
            answer = json.loads(text)
        except ValueError:  # /readyz and logs are text
            return {"text": text}
        return answer if isinstance(answer, dict) else {"text": text}

    def get(self, path: str, **query: Any) -> Object:
        """Read an object or a list."""
        return self.call("GET", path + (f"?{urlencode(query)}" if query else ""))

    def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection at `path`."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: Object, kind: str = "merge") -> Object:
        """Change an object."""
        return self.call("PATCH", path, body, PATCHES[kind])

    def delete(self, path: str, grace_s: int | None = None) -> Object:
        """Delete an object."""
        body = None if grace_s is None else {"gracePeriodSeconds": grace_s}
        return self.call("DELETE", path, body)

    def watch(self, path: str, **query: Any) -> Iterator[tuple[str, Object]]:
        """Yield (type, object): what there is as ADDED, then changes, until the server ends it.

        An `Api` can be asked to stop a watch by nothing but the end of its process.
        """
        found = self.get(path, **query)
        version = found["metadata"]["resourceVersion"]
        kind = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        yield "LISTED", found
        for item in found["items"]:
            yield "ADDED", {**kind, **item}
        query |= {"watch": 1, "resourceVersion": version, "allowWatchBookmarks": "true"}
        connection, response = self._open("GET", f"{path}?{urlencode(query)}", None, "", None)
        with response:
            if response.status >= 300:
                raise ApiError(response.status, response.read().decode())
            for line in response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), str(event["object"]))
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
        connection.close()

    def _open(
        self, method: str, path: str, body: Object | None, content_type: str, timeout: float | None
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=context, timeout=timeout
        )
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        if timeout is None and connection.sock is not None:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection, connection.getresponse()
