"""Adds to dask.distributed's errors for a missing client that `install` would have it find weft's.

This lasts while a client of weft is open, and nothing is installed. Only errors are changed.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, Final

from ..client.shell.current import all_open
from ..protocol.host.after_import import after_import, forget
from ..protocol.values.exceptions import add_note
from .choosing import is_weft_here
from .distributed import is_installed
from .patching import Patches, alone

_PACKAGE: Final = "distributed"
#: {module: names of its functions that raise a ValueError if there is no client or worker}
_RAISING: Final = {
    "distributed.client": ("default_client",),
    "distributed.worker": ("get_client", "get_worker"),
}
_NOTE: Final = (
    "A client of weft is open. weft.compat.distributed.install() lets libraries that import "
    "distributed find it; or set WEFT_AS_DISTRIBUTED=1 before `import weft`"
)

_patches: Final = Patches()


def note_what_to_install() -> None:
    """Add the note to errors of dask.distributed, as soon as it is imported."""
    after_import(_PACKAGE, _change)


def note_if_open() -> None:
    """Do it if a client of weft is open."""
    if all_open():
        note_what_to_install()


def take_notes_back() -> None:
    """Undo it."""
    forget(_PACKAGE, _change)
    with alone():
        _patches.undo()


def _change(_package: ModuleType) -> None:
    with alone():
        if _patches or is_installed():
            return
        for module, names in _RAISING.items():
            for name in names:
                original = getattr(sys.modules[module], name)
                _patches.replace(sys.modules[module], name, original, _noting(original))
        _patches.replace_imported()


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except ValueError as error:
            if is_weft_here():
                add_note(error, _NOTE)
            raise

    return call
