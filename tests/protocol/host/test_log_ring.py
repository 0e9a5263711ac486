"""The ring of the latest log records."""

from __future__ import annotations

import logging

import pytest

from weft.protocol.host import log_ring
from weft.protocol.host.log_ring import MAX_TEXT_CHARS, LogRing, keep_latest, page_of_latest


@pytest.fixture
def ring():
    return LogRing()


@pytest.fixture
def logger(ring):
    logger = logging.Logger("test")
    logger.addHandler(ring)
    return logger


def texts(ring: LogRing, n: int | None = None) -> list[str]:
    found, page = [], ""
    while True:
        info, page = ring.page(n, page)
        found += [text for _, _, _, text in info["records"]]
        if not page:
            return found


def test_records_have_time_level_logger_and_text(ring, logger):
    logger.warning("%d of %d", 1, 2)
    ((when, level, name, text),) = ring.page(None, "")[0]["records"]
    assert when > 1e9
    assert (level, name, text) == ("WARNING", "test", "1 of 2")


def test_the_last_ones_can_be_asked_for(ring, logger):
    for i in range(500):
        logger.info("%d", i)
    assert texts(ring) == [str(i) for i in range(500)]
    assert texts(ring, 3) == ["497", "498", "499"]
    assert texts(ring, 300) == [str(i) for i in range(200, 500)]
    assert texts(ring, 0) == []


def test_old_records_are_dropped_by_their_size():
    ring = LogRing(2000)
    logger = logging.Logger("test")
    logger.addHandler(ring)
    for i in range(100):
        logger.info("%d %s", i, "x" * 100)
    assert 1 < len(texts(ring)) < 10
    assert texts(ring)[-1].startswith("99 ")


def test_a_long_text_is_cut(ring, logger):
    logger.info("x" * 10 * MAX_TEXT_CHARS)
    (text,) = texts(ring)
    assert len(text) < MAX_TEXT_CHARS + 10


def test_tracebacks_are_kept(ring, logger):
    try:
        raise ValueError("oops")
    except ValueError:
        logger.exception("failed")
    (text,) = texts(ring)
    assert text.startswith("failed\nTraceback")
    assert text.endswith("ValueError: oops")


def test_a_record_that_cannot_be_formatted_is_kept(ring, logger):
    logger.info("%d", "x")
    assert texts(ring) == ["'%d' (its arguments cannot be formatted: TypeError)"]


def test_records_that_come_and_go_between_two_pages_repeat_no_others():
    ring = LogRing(100_000)
    logger = logging.Logger("test")
    logger.addHandler(ring)
    for i in range(300):
        logger.info("%d", i)
    first, page = ring.page(None, "")
    for i in range(300, 600):
        logger.info("%d", i)
    second, last = ring.page(None, page)
    numbers = [int(text) for _, _, _, text in first["records"] + second["records"]]
    assert last == ""
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 299


@pytest.mark.parametrize("page", ["x", "1", "1-2-3", "1-x"])
def test_a_wrong_page_is_refused(ring, page):
    with pytest.raises(ValueError):
        ring.page(None, page)


def test_a_process_that_keeps_no_records_has_none(monkeypatch):
    monkeypatch.setattr(log_ring, "_ring", None)
    assert page_of_latest({}, "") == ({"records": []}, "")
    with pytest.raises(ValueError, match="n= is a whole number"):
        page_of_latest({"n": -1}, "")


def test_the_records_of_a_process_are_those_of_the_root_logger(monkeypatch):
    monkeypatch.setattr(log_ring, "_ring", None)
    root = logging.getLogger()
    before = root.handlers[:]
    try:
        keep_latest()
        logging.getLogger("mine").warning("first")
        keep_latest()
        logging.getLogger("mine").warning("second")
        info, _ = page_of_latest({}, "")
        assert [text for _, _, _, text in info["records"]] == ["second"]
        assert len(root.handlers) == len(before) + 1
    finally:
        root.handlers[:] = before
