"""Warnings are marked as those of weft where the program has not configured `logging`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import logging
from weft.protocol.host.stderr_logging import mark_warnings

mark_warnings()
mark_warnings()
{configuration}
log = logging.getLogger("weft.client")
log.info("quiet")
log.warning("%d tasks wait", 3)
"""


@pytest.mark.parametrize(
    ("configuration", "printed"),
    [
        ("", "weft: 3 tasks wait\n"),
        ("logging.basicConfig()", "WARNING:weft.client:3 tasks wait\n"),
        ("logging.basicConfig(format='%(name)s')", "weft.client\n"),
        ("logging.getLogger('weft').addHandler(logging.NullHandler())", ""),
        ("logging.getLogger('weft.client').propagate = False", "3 tasks wait\n"),
        ("logging.lastResort = None", ""),
        ("logging.getLogger('weft').setLevel(logging.ERROR)", ""),
    ],
)
def test_warnings_have_one_form(configuration, printed):
    program = PROGRAM.format(configuration=configuration)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", printed)
