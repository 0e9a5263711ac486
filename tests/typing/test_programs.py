"""What type checkers say about programs that use weft.

The programs in `right` are without error. In those in `wrong`, each line with a comment `# error:`
is one, with that text from mypy, and no other line is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted(path for path in HERE.glob("*/*.py") if path.stem != "__init__")

pytestmark = pytest.mark.slow


def expected():
    """Return `{(program, line): text of the error}`."""
    return {
        (path.relative_to(ROOT).as_posix(), number): line.partition("# error: ")[2]
        for path in PROGRAMS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "# error: " in line
    }


@pytest.fixture(scope="module")
def found_by_mypy():
    """Return `{(program, line): text of the error}`."""
    pytest.importorskip("mypy", reason="mypy is missing: pip install 'weft[dev]'")
    options = ["--strict", "--hide-error-context", "--no-error-summary", "--config-file="]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache" / "programs"), "--explicit-package-bases"]
    paths = [path.relative_to(ROOT).as_posix() for path in PROGRAMS]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *cache, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    lines = [re.fullmatch(r"(.+?):(\d+): error: (.+)", line) for line in done.stdout.splitlines()]
    return {(match[1], int(match[2])): match[3] for match in lines if match}


@pytest.fixture(scope="module")
def found_by_pyright(tmp_path_factory):
    """Return `{(program, line): text of the error}`."""
    pytest.importorskip("basedpyright", reason="pyright is missing: pip install 'weft[dev]'")
    config = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    folders = sorted({str(path.parent) for path in PROGRAMS})
    settings = {"include": folders, "extraPaths": [str(ROOT)]}
    config.write_text(json.dumps({"typeCheckingMode": "standard", **settings}))
    options = ["--outputjson", "--project", str(config), "--pythonpath", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(PROGRAMS)
    return {
        (
            Path(each["file"]).relative_to(ROOT).as_posix(),
            each["range"]["start"]["line"] + 1,
        ): each["message"]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


def test_mypy_finds_the_errors_in_wrong_programs_and_no_others(found_by_mypy):
    assert found_by_mypy.keys() == expected().keys(), found_by_mypy
    for place, text in expected().items():
        assert text in found_by_mypy[place], place


def test_pyright_finds_the_errors_in_wrong_programs_and_no_others(found_by_pyright):
    assert found_by_pyright.keys() == expected().keys(), found_by_pyright
