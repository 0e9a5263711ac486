"""The chart is a part of the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helm.rendering import CHART

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it where tomllib is missing


def test_the_command_prints_the_folder_of_the_chart():
    command = [sys.executable, "-m", "weft.deploy.helm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).samefile(CHART)


def test_all_files_of_the_chart_are_packaged():
    settings = tomllib.loads((CHART.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["weft.deploy.helm"]
    packaged = {path for pattern in patterns for path in CHART.parent.glob(pattern)}
    assert packaged == {path for path in CHART.rglob("*") if path.is_file()}
