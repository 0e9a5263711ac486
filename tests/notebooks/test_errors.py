"""Errors in the cells of a real kernel: their frames, the failing line, and advice."""

from __future__ import annotations

import re

import pytest

from tests.kernels import kernel  # noqa: F401

pytestmark = pytest.mark.slow

START = "import random, weft\nclient = weft.Client(n_workers=1, threads_per_worker=1)"
DEFINED = """
# a comment

def helper(x):
    y = x - 1
    return 10 / y

def outer(x):
    total = 0
    total += helper(x)
    return total
"""


def error_of(kernel, code):  # noqa: F811
    cell = kernel.start(code).wait()
    assert cell.error is not None
    return cell.error


def test_the_traceback_of_a_task_marks_the_lines_that_failed(kernel):  # noqa: F811
    kernel.run(START)
    kernel.run(DEFINED)
    name, text = error_of(kernel, "client.submit(outer, 1).result()")
    assert name == "ZeroDivisionError"
    marked = re.findall(r"^-+> (\d+) (.*)$", text, re.MULTILINE)
    assert marked[-2:] == [("9", "    total += helper(x)"), ("5", "    return 10 / y")]
    assert "executor.py" not in text
    assert "future.py" not in text
    assert "pickle" not in text
    assert re.search(r"weft: task outer-\w+ on worker local-\d+-0$", text)
    name, text = error_of(kernel, "client.gather(client.map(outer, [2, 1]))")
    assert re.findall(r"^-+> (\d+) ", text, re.MULTILINE)[-2:] == ["9", "5"]
    assert "client.py" not in text
    kernel.run("client.close()")


def test_errors_of_usual_mistakes_say_what_to_do(kernel):  # noqa: F811
    kernel.run(START)
    name, text = error_of(kernel, "client.map(random.random, 5)")
    assert name == "TypeError"
    assert "range(5)" in text
    name, text = error_of(kernel, "client.submit(abs, client).result()")
    assert "gets one with weft.get_client()" in text
    _, text = error_of(kernel, "client.submit(input)")
    (message,) = re.findall(r"^SerializationError: (.*)$", text, re.MULTILINE)
    assert len(message) < 200
    kernel.run("old = client.map(abs, range(3)); weft.wait(old)")
    cell = kernel.run(START)
    assert "a second LocalCluster" in cell.stderr
    name, text = error_of(kernel, "client.gather(old)")
    assert "belongs to another client" in text
    assert "result()" in text
    assert kernel.value("[f.result() for f in old]") == "[0, 1, 2]"
    kernel.run("del old\nclient.close()")
