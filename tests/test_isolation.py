"""Tests see no settings of the developer who runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.protocol.settings.sources import read_settings

ROOT = Path(__file__).resolve().parents[1]


def test_no_setting_is_given():
    assert not read_settings().given


@pytest.mark.slow
def test_neither_files_nor_variables_of_the_developer_reach_tests(tmp_path):
    settings = tmp_path / "weft" / "weft.toml"
    settings.parent.mkdir()
    settings.write_text("[local]\nn-workers = 3\n")
    named = tmp_path / "named.toml"
    named.write_text("[client]\ntimeout = 1\n")
    variables = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "WEFT_CONFIG": str(named),
        "WEFT_LOCAL_THREADS_PER_WORKER": "7",
        "WEFT_CONNECTION_FILE": "/nowhere.json",
    }
    code = "from weft.protocol.settings.sources import read_settings as r; print(len(r().given))"
    test = f"{__file__}::test_no_setting_is_given"
    outputs = [
        subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        ).stdout
        for arguments in (["-c", code], ["-m", "pytest", "-q", test])
    ]
    assert outputs[0] == "4\n", "they are settings, elsewhere"
    assert "1 passed" in outputs[1]
