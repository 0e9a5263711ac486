"""The versions of Python, of the system and of packages in this process."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from typing import Any, Final

from .checkout import running_commit

#: Packages whose versions should be the same on all machines of a cluster.
PACKAGES: Final = (
    "weft",
    "cloudpickle",
    "msgpack",
    "numpy",
    "pandas",
    "pyarrow",
    "dask",
    "tornado",
    "uvloop",
)


def weft_version(otherwise: str) -> str:
    """Return the version of weft that runs here: two states of the code have two versions.

    It is that of the installation, which names the release and the commit (pyproject.toml). In a
    checkout, which may have moved on since, the commit is that of now.

    Args:
        otherwise: in place of the release, if there is only a checkout that was never installed.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("weft")
    except PackageNotFoundError:
        installed = otherwise
    commit = running_commit()
    return f"{installed.partition('+')[0] or '0'}+g{commit}" if commit else installed


def process_versions(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return `{"host": facts, "packages": {name: version, or None}}`; reads files."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in (*PACKAGES, *packages):
        if name == "weft":
            versions[name] = weft_version("") or None
            continue
        try:
            versions[name] = version(name)
        except (PackageNotFoundError, ValueError):
            versions[name] = None
    return {
        "host": {
            "python": ".".join(map(str, sys.version_info)),
            "python-bits": sys.maxsize.bit_length() + 1,
            "OS": platform.system(),
            "OS-release": platform.release(),
            "machine": platform.machine(),
            "processor": platform.processor(),
            "byteorder": sys.byteorder,
        },
        "packages": versions,
    }


def versions_for(arguments: dict[str, Any]) -> dict[str, Any]:
    """Answer the question `versions` for this process.

    Raises:
        ValueError: an argument is not valid.
    """
    packages = arguments.get("packages", [])
    if type(packages) is not list or not set(map(type, packages)) <= {str} or len(packages) > 100:
        raise ValueError("packages= is a list of at most 100 names")
    return process_versions(packages)
