"""Keys of users become text and come back; no two keys have the same text."""

from __future__ import annotations

import collections
import enum
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.protocol.wire.keys import key_of, names_content, prefix_of, text_of
from weft.protocol.wire.message import MAX_KEY_CHARS

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_parts = st.one_of(
    st.text(max_size=8),
    st.binary(max_size=8),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
)
_tuples = st.recursive(_parts, lambda inner: st.lists(inner, max_size=4).map(tuple)).filter(
    lambda item: isinstance(item, tuple)
)
#: Texts that look like those of keys.
_similar = st.text("()',\"b\\0 1aN-.\n", min_size=1, max_size=12)


def identity(key: object) -> object:
    """Return what distinguishes keys: Python takes 1, 1.0 and True for equal, and 0.0 and -0.0."""
    if isinstance(key, tuple):
        return [identity(part) for part in key]
    return (type(key).__name__, repr(key))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("load", "load"),
        ("load-0123", "load-0123"),
        (("x", 0), "('x', 0)"),
        (("x", 0, 1), "('x', 0, 1)"),
        (("x",), "('x',)"),
        ((), "()"),
        (("x", ("y", 1), None, True, 1.5, b"z"), "('x', ('y', 1), None, True, 1.5, b'z')"),
        (("it's",), '("it\'s",)'),
        (("é", "\n"), "('é', '\\n')"),
        (("\ud800",), "('\\ud800',)"),
        ((math.inf, -math.inf, -0.0, -7), "(inf, -inf, -0.0, -7)"),
        ("('x', 0)", "(\"('x', 0)\")"),
        ("(\"('x', 0)\")", "('(\"(\\'x\\', 0)\")')"),
        ("(x)", "(x)"),
        ("(", "("),
        ("('x',0)", "('x',0)"),
        ("('x', 0)-0a1b", "('x', 0)-0a1b"),
    ],
)
def test_text_of_a_key_is_readable_and_is_read_back(key, text):
    assert text_of(key) == text
    assert identity(key_of(text)) == identity(key)


@given(_texts.filter(bool))
def test_str_is_its_own_text_unless_it_is_in_parentheses(key):
    if not (key.startswith("(") and key.endswith(")")):
        assert text_of(key) == key_of(key) == key


@given(st.one_of(_tuples, _similar, _similar.map(lambda s: f"({s})"), _tuples.map(repr)))
@example("()")
@example("(1)")
@example("(('a'), 1)")
@example("('a')")
@example("(b'a')")
@example("(1_0,)")
@example("(01,)")
@example("(1e,)")
@example("('a',,)")
@example("('a'")
@example("('a' 'b',)")
@example("(,)")
@example("((),")
@example("(')")
@example("('\\N{BULLET}',)")
@example("('\\x4',)")
def test_key_comes_back_from_its_text(key):
    try:
        text = text_of(key)
    except ValueError:
        assert len(repr(key)) > MAX_KEY_CHARS or isinstance(key, str)
        return
    assert identity(key_of(text)) == identity(key)
    # So no other key has this text, whatever it was read from.
    assert text_of(key_of(text)) == text


@given(_similar)
def test_any_text_is_read_as_the_key_that_has_it(text):
    assert text_of(key_of(text)) == text


@given(st.lists(st.one_of(_tuples, _similar), min_size=2, max_size=2))
def test_different_keys_have_different_texts(keys):
    one, other = keys
    assert (text_of(one) == text_of(other)) == (identity(one) == identity(other))


def test_subclasses_become_the_plain_types():
    class Colour(str, enum.Enum):
        RED = "red"

    Point = collections.namedtuple("Point", "x y")
    Level = enum.IntEnum("Level", "LOW HIGH")
    assert text_of(Colour.RED) == "red"
    assert text_of(Point("a", Level.HIGH)) == "('a', 2)"
    assert key_of("('a', 2)") == Point("a", 2)


def test_numbers_and_texts_of_numpy_become_those_of_python():
    numpy = pytest.importorskip("numpy", reason="numpy is missing: pip install numpy")
    key = (numpy.str_("x"), numpy.int64(3), numpy.float64(0.5))
    assert text_of(key) == "('x', 3, 0.5)"
    assert key_of(text_of(key)) == key


def test_keys_of_dask_collections_are_read_back():
    array = pytest.importorskip("dask.array", reason="pip install 'weft[dask]'")
    frame = array.ones((4, 4), chunks=2) + 1
    keys = [key for key in frame.__dask_graph__() if isinstance(key, tuple)]
    assert len(keys) >= 4
    for key in keys:
        assert key_of(text_of(key)) == key
        assert text_of(key) == str(key)


def test_nan_is_read_back():
    (number,) = key_of(text_of((math.nan,)))
    assert math.isnan(number)


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (5, TypeError, r"a key is a str, or a tuple of .*; not int"),
        (None, TypeError, "not NoneType"),
        (["x", 0], TypeError, "not list"),
        (("x", [0]), TypeError, r"a tuple that is a key has .*; not list: \[0\]"),
        (("x", 1j), TypeError, "not complex"),
        ("", ValueError, "1 to 1024 characters, this one has 0"),
        ("k" * (MAX_KEY_CHARS + 1), ValueError, "this one has 1025"),
        (("k" * MAX_KEY_CHARS,), ValueError, "this one has 1029"),
        ((10**5000,), ValueError, "an int in this one has more"),
        ("\ud800", ValueError, "cannot be sent as text"),
    ],
)
def test_wrong_key_is_refused_with_the_reason(key, error, text):
    with pytest.raises(error, match=text):
        text_of(key)


def test_tuples_in_tuples_are_limited():
    key: tuple = ()
    for _ in range(100_000):
        key = (key,)
    with pytest.raises(ValueError, match="at most 64 tuples within each other"):
        text_of(key)
    for text in ("(" * 1024 + ")", "(" * 400 + ",)" * 400):
        assert key_of(text) == text


HASH = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("text", "is_content"),
    [
        (f"sum-{HASH}", True),
        (f"('sum-{HASH}', 0)", True),
        (f"split-{HASH}-0", True),
        ("inc-48516738-4fb7-40aa-996f-f8530f2e81eb", True),
        ("sum", False),
        ("sum-1", False),
        (HASH, False),
        (f"sum-{HASH[:-1]}", False),
    ],
)
def test_keys_with_a_hash_in_them_name_their_content(text, is_content):
    assert names_content(text) is is_content


@pytest.mark.parametrize(
    ("key", "prefix"),
    [
        ("load", "load"),
        ("abs-b26150ff-5e67-469b-92d6-4412b1394354", "abs"),
        (("getitem-gt-8c281e35f9feb4932e1fc001e3ff2cee", 0, 1), "getitem-gt"),
        (("x", 0), "x"),
        ((("x", 1), 0), "('x', 1)"),
        ((), "()"),
    ],
)
def test_the_prefix_of_a_key_is_what_is_before_its_hash(key, prefix):
    assert prefix_of(key) == prefix
