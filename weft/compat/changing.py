"""Changes the names of dask.distributed, as the table says, once it is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from ..client import Client
from ..client.shell.current import all_open, named_current
from .choosing import Originals, caller_of, is_for_weft, is_of_weft, known_originals
from .client_names import CLIENT_NAMES
from .names import NAMES, Name
from .patching import Patches
from .standing import Choose, class_for, function_for, of_weft, refusal_for

_PACKAGE: Final = "distributed"


def change_names(patches: Patches) -> None:
    """Change all names of the table that this version of dask.distributed has."""
    from distributed import client, worker

    originals = Originals(worker, client)
    known_originals[:] = [originals]

    def choose(caller: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return bool(patches) and is_for_weft(originals, caller, args, kwargs)

    for name in NAMES:
        _change(patches, name, choose)
    for attribute, value in CLIENT_NAMES.items():
        patches.set(Client, attribute, value)
    patches.replace_imported(but_in=_PACKAGE)


def _change(patches: Patches, name: Name, choose: Choose) -> None:
    original = getattr(sys.modules.get(name.modules[0]), name.name, None)
    if original is None:
        return
    if name.kind == "exception":
        patches.add_base(of_weft(name.weft), _exception_below(original))
        return
    value = _standing_for(original, name, choose, patches.__bool__)
    for module in _modules_of(name, original):
        patches.replace(sys.modules[module], name.name, original, value)


def _standing_for(original: Any, name: Name, choose: Choose, is_changed: Callable[[], bool]) -> Any:
    """Return what takes the place of an original."""
    if name.name == "Client":
        return _class_of_clients(original, name, choose, is_changed)
    if name.kind == "function":
        return function_for(original, name.weft, choose)
    if name.kind == "refused":
        return refusal_for(original, name.name, name.weft, choose)
    return class_for(original, name.weft, choose if name.kind == "class" else None, is_changed)


def _exception_below(original: Any) -> Any:
    """Return a class that weft's exceptions may have as a base: all but its fields is theirs."""
    body: dict[str, Any] = {
        "task": property(lambda error: error.key),
        "allowed_failures": property(lambda error: error.attempts - 1),
        "last_worker": None,  # else a property, which takes no value
    }
    body |= {name: getattr(Exception, name) for name in ("__init__", "__reduce__", "__str__")}
    return type(original.__name__, (original,), body)


def _modules_of(name: Name, original: Any) -> list[str]:
    """Return the modules in which a name is changed, each once."""
    modules = dict.fromkeys(name.modules)
    if name.kind in ("function", "refused"):
        modules[original.__module__] = None  # so that it is pickled by its name
    return [
        module
        for module in modules
        if getattr(sys.modules.get(module), name.name, None) is original
    ]


def _class_of_clients(
    original: Any, name: Name, choose: Choose, is_changed: Callable[[], bool]
) -> Any:
    """Return what stands for `distributed.Client`.

    A call makes a client of dask.distributed, unless what it connects to is weft's.
    """

    def connects_to_weft(caller: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        address = args[0] if args else kwargs.get("address")
        if not is_changed() or caller.partition(".")[0] == _PACKAGE:
            return False
        if isinstance(address, str):
            return any(address == client.scheduler_address for client in all_open())
        return is_of_weft(address)

    standing = class_for(
        original, name.weft, connects_to_weft, is_changed, make="compat.client_names:connect"
    )

    def current(cls: type, allow_global: bool = True) -> Any:
        if choose(caller_of(1), (), {}):
            if allow_global or named_current() is not None:
                return Client.current(allow_global=allow_global)
            raise ValueError("Not running inside the `as_current` context manager")
        return original.current(allow_global=allow_global)

    standing.current = classmethod(current)
    return standing
