"""Read a metric as the trigger metrics-api of KEDA does: `python -m tests.kube.trigger ADDRESS`.

On standard input come the trigger's metadata and the parameters of its authentication, as JSON. The
URL's host is connected to at ADDRESS, and verified with the authority that is given.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
import tempfile
from urllib.parse import urlsplit


def main() -> None:
    """Print the value."""
    (address,) = sys.argv[1:]
    given = json.load(sys.stdin)
    metadata, parameters = given["metadata"], given["parameters"]
    assert metadata["authModes"].split(",") == ["bearer", "tls"], metadata
    url = urlsplit(metadata["url"])
    context = ssl.create_default_context(cadata=parameters["ca"])
    # KEDA refuses the authority without a certificate of its own.
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(parameters["cert"] + "\n" + parameters["key"])
        file.flush()
        context.load_cert_chain(file.name)
    assert url.hostname is not None
    connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=30)
    plain = socket.create_connection((address, url.port or 443), timeout=30)
    with context.wrap_socket(plain, server_hostname=url.hostname) as connection.sock:
        token = {"Authorization": f"Bearer {parameters['token']}"}
        connection.request("GET", f"{url.path}?{url.query}", headers=token)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
    print(json.loads(text)[metadata["valueLocation"]])


if __name__ == "__main__":
    main()
