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
    assert page_of_latest({}, "") == ({"records": [], "end": 0}, "")
    with pytest.raises(ValueError, match="n= is a whole number"):
        page_of_latest({"n": -1}, "")
    with pytest.raises(ValueError, match="since= is a whole number"):
        page_of_latest({"since": "x"}, "")
    for level in ("LOUD", ["INFO"]):
        with pytest.raises(ValueError, match="level= is one of NOTSET, DEBUG"):
            page_of_latest({"level": level}, "")


def test_records_can_be_followed_without_repeating_or_missing_one(ring, logger):
    logger.info("0")
    info, _ = ring.page(1, "")
    assert info["end"] == 1
    assert ring.page(None, "", since=1)[0] == {"records": [], "end": 1}
    for i in range(1, 450):
        logger.info("%d", i)
    found, page = ring.page(None, "", since=1)
    logger.info("450")
    second, page = ring.page(None, page, since=1)
    third, page = ring.page(None, page, since=1)
    numbers = [int(r[3]) for part in (found, second, third) for r in part["records"]]
    assert numbers == list(range(1, 450))
    assert (third["end"], page) == (450, "")
    assert [row[3] for row in ring.page(None, "", since=450)[0]["records"]] == ["450"]


def test_records_that_were_dropped_before_they_were_read_are_counted():
    ring = LogRing(2000)
    logger = logging.Logger("test")
    logger.addHandler(ring)
    logger.info("0")
    assert "n_missed" not in ring.page(None, "", since=1)[0]
    for i in range(1, 50):
        logger.info("%d %s", i, "x" * 100)
    info, _ = ring.page(None, "", since=1)
    assert info["end"] == 50
    assert info["n_missed"] == 49 - len(info["records"])


def test_records_below_a_level_are_left_out_and_not_counted(ring, logger):
    for i in range(300):
        logger.debug("%d", i)
        logger.warning("w%d", i)
    found = ring.page(3, "", least=logging.INFO)[0]["records"]
    assert [row[3] for row in found] == ["w297", "w298", "w299"]
    first, page = ring.page(None, "", least=logging.WARNING)
    second, end = ring.page(None, page, least=logging.WARNING)
    found = first["records"] + second["records"]
    assert [row[3] for row in found] == [f"w{i}" for i in range(300)]
    assert end == ""


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
