"""Imports the modules of `weft worker --preload` in a worker process, before it takes tasks."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from ..protocol.errors import ConfigError


def preload(names: Sequence[str]) -> None:
    """Import modules by name, or from the path of a .py file.

    Raises:
        ConfigError: one cannot be imported; a new start would fail in the same way.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                importlib.import_module(name)
        except Exception as error:
            raise ConfigError(
                f"cannot import {name!r} before the first task: {type(error).__name__}: {error}; "
                "install it for this interpreter, put its folder into PYTHONPATH, or give the path "
                "of a .py file",
                "--preload",
            ) from error


def _import_file(path: Path) -> None:
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
