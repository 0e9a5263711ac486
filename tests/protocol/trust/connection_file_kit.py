"""Connection files for tests, and ways to write them by hand."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import Security, generate_certificate

CLUSTER = bytes(range(16))
TOKEN = "a-token-of-more-than-16-characters"
CERTIFICATE, KEY = generate_certificate(CLUSTER)


def make(**changes: Any) -> ConnectionFile:
    security = Security(TOKEN.encode(), CLUSTER, CERTIFICATE, KEY)
    file = ConnectionFile.of_this_process(
        security, ["tls://10.0.0.1:8786", "tcp://127.0.0.1:8786"], "http://127.0.0.1:8787"
    )
    return dataclasses.replace(file, **changes)


def put(path: Path, **changes: Any) -> Path:
    """Write a connection file by hand, with any content."""
    content = dataclasses.asdict(make())
    del content["source"]
    path.write_text(json.dumps({**content, **changes}))
    path.chmod(0o600)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
