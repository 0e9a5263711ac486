"""Ask the pages of the chart's pods from a pod: `python -m tests.kube.asking URL NAME WORKER`.

URL is the scheduler's, WORKER that of a worker's pod. It verifies the scheduler's certificate with
the cluster's authority, as Prometheus does, and prints a line for each request: the status and the
beginning of the answer.
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
    url, name, worker = sys.argv[1:]
    context = ssl.create_default_context(cafile=str(SECRET / "ca.crt"))
    view, client = ((SECRET / f"{role}-token").read_text() for role in ("view", "client"))

    # Each pod of workers has a certificate of its own.
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE

    def ask(title: str, path: str, token: str = "", host: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if host:
            headers["Host"] = host
        trust, where = (context, url + path) if path else (unverified, worker)
        request = urllib.request.Request(where, headers=headers)
        try:
            with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
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
    ask("worker without token", "")
    ask("worker", "", view)
    ask("known name", "/healthz", host=name)
    ask("foreign name", "/healthz", host="evil.example.org")


if __name__ == "__main__":
    main()
