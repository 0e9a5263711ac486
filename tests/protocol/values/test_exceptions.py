"""A task's exception arrives as it was raised: type, chain, the user's frames, and a note."""

from __future__ import annotations

import asyncio
import builtins
import gc
import sys
import threading
import traceback
import weakref
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.errors import RemoteProtocolError, SerializationError, TaskErred
from weft.protocol.values import exceptions, serialize, tracebacks
from weft.protocol.values.exceptions import name_packed, pack_exception, unpack_exception


def caught(func, *args):
    try:
        func(*args)
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def sent(exc):
    """Return the exception that a client gets, through data that the wire can carry."""
    packed = pack_exception(exc, "load-17", "w-3")
    return unpack_exception(msgpack.unpackb(msgpack.packb(packed)))


def raiser(exc):
    raise exc


def frame_names(exc):
    return [frame.name for frame in traceback.extract_tb(exc.__traceback__)]


class WithFields(Exception):
    """An exception whose default pickle cannot be read: __init__ takes other arguments."""

    def __init__(self, code, *, detail):
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail


class HoldsLock(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Unreadable(Exception):
    """An exception that can be pickled, and read on the worker, but no longer on the client."""

    readable = True

    def __setstate__(self, state):
        if not Unreadable.readable:
            raise ImportError("no module of that name here")

    def __reduce__(self):
        return Unreadable, self.args, {"some": "state"}


class BrokenText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class OwnBase(BaseException):
    pass


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("bad", 3),
        KeyError("missing"),
        FileNotFoundError(2, "No such file", "data.csv"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        StopIteration(5),
        OwnBase("mine"),
        TaskErred("inner", "x.Y", "z"),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_exception_comes_as_its_own_type(exc):
    back = sent(caught(raiser, exc))
    assert type(back) is type(exc)
    assert back.args == exc.args
    assert str(back) == str(exc)
    assert back.__notes__ == ["weft: task load-17 on worker w-3"]


def test_original_is_not_changed():
    exc = caught(raiser, ValueError("bad"))
    before = dict(exc.__dict__), exc.__traceback__
    pack_exception(exc, "k", "w")
    assert (dict(exc.__dict__), exc.__traceback__) == before


def test_each_unpacking_makes_a_new_object():
    packed = pack_exception(caught(raiser, ValueError("bad")), "k", "w")
    first, second = unpack_exception(packed), unpack_exception(packed)
    assert first is not second
    assert len(second.__notes__) == 1


def test_class_with_its_own_constructor_keeps_type_and_fields():
    back = sent(caught(raiser, WithFields(7, detail={"a": 1})))
    assert type(back) is WithFields
    assert (str(back), back.code, back.detail) == ("code 7", 7, {"a": 1})


def test_local_class_travels_by_value():
    class Local(Exception):
        pass

    back = sent(caught(raiser, Local("here")))
    assert type(back).__qualname__ == Local.__qualname__
    assert back.args == ("here",)


def outer(x):
    return inner(x)


def inner(x):
    return [1, 2, 3][x]


def test_traceback_has_the_frames_and_prints_as_there():
    exc = caught(outer, 99)
    back = sent(exc)
    assert frame_names(back) == ["caught", "outer", "inner"]
    there = traceback.format_tb(exc.__traceback__)
    assert traceback.format_tb(back.__traceback__) == there  # lines, carets and all
    assert "return [1, 2, 3][x]" in there[-1]


def test_raising_again_keeps_the_frames():
    exc = caught(outer, 99)
    again = caught(raiser, sent(exc))
    assert frame_names(again) == ["caught", "raiser", "caught", "outer", "inner"]


def test_an_exception_that_arrived_keeps_no_frame_of_its_reader_alive():
    packed = pack_exception(caught(raiser, ValueError("x")), "load-17", "w-3")

    def read() -> weakref.ref[Any]:
        held = threading.Event()
        error = unpack_exception(packed)
        try:
            raise error
        except ValueError:
            del error
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert read()() is None
    finally:
        gc.enable()


def test_frames_of_weft_at_the_top_are_dropped():
    class Raises:
        def __reduce__(self):
            raise ValueError("in user code")

    # From here through serialize into user code; a worker gets the frames from weft's own on.
    exc = caught(serialize.dumps, Raises()).__cause__
    names = frame_names(exc)
    assert names[0] != "__reduce__"
    assert names[-1] == "__reduce__"
    back = sent(exc)
    files = [frame.filename for frame in traceback.extract_tb(back.__traceback__)]
    assert not files[0].startswith(exceptions.__file__.rsplit("protocol", 1)[0])
    assert frame_names(back)[-1] == "__reduce__"


def test_the_parent_puts_the_name_of_the_task_into_a_packed_exception():
    packed = pack_exception(caught(raiser, SystemExit(3)), "?", "?")
    got = unpack_exception(name_packed(packed, "load-17", "weft: task 'load-17' in process 5"))
    assert isinstance(got, TaskErred)
    assert got.key == "load-17"
    assert got.__notes__ == ["weft: task 'load-17' in process 5"]
    assert frame_names(got.__cause__)[-1] == "raiser"


def test_traceback_of_weft_alone_is_kept():
    exc = caught(serialize.loads, b"not a pickle")
    exc.__traceback__ = exc.__traceback__.tb_next  # the worker calls from a frame of its own
    assert frame_names(sent(exc)) == ["loads"]


def test_cause_and_context_are_kept():
    def with_cause():
        try:
            outer(99)
        except IndexError as exc:
            raise ValueError("translated") from exc

    def with_context():
        try:
            with_cause()
        except ValueError:
            raise KeyError("while handling")  # noqa: B904 - the implicit context is the point

    back = sent(caught(with_context))
    assert type(back) is KeyError
    assert back.__cause__ is None
    assert not back.__suppress_context__
    middle = back.__context__
    assert type(middle) is ValueError
    assert middle.__suppress_context__
    assert middle.__cause__ is middle.__context__
    assert type(middle.__cause__) is IndexError
    assert frame_names(middle.__cause__)[-1] == "inner"


def test_from_none_stays_silent():
    def silent():
        try:
            outer(99)
        except IndexError:
            raise ValueError("short") from None

    back = sent(caught(silent))
    assert back.__suppress_context__
    assert back.__cause__ is None
    assert "IndexError" not in "".join(traceback.format_exception(back))


def test_unpicklable_cause_is_replaced_and_the_rest_kept():
    def chained():
        raise ValueError("outer") from HoldsLock("inner")

    back = sent(caught(chained))
    assert type(back) is ValueError
    assert type(back.__cause__) is TaskErred
    assert back.__cause__.type_name.endswith("HoldsLock")
    assert back.__cause__.text == "inner"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with Python 3.11")
def test_exception_group_keeps_its_parts_and_their_frames():
    parts = [caught(outer, 99), caught(raiser, KeyError("b"))]
    group_type = builtins.ExceptionGroup
    back = sent(caught(raiser, group_type("several", parts)))
    assert type(back) is group_type
    assert [type(part) for part in back.exceptions] == [IndexError, KeyError]
    assert [frame_names(part)[-1] for part in back.exceptions] == ["inner", "raiser"]


def test_notes_of_the_user_come_first():
    exc = caught(raiser, ValueError("bad"))
    exc.__notes__ = ["mine"]
    back = sent(exc)
    assert back.__notes__ == ["mine", "weft: task load-17 on worker w-3"]


def test_unpicklable_exception_becomes_task_erred():
    back = sent(caught(raiser, HoldsLock("no disk")))
    assert type(back) is TaskErred
    assert (back.key, back.text) == ("load-17", "no disk")
    assert back.type_name.endswith("test_exceptions.HoldsLock")
    assert frame_names(back) == ["caught", "raiser"]
    printed, where = back.__notes__
    assert "HoldsLock: no disk" in printed
    assert "in raiser" in printed
    assert where == "weft: task load-17 on worker w-3"


def test_exception_that_cannot_be_read_here_becomes_task_erred(monkeypatch):
    packed = pack_exception(caught(raiser, Unreadable("gone")), "k", "w")
    assert packed[0]
    assert type(unpack_exception(packed)) is Unreadable
    monkeypatch.setattr(Unreadable, "readable", False)
    back = unpack_exception(packed)
    assert type(back) is TaskErred
    assert back.text == "gone [not readable here: ImportError: no module of that name here]"


@pytest.mark.parametrize(
    "exc",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()],
    ids=lambda exc: type(exc).__name__,
)
def test_an_exception_that_would_end_the_caller_fails_the_task_only(exc):
    back = sent(caught(raiser, exc))
    assert type(back) is TaskErred
    assert back.type_name.rpartition(".")[2] == type(exc).__name__
    assert type(back.__cause__) is type(exc)
    assert back.__cause__.args == exc.args
    assert frame_names(back.__cause__) == ["caught", "raiser"]


def test_exception_without_text_or_traceback():
    back = sent(BrokenText("hidden"))
    assert type(back) is BrokenText
    assert back.args == ("hidden",)
    packed = pack_exception(BrokenText(), "k", "w")
    assert packed[2] == "<its __str__ raised RuntimeError>"
    assert "BrokenText" in packed[3]


def recurse(n):
    return recurse(n + 1)


def test_endless_recursion_is_cut():
    exc = caught(recurse, 0)
    packed = pack_exception(exc, "k", "w")
    back = unpack_exception(packed)
    assert type(back) is RecursionError
    assert len(frame_names(back)) == 200
    assert len(packed[4]) < 64_000


def test_long_texts_are_cut_in_the_middle():
    exc = caught(raiser, ValueError("start" + "x" * 1_000_000 + "end"))
    _, _, text, printed, _ = pack_exception(exc, "k", "w")
    assert len(text) == 16 * 1024
    assert text.startswith("start")
    assert text.endswith("end")
    assert len(printed) == exceptions.MAX_TRACEBACK_CHARS
    assert printed.startswith("Traceback (most recent call last)")


def test_huge_exception_does_not_travel():
    back = sent(caught(raiser, ValueError("big", bytes(9 * 2**20))))
    assert type(back) is TaskErred
    assert back.type_name == "ValueError"


def test_long_chain_is_cut():
    exc: Exception | None = None
    for i in range(200):
        after = ValueError(i)
        after.__cause__ = exc
        exc = after
    back = sent(exc)
    length = 0
    while back is not None:
        back, length = back.__cause__, length + 1
    assert length == 50


@pytest.mark.parametrize("field", ["__module__", "__qualname__"])
def test_a_type_whose_name_is_no_utf_8_can_be_sent(field):
    error = type("Odd", (Exception,), {field: "\udc80"})("text")
    _blob, name, text, printed, _frames = pack_exception(error, "x", "w")
    assert "\\udc80" in name
    assert (name + text + printed).encode()


def test_undecodable_text_can_be_sent():
    back = sent(caught(raiser, ValueError("\udcff")))
    assert back.args == ("\udcff",)
    packed = pack_exception(ValueError("\udcff"), "k", "w")
    assert packed[2] == "\\udcff"


@pytest.mark.parametrize(
    "packed",
    [[], [b""] * 5, [b"", "a", "b", "c", b"junk"], ["", "a", "b", "c", b""], [b"", "a", "b", "c"]],
)
def test_bad_input_is_a_protocol_error(packed):
    with pytest.raises(RemoteProtocolError):
        unpack_exception(packed)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns came with Python 3.11")
@given(
    st.integers(1, 10**6),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(0, 3),
    st.integers(1, 10**6),
)
def test_any_position_survives(line, column, width, more_lines, first):
    from weft.protocol.values import tracebacks

    for columns in ((line + more_lines, column, column + width), None):
        tb = tracebacks.from_rows([("f.py", "f", line, "m", columns, first)])
        assert tb.tb_lineno == tb.tb_frame.f_lineno == line
        assert tb.tb_frame.f_code.co_firstlineno == first
        assert tb.tb_frame.f_code.co_name == "f"
        assert tracebacks.to_rows(tb) == [("f.py", "f", line, "m", columns, first)]


def test_serialization_error_of_a_task_keeps_its_type():
    exc = caught(serialize.dumps, threading.Lock(), "result")
    back = sent(exc)
    assert type(back) is SerializationError
    assert back.where == "result"


def _raise(kind: str) -> None:
    if kind == "plain":
        raise ValueError("a text\nof two lines")
    if kind == "note":
        error = KeyError("x")
        if hasattr(error, "add_note"):
            error.add_note("a note")
        raise error
    if kind == "cause":
        raise ValueError("x") from TypeError("y")
    if kind == "hidden context":
        try:
            {}["x"]
        except KeyError:
            raise ValueError("y") from None
    if kind == "context":
        try:
            {}["x"]
        except KeyError:
            raise ValueError("y")  # noqa: B904
    if kind == "name":
        kinds = 1  # noqa: F841
        kindz  # type: ignore[name-defined] # noqa: F821
    if kind == "deep":
        _recurse(100)


def _recurse(n: int) -> None:
    if n:
        _recurse(n - 1)
    raise ValueError(n)


@pytest.mark.parametrize(
    "kind", ["plain", "note", "cause", "context", "hidden context", "name", "deep"]
)
def test_a_traceback_is_printed_as_python_prints_it_also_when_its_text_is_kept(kind):
    for _ in range(2):
        with pytest.raises(Exception) as caught:
            _raise(kind)
        error = caught.value
        tb = error.__traceback__
        printed = pack_exception(error, "k", "w")[3]
        assert printed == "".join(traceback.format_exception(type(error), error, tb))


def test_few_texts_of_tracebacks_are_kept(monkeypatch):
    monkeypatch.setattr(tracebacks, "_MAX_KEPT", 2)
    tracebacks._printed.clear()
    for n in range(5):
        made: dict[str, Any] = {}
        exec(compile(f"def f():\n    raise ValueError({n})", f"<file {n}>", "exec"), made)
        with pytest.raises(ValueError, match=str(n)) as caught:
            made["f"]()
        assert f"<file {n}>" in pack_exception(caught.value, "k", "w")[3]
        assert len(tracebacks._printed) <= 2
