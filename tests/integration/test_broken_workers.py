"""Tasks that break the interpreter which they share with the worker's own code."""

from __future__ import annotations

import pytest

from tests.deploy.daemons import run

pytestmark = pytest.mark.slow


def test_a_worker_whose_own_code_fails_ends_at_once_and_the_next_one_goes_on(tmp_path):
    code = (
        "import sys, weft\n"
        "with weft.Client(n_workers=1) as c:\n"
        "    error = c.submit(sys.setrecursionlimit, 10).exception(60)\n"
        "    print(type(error).__name__, error.attempts, 'RecursionError' in str(error))\n"
        "    print(c.submit(abs, -3).result(60))\n"
    )
    done = run(folder=tmp_path, code=code)
    assert (done.stdout, done.returncode) == ("WorkerDied 4 True\n3\n", 0)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 12, done.stderr
