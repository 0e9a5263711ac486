"""Asks a Prometheus server by its HTTP API."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any


class Prometheus:
    """A server at an address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """Return what the API answers."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        """Return whether the server answers queries."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def series(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of an expression."""
        found = self.ask("query", query=expression)["result"]
        return [(row["metric"], float(row["value"][1])) for row in found]

    def targets(self) -> dict[str, dict[str, Any]]:
        """Return what it scrapes, by job."""
        active = self.ask("targets")["activeTargets"]
        return {target["labels"]["job"]: target for target in active}
