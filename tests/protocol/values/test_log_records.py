"""Records of logging that are sent to another process."""

from __future__ import annotations

import logging
import sys

import pytest

from weft.protocol.values.log_records import MAX_TEXT_CHARS, packed, unpacked
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.plain import pack


def made(text="%s and %s", args=(1, "two"), extra=None, exc_info=None, level=20):
    logger = logging.Logger("lib.part")
    return logger.makeRecord(
        "lib.part", level, "/where/it.py", 12, text, args, exc_info, "function", extra
    )


def sent(record, key="k"):
    return unpacked(record.name, record.levelno, packed(record, key), "w-1")


def test_a_record_arrives_with_its_text_time_and_place():
    record = made()
    found = sent(record)
    assert found.getMessage() == "1 and two"
    for name in ("name", "levelno", "levelname", "created", "pathname", "filename", "lineno"):
        assert getattr(found, name) == getattr(record, name), name
    for name in ("funcName", "module", "process", "processName", "thread", "threadName"):
        assert getattr(found, name) == getattr(record, name), name
    assert (found.weft_worker, found.weft_key) == ("w-1", "k")


def test_percent_signs_of_a_text_are_no_format():
    assert sent(made("100 %s %d", ())).getMessage() == "100 %s %d"


def test_an_exception_arrives_as_text_that_formatters_show():
    try:
        raise ValueError("bad\udc80")
    except ValueError:
        record = made(exc_info=sys.exc_info())
    found = sent(record)
    assert found.exc_info is None
    shown = logging.Formatter("%(name)s: %(message)s").format(found)
    assert shown.startswith("lib.part: 1 and two\nTraceback")
    assert "ValueError: bad" in shown


def test_plain_extras_travel_and_others_do_not():
    extra = {
        "user": "me",
        "shape": (2, 3),
        "nested": {"a": [1, None]},
        "large": "x" * 100_000,
        "number": 1 << 80,
        "object": object(),
        "_private": 1,
        "weft_worker": "lies",
    }
    extra["itself"] = loop = []
    loop.append(loop)
    found = sent(made(extra=extra))
    assert (found.user, found.shape, found.nested) == ("me", [2, 3], {"a": [1, None]})
    assert found.weft_worker == "w-1"
    for name in ("large", "number", "object", "_private", "itself"):
        assert not hasattr(found, name), name


def test_extras_together_have_a_limit():
    found = sent(made(extra={f"e{i}": "x" * 3000 for i in range(20)}))
    assert 3 <= sum(hasattr(found, f"e{i}") for i in range(20)) <= 6


def test_arguments_that_cannot_be_formatted_are_no_error():
    assert "arguments cannot be formatted: TypeError" in sent(made("%d", ("x",))).getMessage()


def test_long_texts_are_cut():
    text = sent(made("x" * 100_000, ())).getMessage()
    assert text == "x" * MAX_TEXT_CHARS + " [...]"


def test_blobs_of_no_record_are_refused_and_strange_attributes_left_out():
    for blob in (b"", b"\xc1", pack([1]), pack("x" * (1 << 20)), b"\x81\x01\x02"):
        with pytest.raises(ValueError, match=r"record|read"):
            unpacked("a", 20, blob, "w")
    strange = {"msg": 5, "args": [1], "lineno": "x", "exc_info": [1], "created": None, "x": 1}
    found = unpacked("a", 20, Payload(pack(strange), ()), "w")
    logging.Formatter("%(asctime)s %(message)s %(lineno)d").format(found)
    assert (found.x, found.levelname) == (1, "INFO")
