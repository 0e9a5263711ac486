"""The effective security settings of a user and of a cluster, for `weft doctor --security`."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.settings import common, scheduler
from ...protocol.settings.sources import read_settings
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.finding import run_directories
from ...protocol.trust.secret_files import TRUST_VARIABLE
from ...protocol.trust.security import MIN_TOKEN_BYTES, certificate_der, channel_binding, needs_tls
from ...protocol.wire.address import parse_address
from ...protocol.wire.levels import level_of
from ..scheduler.state_directory import state_home


class Guard(NamedTuple):
    """A line of the list: how something is guarded."""

    name: str
    value: str
    #: why this is weaker than the default, "" if it is not
    concern: str = ""


#: Guards that hold for every cluster, whatever is configured.
ALWAYS: Final = (
    Guard("authentication", "always: both ends prove the token before anything else is read"),
    Guard("unauthenticated bytes", "at most 128, within 5 s"),
    Guard("least token", f"{MIN_TOKEN_BYTES} bytes; made by weft: 256 random bits"),
    Guard("roles", "admin > client > worker > view; workers hold no higher token than worker"),
    Guard("scheduler", "never unpickles; imports no pickle"),
    Guard("pages", "/metrics and / take the view token only; /healthz and /readyz take none"),
)


def default_settings(environ: Mapping[str, str] = os.environ) -> list[Guard]:
    """Return what `weft scheduler` and `weft worker` of this user do without options."""
    found = read_settings(environ)
    trusts = found[common.TRUST_MOUNTED_SECRETS]
    port, pages = scheduler.PORT.default, scheduler.DASHBOARD_ADDRESS.default
    return [
        Guard("default address", f"tcp://127.0.0.1:{port}, this machine only"),
        Guard("default pages", f"http://{pages}, this machine only"),
        Guard("beyond loopback", "TLS 1.3 with a certificate of the cluster's own, always"),
        _folder("run directory", run_directories(environ)[0]),
        _folder("state directories", state_home(environ)),
        Guard(
            "mounted secrets",
            f"{TRUST_VARIABLE} is {'1: others may read them' if trusts else 'not set: refused'}",
            "meant for containers: elsewhere other users can read the token" if trusts else "",
        ),
        *(
            Guard(found.origin(setting).removeprefix("$"), str(found[setting]))
            for setting in (common.CONNECTION_FILE, common.TOKEN_FILE)
            if found.is_given(setting)
        ),
    ]


def _folder(name: str, path: Path) -> Guard:
    return Guard(name, f"{path}, {_mode(path)}", _exposed(path))


def _mode(path: str | Path) -> str:
    try:
        return f"mode {stat.S_IMODE(os.stat(path).st_mode):04o}"
    except OSError:
        return "not made yet"


def _exposed(path: str | Path) -> str:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return ""
    return f"others can use it: run 'chmod go-rwx {path}'" if mode & 0o077 else ""


def settings_of(found: ConnectionFile) -> list[Guard]:
    """Return the settings of the cluster of a connection file."""
    target = parse_address(found.addresses[0])
    concern = ""
    if target.is_tcp and target.scheme == "tcp" and needs_tls(target.host):
        concern = "what is sent is not encrypted: start the scheduler with --protocol tls"
    encryption = {
        "tls": "TLS 1.3",
        "unix": "none: a socket of this machine",
    }.get(target.scheme, "none" if concern else "none: this machine only")
    role = level_of(found.token.encode())
    made = [
        Guard("address", found.addresses[0]),
        Guard("encryption", encryption, concern),
        Guard("connection file", f"{found.source}, {_mode(found.source)}", ""),
        Guard(
            "role of its token",
            role.label,
            "it permits everything: give programs a file of role client ('weft token')"
            if role.label == "admin" and not found.pid
            else "",
        ),
    ]
    if found.certificate_pem:
        shown = channel_binding(certificate_der(found.certificate_pem)).hex()[:16]
        made.append(Guard("pinned certificate", f"sha256:{shown}"))
    elif target.scheme == "tls":
        made.append(Guard("pinned certificate", "none; the handshake binds the one that is shown"))
    if found.dashboard:
        made.append(_pages(found.dashboard))
    return made


def _pages(url: str) -> Guard:
    scheme, _, rest = url.partition("://")
    host = rest.rpartition(":")[0].strip("[]") or rest.strip("/")
    is_open = scheme == "http" and needs_tls(host)
    concern = "the view token is sent in the clear: put HTTPS before it" if is_open else ""
    return Guard("address of the pages", url, concern)


def list_settings(settings: list[Guard]) -> str:
    """Format settings for display."""
    width = max(len(setting.name) for setting in settings)
    lines = []
    for setting in settings:
        lines.append(f"{setting.name:{width}}  {setting.value}")
        if setting.concern:
            lines.append(f"{'':{width}}  -> {setting.concern}")
    return "\n".join(lines)
