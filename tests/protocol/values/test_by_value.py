"""Functions and classes inside arguments: pickled once, arriving as cloudpickle would give them."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import gc
import pickle
import subprocess
import sys
import textwrap

import cloudpickle
import pytest

from tests.protocol.values.by_value_kit import Box, describe, program
from weft.protocol.values import by_value
from weft.protocol.values.pickling import cloudpickle_dumps
from weft.protocol.values.serialize import (
    dumps_arguments,
    dumps_arguments_many,
    dumps_function,
    loads,
    loads_arguments,
)


def send(*args):
    """Return the object of a reader at the third time, when its caches are filled."""
    for _ in range(3):
        blob, _ = dumps_arguments("f", args, {})
    return loads_arguments(blob)[0]


def is_grouped(*args):
    for _ in range(3):
        blob, _ = dumps_arguments("f", args, {})
    return by_value.__name__.encode() in blob


@pytest.fixture
def counted(monkeypatch):
    """The objects that cloudpickle had to pickle."""
    pickled = []
    real = by_value.cloudpickle_dumps

    def dumps(obj, *args):
        pickled.append(obj)
        return real(obj, *args)

    monkeypatch.setattr(by_value, "cloudpickle_dumps", dumps)
    return pickled


def test_function_inside_an_object_is_pickled_once(counted):
    main, _ = program("def f(x): return x + 1")
    for i in range(20):
        blob, _ = dumps_arguments("f", (Box(main.f, i),), {})
        (box,), _ = loads_arguments(blob)
        assert (box.content[0](i), box.content[1]) == (i + 1, i)
    assert len(counted) == 1


def test_rows_share_the_pickle_of_a_function(counted):
    main, _ = program("def f(x): return x + 1")
    blobs, _ = dumps_arguments_many("f", [(Box(main.f, i),) for i in range(50)])
    assert [loads_arguments(blob)[0][0].content[1] for blob in blobs] == [*range(50)]
    assert len(counted) == 1


def test_reader_unpickles_a_function_once():
    main, _ = program("def f(x): return x + 1")
    first, second = send(Box(main.f))[0], send(Box(main.f, 2))[0]
    assert first.content[0] is second.content[0]


def constant(n):
    return lambda: n


def test_function_that_is_collected_is_forgotten():
    gc.collect()
    before = len(by_value._groups)
    for i in range(5):
        blob, _ = dumps_arguments("f", (Box(constant(i)),), {})
        assert loads_arguments(blob)[0][0].content[0]() == i
    gc.collect()
    assert len(by_value._groups) == before


def test_class_that_is_collected_is_forgotten():
    def make():
        class Local:
            def m(self):
                return 1

        return Local

    def collect():
        gc.collect()
        # The members that were read are in this same process, and hold the classes.
        by_value._loaded.clear()
        gc.collect()

    collect()  # what other tests have left
    before = len(by_value._groups)
    for _ in range(5):
        cls = make()
        assert is_grouped(Box(cls), cls())
    del cls
    collect()
    assert len(by_value._groups) == before


def test_large_function_is_not_kept_on_either_side():
    content = bytes(100_000)

    def function():
        return len(content)

    kept, loaded = len(by_value._groups), len(by_value._loaded)
    box, again = send(Box(function), function)
    assert box.content[0]() == 100_000
    assert box.content[0] is again
    assert (len(by_value._groups), len(by_value._loaded)) == (kept, loaded)


def test_number_of_kept_groups_is_bounded():
    functions = [constant(i) for i in range(by_value._MAX_ENTRIES + 10)]
    for function in functions:
        dumps_arguments("f", (Box(function),), {})
    assert len(by_value._groups) <= by_value._MAX_ENTRIES


# --- Equal arguments have equal pickles -----------------------------------------------------------


EQUAL = """
    class C:
        a = 1
        def m(self): return self.a
    class Changing:
        kept = []
    def f(x): return x
    def g(x): return f(x)
    kept = []
    def fills(x): kept.append(x)
    def make(n):
        return lambda: n
    h = make(3)
"""


@pytest.mark.parametrize(
    "args",
    [
        "Box(f)",
        "[f]",
        "[C]",
        "C()",
        "C().m",
        "Box(f, g, C())",
        "Box(h)",
        "Box(fills)",
        "[Changing()]",
        "'__main__'",
        "Box(len, 'x' * 100)",
        "functools.partial(g, 1)",
    ],
)
def test_equal_arguments_have_equal_pickles_whatever_came_before(args):
    main, space = program(EQUAL, Box=Box, functools=functools)

    def dump():
        blob, _ = dumps_arguments("f", (eval(args, space),), {})
        return blob

    first = dump()
    assert [dump() for _ in range(3)] == [first] * 3
    for other in ([main.f], Box(main.g, main.f), Box(1), main.C(), [main.fills], C_OF_ANOTHER):
        for _ in range(2):
            dumps_arguments("f", (other,), {})
        assert dump() == first
    assert dumps_arguments_many("f", [(eval(args, space),)] * 2)[0] == [first, first]
    by_value._groups.clear()
    by_value.hints.clear()
    assert dump() == first


C_OF_ANOTHER = Box(Box)


# --- Changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "later", "expected"),
    [
        ("def f(): return helper()", "def helper(): return 7", 7),
        ("def f(): return math.floor(7.5)", "import math", 7),
        ("def f(): return [len([1]) for _ in [1]][0]", "def len(_): return 7", 7),
        ("def f():\n def g(): return helper\n return g()", "helper = 7", 7),
        (
            "def make():\n if given: later = 0\n def f(): return later\n"
            " def put(n):\n  nonlocal later; later = n\n return f, put\nf, put = make()",
            "put(7)",
            7,
        ),
    ],
)
def test_name_that_is_defined_later_arrives(source, later, expected):
    main, space = program(source, given=False)
    for _ in range(3):
        with contextlib.suppress(NameError):
            send(Box(main.f))[0].content[0]()
        with contextlib.suppress(NameError):
            loads(dumps_function(main.f)[1])()
    exec(later, space)
    assert send(Box(main.f))[0].content[0]() == expected
    assert loads(dumps_function(main.f)[1])() == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("k = 5", 5),
        ("def helper(): return 6", 6),
        ("f.__defaults__ = (7,)", 8),
        ("f.__code__ = (lambda x=0: 9).__code__", 9),
        ("C.a = 3", 4),
        ("C.a = [1]; f = lambda: C.a[0] + 10", 11),
    ],
)
def test_a_change_of_a_function_arrives(change, expected):
    main, space = program("""
        k = 1
        class C:
            a = 0
        def helper(): return k
        def f(x=0): return helper() + C.a + x
    """)
    assert send(Box(main.f, main.C()))[0].content[0]() == 1
    exec(change, space)
    f = send(Box(space["f"], main.C()))[0].content[0]
    assert f() == expected


@pytest.mark.parametrize("name", ["__name__", "__qualname__"])
def test_name_that_is_set_later_arrives_and_is_not_left_by_a_task(name):
    main, _ = program("def f(): return 1")
    assert getattr(send(Box(main.f))[0].content[0], name) == "f"
    setattr(main.f, name, "renamed")
    for _ in range(2):
        received = send(Box(main.f))[0].content[0]
        assert getattr(received, name) == "renamed"
        setattr(received, name, "spoiled")
        assert getattr(loads(dumps_function(main.f)[1]), name) == "renamed"


def test_attribute_of_a_function_arrives():
    main, _ = program("def f(): return 1")
    assert not vars(send(Box(main.f))[0].content[0])
    main.f.note = "new"
    assert send(Box(main.f))[0].content[0].note == "new"


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n f.n = getattr(f, 'n', 0) + 1\n return f.n",
        "def f():\n globals()['n'] = globals().get('n', 0) + 1\n return globals()['n']",
    ],
)
def test_state_that_a_task_leaves_is_not_seen_by_the_next(source):
    main, _ = program(source)
    for _ in range(5):
        assert send(Box(main.f))[0].content[0]() == 1


def test_attribute_of_a_class_that_a_task_leaves_is_not_seen_by_the_next():
    main, _ = program("class C:\n n = 0")
    blob, _ = dumps_arguments("f", (main.C(),), {})
    for _ in range(3):
        (received,), _ = loads_arguments(blob)
        assert received.n == 0
        type(received).n = 1  # this is main.C: the process has it already


def test_reader_unpickles_a_class_once():
    main, _ = program("class C:\n def m(self): return 1")
    blob, _ = dumps_arguments("f", (main.C(),), {})
    loads_arguments(blob)
    method = main.C.m  # of this process, which has the class already
    assert loads_arguments(blob)[0][0].m() == 1
    assert main.C.m is method


def test_members_that_share_nothing_are_unpickled_once_each():
    main, _ = program("""
        class C:
            def m(self): return 1
        def f(): return 'f'
        def g(): return 'g'
    """)
    first, second = send(main.C(), main.f), send(main.C(), main.g)
    method = main.C.m  # the class of this process is that of the reader, too
    assert send(main.C(), main.f)[1] is first[1]
    assert send(main.C(), main.g)[1] is second[1]
    assert main.C.m is method
    assert (first[1](), second[1]()) == ("f", "g")


@pytest.mark.parametrize(
    "args",
    [
        "[f, helper]",
        "[helper, f]",
        "[f, g]",
        "[other, f, other2, g]",
        "[C, other, uses_class]",
        "[h, other, h2]",
    ],
)
def test_members_that_share_something_share_it_at_the_reader(args):
    _, space = program("""
        def helper(): pass
        def f(): return helper
        def g(): return helper
        def other(): pass
        def other2(): pass
        class C: pass
        def uses_class(): return C
        def make(n):
            return (lambda: n), (lambda: n)
        h, h2 = make(3)
    """)
    given = eval(args, space)
    assert is_grouped(given)
    received = send(given)[0]
    assert describe(received) == describe(pickle.loads(cloudpickle_dumps(given)))
    assert [item.__name__ for item in received] == [item.__name__ for item in given]


class Forget:
    """An object that empties the reader's cache when it is unpickled."""

    def __reduce__(self):
        return forget, ()


def forget():
    by_value._loaded.clear()
    return Forget()


def test_members_of_one_argument_come_from_one_load():
    main, _ = program("""
        def f(): return 1
        def g(): return f
        def h(): return g, f
    """)
    f, _, g, _, h = send(main.f, Forget(), main.g, Forget(), main.h)
    assert is_grouped(main.f, Forget(), main.g, Forget(), main.h)
    assert g() is f
    assert h() == (g, f)


def test_objects_that_members_share_are_shared_after_unpickling():
    main, _ = program("""
        n = 0
        def helper(): return n
        def f(): return helper()
        def g(): return helper()
    """)
    f, g = send(Box(main.f), [main.g, main.f])[0].content[0], None
    box, (g, again) = send(Box(main.f), [main.g, main.f])
    f = box.content[0]
    assert f is again
    assert f.__globals__ is g.__globals__
    assert f.__globals__["helper"] is g.__globals__["helper"]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n global n\n n += 1",
        "def make():\n n = 0\n def f():\n  nonlocal n\n  n += 1\n return f\nf = make()",
        "kept = []\ndef f(): kept.append(1)",
        "import enum\nclass E(enum.Enum):\n a = 1\ndef f(): return E.a",
        "class C:\n kept = []\nf = C",
    ],
)
def test_state_that_could_change_unseen_is_left_to_cloudpickle(source):
    main, _ = program(source, n=0)
    assert not is_grouped(Box(main.f))


@pytest.mark.parametrize(
    "source",
    [
        "def f(): return f",
        "def f(): return g\ndef g(): return f",
        "def make(n):\n return lambda: n\nf = make(3)",
        "class f:\n x = 1\n @property\n def y(self): return 2\n @staticmethod\n def s(): pass",
        "import dataclasses\n@dataclasses.dataclass\nclass f:\n x: int = 1",
        "import collections\nf = collections.namedtuple('f', 'x', module='__main__')",
        "import functools\nf = functools.partial(lambda a, b: a + b, 1)",
        "import functools\nf = functools.lru_cache(lambda a: a)",
        "class C:\n def m(self): return 1\nf = C().m",
    ],
)
def test_functions_that_capture_only_constants_are_grouped(source):
    main, _ = program(source)
    assert is_grouped(Box(main.f))
    assert describe(send(Box(main.f))) == describe(pickle.loads(cloudpickle_dumps((Box(main.f),))))


def test_pickles_within_pickles_find_their_own_groups():
    main, _ = program("def f(): return 'f'\ndef g(): return 'g'")

    def nested(function, inner):
        return Box(function, inner, function)

    inner, _ = dumps_arguments("f", (Box(main.g),), {})
    for _ in range(3):
        inner, _ = dumps_arguments("f", (Box(main.f),), {})

    class Nested:
        def __reduce__(self):
            return loads_arguments, (inner,)

    box = send(Box(main.f, Nested(), main.f))[0]
    ((inside,), _) = box.content[1]
    assert inside.content[0] is box.content[0] is box.content[2]


def test_group_of_the_last_call_is_not_sent_with_arguments_that_do_not_use_it():
    main, _ = program("def f(): return 'f'")
    assert is_grouped([main.f])
    assert not is_grouped([1, "text"])
    assert send([main.f])[0][0]() == "f"


def test_another_function_than_that_of_the_last_call_arrives():
    main, space = program("def f(): return 'f'\ndef g(): return 'g'")
    assert send(Box(main.f))[0].content[0]() == "f"
    blob, _ = dumps_arguments("f", (Box(space["g"], space["f"]),), {})
    received = loads_arguments(blob)[0][0]
    assert [function() for function in received.content] == ["g", "f"]


def test_large_buffers_and_futures_are_counted_once_however_often_an_argument_is_pickled():
    main, _ = program("def f(): return 'f'")
    array = bytearray(10_000)
    for rest in (main.f, main.f, main.f, main.f, 1, main.f):
        blob, _ = dumps_arguments("f", (Box(pickle.PickleBuffer(array), rest),), {})
        assert len(blob.buffers) == 1


def test_reducer_that_is_registered_later_is_used():
    class Point:
        pass

    main, _ = program("def f(): return 'f'")
    Point.__module__, Point.__qualname__ = __name__, "Point"
    sys.modules[__name__].Point = Point
    try:
        send(Box(main.f, Point()))
        copyreg.pickle(Point, lambda point: (str, ("a point",)))
        assert send(Box(main.f, Point()))[0].content[1] == "a point"
    finally:
        copyreg.dispatch_table.pop(Point, None)
        del sys.modules[__name__].Point


def test_private_names_of_cloudpickle_are_not_needed(monkeypatch):
    main, _ = program("def f(): return 'f'")
    monkeypatch.setattr(by_value._Known, "registered", None)
    for cls in cloudpickle.CloudPickler.__mro__:
        if "_dispatch_table" in vars(cls):
            monkeypatch.delattr(cls, "_dispatch_table")
    assert is_grouped(Box(main.f))


def test_failure_of_this_module_leaves_an_argument_to_cloudpickle(monkeypatch):
    main, _ = program("def f(): return 'f'")

    def fail(*_args):
        raise AttributeError("no such name")

    monkeypatch.setattr(by_value, "cloud_reducers", fail)
    monkeypatch.setattr(by_value._Known, "registered", None)
    assert send(Box(main.f))[0].content[0]() == "f"


def test_private_names_of_dataclasses_are_not_needed():
    script = """
        import dataclasses, importlib
        from weft.protocol.values import watching
        del dataclasses._HAS_DEFAULT_FACTORY
        importlib.reload(watching)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


@pytest.mark.slow
def test_reader_in_another_process_gets_the_present_state_of_a_class():
    writer = """
        import sys, pickle
        from tests.protocol.values.by_value_kit import Box
        from weft.protocol.values.serialize import dumps_arguments, dumps_function
        class C:
            a = 1
            def m(self): return self.a
        def f(c): return isinstance(c, C), c.m()
        for a in (1, 1, 1, 2, 2, [3], 1, 1):
            C.a = a
            blob, _ = dumps_arguments("f", (Box(f, C()),), {})
            sys.stdout.buffer.write(pickle.dumps((dumps_function(f)[1], blob)))
    """
    reader = """
        import sys, pickle
        from weft.protocol.values.serialize import loads_arguments
        for _ in range(8):
            function, blob = pickle.load(sys.stdin.buffer)
            of_another_pickle = pickle.loads(function)
            (box,), _ = loads_arguments(blob)
            f, c = box.content
            print(*f(c), of_another_pickle(c)[0])
    """
    sent = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(writer)], capture_output=True, check=True
    )
    got = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(reader)],
        input=sent.stdout,
        capture_output=True,
        check=True,
    )
    lines = got.stdout.decode().splitlines()
    assert lines == [f"True {a} True" for a in (1, 1, 1, 2, 2, [3], 1, 1)]
