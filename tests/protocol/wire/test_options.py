"""The table of the options of tasks: what is sent, and what a receiver does not know."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire import options
from weft.protocol.wire.options import KEYWORDS, MARK, NO_OPTIONS, OPTIONS, TaskOptions

#: A mark of an option of a later version.
LATER = MARK + "later"


def test_only_what_was_given_is_sent_and_comes_back():
    given = TaskOptions(priority=0, retries=2, workers=["w"], span=())
    assert given.as_record() == {"retries": 2, "workers": ["w"]}
    assert TaskOptions.of(given.as_record()) == given
    assert (given.priority, given.timeout_us, given.resources) == (0, 0, {})
    assert NO_OPTIONS.as_record() == {}


def test_a_change_leaves_the_other_options():
    given = TaskOptions(retries=2, priority=3)
    assert given.changed(priority=0, span=["tag"]) == TaskOptions(retries=2, span=["tag"])
    assert given == TaskOptions(retries=2, priority=3) != TaskOptions(retries=2)
    assert given.as_key() != given.for_attempt(7).as_key()


def test_each_default_is_false_and_each_keyword_and_column_is_one_option():
    assert not any(one.default for one in OPTIONS.values())
    assert tuple(sorted({*KEYWORDS})) == KEYWORDS
    columns = [one.column for one in OPTIONS.values() if one.column]
    assert columns
    assert {*columns} <= {*m.AssignTasks.optional_columns}


def test_an_option_that_must_be_understood_has_a_mark_on_its_way(monkeypatch):
    monkeypatch.setattr(options, "_MARKS", {MARK + "timeout_us": "timeout_us"})
    given = TaskOptions(timeout_us=5, resources={"GPU": 1.0})
    record = given.as_record()
    assert record == {"timeout_us": 5, "resources": {MARK + "timeout_us": 1, "GPU": 1.0}}
    assert options.unknown_options(record) == []
    assert TaskOptions.of(record) == given
    assert TaskOptions(retries=1).as_record() == {"retries": 1}


@pytest.mark.parametrize("record", [{}, {"retries": 1}, {"resources": {"GPU": 1}}])
def test_options_without_a_mark_are_understood(record):
    assert options.unknown_options(record) == []


def test_a_mark_of_another_version_names_its_option():
    assert options.unknown_options({"resources": {"GPU": 1, LATER: 1}}) == ["later"]


RECURSIVE: list[object] = []
RECURSIVE += [RECURSIVE] * 10
DEEP: list[object] = []
for _ in range(9):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "meta", ["text", 5, -(2**63) + 1, 0.5, True, None, ["a", {"b": [None]}], "x" * 1984, [1] * 31]
)
def test_plain_data_of_a_user_passes_as_a_copy(meta):
    checked = OPTIONS["meta"].check(meta, [])
    assert checked == meta
    assert not isinstance(meta, list) or checked is not meta


@pytest.mark.parametrize(
    ("meta", "error", "text"),
    [
        ("x" * 1985, ValueError, "at most 2048 bytes"),
        ([1] * 32, ValueError, "each item counts 64 more"),
        (DEEP, ValueError, "in at most 8 lists and dicts"),
        (RECURSIVE, ValueError, "at most"),
        ({"a" * 2000: 1}, ValueError, "at most"),
        ("ü" * 1000, ValueError, "at most"),
        ("\ud800", ValueError, "surrogates not allowed"),
        (b"bytes", TypeError, "not bytes"),
        ((1, 2), TypeError, "not tuple"),
        ([object()], TypeError, "not object"),
        ({1: 2}, TypeError, "texts as keys are expected, not dict"),
        (2**63, TypeError, "not int"),
    ],
)
def test_other_data_of_a_user_is_refused(meta, error, text):
    with pytest.raises(error, match=text):
        OPTIONS["meta"].check(meta, [])
