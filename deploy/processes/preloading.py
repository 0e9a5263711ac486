"""Imports the modules of `--preload` in a worker process, before it takes tasks.

A module may have a function `weft_setup(worker)`, which is called when the worker knows its
address, before it joins the cluster, and `weft_teardown(worker)` for its end. The names
`dask_setup` and `dask_teardown` mean the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ...protocol.errors import ConfigError


def module_names(
    preload: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> list[str]:
    """Return the names of modules and absolute paths of files that an option has.

    Raises:
        TypeError: it is neither a text nor a list of texts.
    """
    names = [preload] if isinstance(preload, (str, os.PathLike)) else list(preload or ())
    for name in names:
        if not isinstance(name, (str, os.PathLike)):
            raise TypeError(
                f"preload= is the name of a module, the path of a .py file, or a list, not {name!r}"
            )
    texts = [os.fspath(name) for name in names]
    return [os.path.abspath(text) if text.endswith(".py") else text for text in texts]


def preload(names: Sequence[str]) -> list[ModuleType]:
    """Import modules by name, or from the path of a .py file; return them.

    Raises:
        ConfigError: one cannot be imported; a new start would fail in the same way.
    """
    modules = []
    for name in names:
        try:
            if name.endswith(".py"):
                modules.append(_import_file(Path(name)))
            else:
                modules.append(importlib.import_module(name))
        except Exception as error:
            raise ConfigError(
                f"cannot import {name!r} before the first task: {type(error).__name__}: {error}; "
                "install it for this interpreter, put its folder into PYTHONPATH, or give the path "
                "of a .py file",
                "--preload",
            ) from error
    return modules


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
