"""Lets libraries that import `distributed` find weft's client, futures and primitives.

    import weft.compat.distributed

    weft.compat.distributed.install()       # or $WEFT_AS_DISTRIBUTED=1, read by `import weft`

`distributed` itself stays what it is: some of its names choose at each call (`names.py` lists them,
`choosing.py` has the rule), and real clients of dask.distributed in the same program go on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from ..protocol.host.after_import import after_import, forget
from .choosing import known_originals
from .patching import Patches, alone

__all__ = ["install", "is_installed", "uninstall"]

_VARIABLE: Final = "WEFT_AS_DISTRIBUTED"
_PACKAGE: Final = "distributed"

_patches: Final = Patches()
#: Changes of libraries that use more of dask.distributed than its names.
_library_patches: Final = Patches()
#: Whether it is installed, and the variable before that.
_installed: Final[list[str | None]] = []


def install() -> None:
    """Let `distributed` stand for weft, where a weft client is the current one.

    If `distributed` is not imported yet, this happens when it is. Processes that this program
    starts, such as those of a `LocalCluster`, do the same. A second call changes nothing.

    Raises:
        ImportError: `distributed` is not installed.
    """
    if _PACKAGE not in sys.modules and find_spec(_PACKAGE) is None:
        raise ImportError(
            "distributed is not installed, so no library can ask it for its client: use weft's "
            "names, or `pip install distributed`",
            name=_PACKAGE,
        )
    _install()


def _install() -> None:
    with alone():
        if _installed:
            return
        _installed.append(os.environ.get(_VARIABLE))
        os.environ[_VARIABLE] = "1"
    after_import(_PACKAGE, _change_distributed)
    for module, change in _libraries():
        after_import(module, change)


def install_if_set(variable: str) -> None:
    """Install, as `import weft` does if `$WEFT_AS_DISTRIBUTED` is set, without asking for more.

    Raises:
        ConfigError: the variable is neither 1 nor 0.
    """
    from ..protocol.settings.common import AS_DISTRIBUTED

    if AS_DISTRIBUTED.kind.read(variable, f"${_VARIABLE}"):
        _install()


def uninstall() -> None:
    """Take back all that `install` did. What libraries keep of it is the original from now on."""
    with alone():
        if not _installed:
            return
        before = _installed.pop()
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
        forget(_PACKAGE, _change_distributed)
        for module, change in _libraries():
            forget(module, change)
        known_originals.clear()
        _library_patches.undo()
        _patches.undo()
    from .notes import note_if_open

    note_if_open()


def is_installed() -> bool:
    """Return whether `install` was called, and not taken back."""
    return bool(_installed)


def _change_distributed(_package: ModuleType) -> None:
    from .changing import change_names
    from .notes import take_notes_back

    take_notes_back()
    with alone():
        if _installed:
            change_names(_patches)


def _libraries() -> list[tuple[str, Callable[[ModuleType], None]]]:
    return [
        ("joblib.parallel", _change_joblib),
        ("coffea.processor._dask", _change_coffea),
    ]


def _change_joblib(module: ModuleType) -> None:
    from .libraries import offer_to_joblib

    with alone():
        if _installed:
            offer_to_joblib(_library_patches, module)


def _change_coffea(module: ModuleType) -> None:
    from .libraries import show_progress_of_coffea

    with alone():
        if _installed:
            show_progress_of_coffea(_library_patches, module)
