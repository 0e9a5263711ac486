"""The table of all settings, and what a name may have meant that is not in it."""

from __future__ import annotations

import re
from typing import Any, Final

from ..wording import nearest
from . import client, common, local, scheduler, worker
from .setting import Setting, settings_in

#: {section: its settings}, in the order of the page; "" = the top of a file.
SECTIONS: Final = {
    "": settings_in(common),
    "scheduler": settings_in(scheduler),
    "worker": settings_in(worker),
    "client": settings_in(client),
    "local": settings_in(local),
}
ALL: Final[tuple[Setting[Any], ...]] = tuple(
    setting for settings in SECTIONS.values() for setting in settings
)
BY_NAME: Final = {setting.name: setting for setting in ALL}
BY_VARIABLE: Final = {setting.environment: setting for setting in ALL}

#: The variable that names a file of settings.
FILE_VARIABLE: Final = "WEFT_CONFIG"
#: Variables that are no settings: of the files in deploy, and of tests and benchmarks.
_NO_SETTINGS: Final = re.compile(
    r"WEFT_(CONFIG|DASHBOARDS|IMAGE|POD_.*|PROMETHEUS_URL|TOOLS|TEST.*|SIM_.*|BENCHMARK_.*)"
)
#: Kubernetes sets these in pods of a namespace with Services named weft or weft-...
_OF_SERVICES: Final = re.compile(r"WEFT_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_\d+_.*)")
_SIMILAR: Final = 0.7
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://\S+")

_SECRET: Final = (
    "a secret is never a setting, because files and environments are copied and printed; write it "
    "into a file of mode 0600, and name that with "
)
_SECRETS: Final = {"token": "token-file", "password": "token-file", "secret": "token-file"}
#: {name in other programs: weft's own}
_ELSEWHERE: Final = {
    "scheduler-file": "connection-file",
    "death-timeout": "worker.connect-timeout",
    "ncores": "worker.nthreads",
    "interval": "scheduler.liveness-timeout",
    "loglevel": "log-level",
    "address": "connection-file",
    "scheduler-address": "connection-file",
}


def is_variable_of_others(name: str, value: str) -> bool:
    """Return whether a variable WEFT_... is not meant as a setting."""
    if _NO_SETTINGS.fullmatch(name) or _OF_SERVICES.fullmatch(name):
        return True
    # The variable of a Service named weft-scheduler would be the setting of the scheduler's port.
    return name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value) is not None


def unknown_name(name: str) -> str:
    """Return what is wrong with the name of a setting that does not exist."""
    key = name.rpartition(".")[2].replace("_", "-").lower()
    if key in _SECRETS:
        return f"there is no setting {name!r}: {_SECRET}{_SECRETS[key]}"
    return f"there is no setting {name!r}; {_hint(name)}"


def unknown_variable(name: str) -> str:
    """Return what is wrong with an environment variable WEFT_... that is no setting."""
    key = name.removeprefix("WEFT_").replace("_", "-").lower()
    if key in _SECRETS:
        meant = BY_NAME[_SECRETS[key]].environment
        return f"there is no setting ${name}: {_SECRET}${meant}"
    meant = nearest(name, BY_VARIABLE, _SIMILAR)
    hint = f"did you mean ${meant}?" if meant else "'weft config' lists the settings"
    return f"there is no setting ${name}; {hint}"


def _hint(name: str) -> str:
    plain = name.replace("_", "-").lower()
    section, _, key = plain.rpartition(".")
    in_other = [found for found in BY_NAME if found.rpartition(".")[2] == key]
    meant = plain if plain in BY_NAME else ""
    if not meant and key in _ELSEWHERE:
        meant = _ELSEWHERE[key]
    if not meant and in_other:
        meant = in_other[0]
    if not meant:
        beside = [setting.key for setting in SECTIONS.get(section, ())]
        near = nearest(key, beside, _SIMILAR)
        meant = f"{section}.{near}" if near and section else near
    meant = meant or nearest(plain, BY_NAME, _SIMILAR)
    if not meant:
        return "'weft config' lists the settings"
    found = BY_NAME[meant]
    where = f"{found.key} in [{found.section}]" if found.section else f"{found.key} at the top"
    return f"did you mean {where}?"
