"""Programs whose functions travel by value, and what is compared of them."""

from __future__ import annotations

import functools
import textwrap
import types

from weft.protocol.values.pickling import global_names


class Box:
    """An importable class of objects that hold functions, as batches of calls do."""

    def __init__(self, *content):
        self.content = content


def program(source, **variables):
    """Run `source` as a user's script; return its variables."""
    space = {"__name__": "__main__", **variables}
    exec(textwrap.dedent(source), space)
    return types.SimpleNamespace(**space), space


def describe(obj):
    """Return a tree of text that is equal for equal object graphs.

    Identities count, but not those of tuples, and of the namespaces of functions.
    """
    numbers = {}
    kept = []  # no id is used twice

    def code(c):
        consts = [code(x) if isinstance(x, types.CodeType) else repr(x) for x in c.co_consts]
        return [c.co_code, c.co_names, c.co_freevars, consts]

    def walk(x):
        if isinstance(x, (int, str, bytes, float, type(None))):
            return repr(x)
        if isinstance(x, tuple):
            return ["tuple", *map(walk, x)]
        if id(x) in numbers:
            return f"#{numbers[id(x)]}"
        numbers[id(x)] = len(numbers)
        kept.append(x)
        if isinstance(x, (list, tuple)):
            return [type(x).__name__, *map(walk, x)]
        if isinstance(x, dict):
            return [(k, walk(v)) for k, v in sorted(x.items()) if k != "__builtins__"]
        if isinstance(x, types.FunctionType):
            cells = [walk(cell) for cell in x.__closure__ or ()]
            names = [name for name in sorted(global_names(x.__code__)) if name in x.__globals__]
            space = [(name, walk(x.__globals__[name])) for name in names]
            return [x.__name__, code(x.__code__), walk(x.__defaults__), cells, space, walk(vars(x))]
        if isinstance(x, types.CellType):
            return ["cell", walk(x.cell_contents)]
        if isinstance(x, types.MethodType):
            return ["method", walk(x.__func__), walk(x.__self__)]
        if isinstance(x, functools.partial):
            return ["partial", walk(x.func), walk(x.args), walk(x.keywords)]
        if isinstance(x, type):
            return ["class", x.__module__, x.__qualname__]
        if isinstance(x, functools._lru_cache_wrapper):
            return ["cached", walk(x.__wrapped__)]
        return [type(x).__qualname__, walk(type(x)), walk(vars(x) if hasattr(x, "__dict__") else 0)]

    return walk(obj)
