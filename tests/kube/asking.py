"""Ask the pages of the chart's scheduler from a pod: `python -m tests.kube.asking URL NAME`.

It verifies the certificate with the cluster's authority, as Prometheus does, and prints a line for
each request: the status and the beginning of the answer.
"""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

SECRET = Path("/etc/weft")


def main() -> None:
    """Make the requests."""
    url, name = sys.argv[1:]
    context = ssl.create_default_context(cafile=str(SECRET / "ca.crt"))
    view, client = ((SECRET / f"{role}-token").read_text() for role in ("view", "client"))

    def ask(title: str, path: str, token: str = "", host: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if host:
            headers["Host"] = host
        request = urllib.request.Request(url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                status, text = answer.status, answer.read(200)
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        print(f"{title}: {status} {' '.join(text.decode().split())}", flush=True)

    ask("health", "/healthz")
    ask("ready", "/readyz")
    ask("no token", "/metrics")
    ask("wrong token", "/metrics", "wrong")
    ask("client's token", "/metrics", client)
    ask("view token", "/metrics", view)
    ask("scale", "/api/v1/scale", view)
    ask("known name", "/healthz", host=name)
    ask("foreign name", "/healthz", host="evil.example.org")


if __name__ == "__main__":
    main()
