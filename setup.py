"""Has a build write the files that are made from others (`protocol/coders_file.py`).

All else about the package is in `pyproject.toml`.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent


def write_coders() -> None:
    """Write the file into the sources: a source archive, a wheel or an editable install has it."""
    # The folders as they will be installed; the links in `weft` are for checkouts only.
    places = [str(ROOT / "weft"), str(ROOT)]
    spec = spec_from_file_location(
        "weft", ROOT / "weft" / "__init__.py", submodule_search_locations=places
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["weft"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["weft"])
    from weft.protocol.coders_file import write

    write()


class BuildPy(build_py):
    """Copies the modules of the packages, or links to them."""

    def run(self) -> None:
        """Write the file first."""
        write_coders()
        super().run()


class SDist(sdist):
    """Packs the sources."""

    def run(self) -> None:
        """Write the file first."""
        write_coders()
        super().run()


setup(cmdclass={"build_py": BuildPy, "sdist": SDist})
