"""Any argument arrives as cloudpickle would give it."""

from __future__ import annotations

import functools
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.values.by_value_kit import Box, describe, program
from weft.protocol.values.pickling import cloudpickle_dumps
from weft.protocol.values.serialize import (
    dumps_arguments,
    loads_arguments,
)


@st.composite
def scripts(draw):
    """A script of functions and classes that refer to each other, to constants and to lists."""
    lines = ["k0 = 1", "k1 = 'text'", "k2 = [1, 2]", "k3 = (1, (2, 'x'))"]
    names = [f"f{i}" for i in range(4)] + ["C0", "C1"]
    some = st.lists(st.sampled_from([*names, "k0", "k1", "k3", "k0", "k2"]), max_size=2)
    for i in range(4):
        body = f"[{', '.join(draw(some))}]"
        lines += {
            "plain": [f"def f{i}(x={draw(st.integers(0, 2))}): return {body}"],
            "writes": [f"def f{i}():\n global k0\n k0 += 1\n return {body}"],
            "closure": [
                f"def make{i}(n):\n def get(): return n, {body}\n def put(m):\n"
                f"  {draw(st.sampled_from(['nonlocal n; n = m', 'return n + m']))}\n"
                " return get, put",
                f"f{i}, put{i} = make{i}({draw(st.sampled_from(['3', 'k0', 'k2', 'k3']))})",
            ],
            "lambda": [f"f{i} = lambda: {body}"],
        }[draw(st.sampled_from(["plain", "plain", "lambda", "closure", "writes"]))]
    for i in range(2):
        refers = draw(some)
        value = draw(st.sampled_from(["1", "(1, 2)", "[]", "f0"]))
        lines.append(f"class C{i}:\n a = {value}\n def m(self): return [{', '.join(refers)}]")
    return "\n".join(lines)


CHANGES = st.sampled_from(
    [
        "",
        "k0 = k0 + 1",
        "k1 = 'other'",
        "k2.append(3)",
        "def f0(x=5): return k0",
        "f1.note = k0",
        "f2.__defaults__ = (k0,)",
        "C0.a = 2",
        "C1.b = f3",
        "C0.m = lambda self: k1",
    ]
)
PARTS = st.recursive(
    st.sampled_from(["f0", "f1", "f2", "f3", "C0", "C1", "C0()", "C1().m", "k2", "k0"])
    | st.sampled_from(["functools.partial(f0, k2)", "functools.lru_cache(f1)"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"Box({', '.join(parts)})")
        | st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(scripts(), PARTS, PARTS, st.lists(CHANGES, min_size=1, max_size=4))
def test_any_argument_arrives_as_cloudpickle_would_give_it(script, first, second, changes):
    _, space = program(script, Box=Box, functools=functools)
    for change in changes:
        exec(change, space)
        args = eval(f"({first}, {second}, k2)", space)
        for _ in range(3):
            blob, _ = dumps_arguments("f", args, {})
            expected = pickle.loads(cloudpickle_dumps(args))
            assert describe(loads_arguments(blob)[0]) == describe(expected)
