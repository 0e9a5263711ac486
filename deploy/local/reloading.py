"""Notices that modules of the parent were reloaded since its workers imported them.

If a notebook reloads a module, its tasks must use the new one: workers that have the old one must
not be used any more. Only modules that users edit are checked: those with a file that is neither in
the standard library nor installed in site-packages.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeGuard


class ModuleWatch:
    """Compares the imported modules with those of the last call.

    Costs 0.1 µs for each module that is checked, and as much for each other one when there are more
    than before.
    """

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        self._installed = tuple({os.path.join(paths[name], "") for name in names})
        #: Names of the modules that were seen.
        self._met: set[str] = set()
        self._n_modules = 0
        #: {name: namespace and spec}: reloading changes the spec, importing again both.
        self._watched: dict[str, tuple[dict[str, Any], object]] = {}

    def has_changed(self) -> bool:
        """Return whether a module of an earlier call was reloaded or imported again."""
        modules: dict[str, Any] = sys.modules
        has_changed = False
        for name, (namespace, spec) in self._watched.items():
            module = modules.get(name)
            if _is_module(module):
                now = _namespace(module)
                if now is not namespace or now.get("__spec__") is not spec:
                    has_changed = True
                    self._watched[name] = (now, now.get("__spec__"))
        if len(modules) != self._n_modules:
            self._n_modules = len(modules)
            for name in modules.keys() - self._met:
                self._met.add(name)
                self._meet(name, modules.get(name))
        return has_changed

    def _meet(self, name: str, module: object) -> None:
        if name == "__main__" or not _is_module(module):
            return
        namespace = _namespace(module)
        file = namespace.get("__file__")
        if isinstance(file, str) and not file.startswith(self._installed):
            self._watched[name] = (namespace, namespace.get("__spec__"))


def _is_module(found: object) -> TypeGuard[ModuleType]:
    # By its true class: cffi's libraries claim to be modules, and have no namespace.
    return issubclass(type(found), ModuleType)


def _namespace(module: ModuleType) -> dict[str, Any]:
    # Not by attribute access, which would load a lazy module.
    namespace: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return namespace
