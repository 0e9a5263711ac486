"""Records of logging that are caught: which ones, and what the process's own handlers get."""

from __future__ import annotations

import logging

import pytest
from rich.console import Console
from rich.logging import RichHandler

from weft.protocol.host.log_ring import LogRing
from weft.worker.output.log_catching import RecordCatcher


class Collected(logging.Handler):
    """A handler of the program."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


class Caught:
    """A catcher, and what it has caught."""

    def __init__(self, keeps=True):
        self.of_tasks, self.followed = [], []
        #: a client wants the output of the task that runs
        self.is_wanted = False
        self.catcher = RecordCatcher(
            lambda record: self.of_tasks.append(record.getMessage()) if self.is_wanted else None,
            lambda record: self.followed.append(record.getMessage()),
            lambda: self.is_wanted,
            keeps,
        )
        self.want = self.catcher.want


@pytest.fixture
def caught(own):
    caught = Caught()
    yield caught
    caught.want(0, {})


@pytest.fixture
def own():
    """Return a handler of the root; levels are as a worker has them."""
    root, handler = logging.getLogger(), Collected()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    names = ("a", "a.b", "a.b.c", "other")
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)
    for name in names:
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).propagate = True
    handlers = [h for name in ("", *names) for h in logging.getLogger(name).handlers]
    assert not [h for h in handlers if type(h).__name__ == "_Records"]
    assert not handler.filters


def log(name, level=logging.INFO):
    logging.getLogger(name).log(level, "%s %d", name, level)


def test_a_followed_logger_passes_the_records_that_are_wanted_and_no_others(caught, own):
    caught.want(0, {"a": logging.INFO})
    for name in ("a", "a.b", "other"):
        log(name)
        log(name, logging.DEBUG)
        log(name, logging.ERROR)
    assert caught.followed == ["a 20", "a 40", "a.b 20", "a.b 40"]
    assert own.texts == ["a 40", "a.b 40", "other 40"]  # as without us
    caught.want(0, {})
    log("a")
    log("a", logging.ERROR)
    assert len(caught.followed) == 4
    assert logging.getLogger("a").level == logging.NOTSET
    assert own.texts[3:] == ["a 40"]


def test_a_record_is_taken_once_however_many_of_its_loggers_are_followed(caught, own):
    caught.want(0, {"": logging.INFO, "a": logging.DEBUG, "a.b": logging.ERROR})
    log("a.b.c", logging.ERROR)
    log("a.b.c", logging.DEBUG)
    log("other")
    log("other", logging.DEBUG)
    assert caught.followed == ["a.b.c 40", "a.b.c 10", "other 20"]


def test_a_logger_that_does_not_propagate_can_be_followed(caught, own):
    logging.getLogger("a").propagate = False
    caught.want(0, {"a": logging.INFO})
    log("a.b")
    assert caught.followed == ["a.b 20"]
    caught.want(0, {"": logging.INFO})
    log("a.b", logging.ERROR)
    assert caught.followed == ["a.b 20"]


def test_levels_that_the_program_sets_meanwhile_stay(caught, own):
    logger = logging.getLogger("a")
    logger.setLevel(logging.ERROR)
    caught.want(0, {"a": logging.INFO})
    assert logger.level == logging.INFO
    caught.want(0, {"a": logging.DEBUG})
    assert logger.level == logging.DEBUG
    caught.want(0, {"a": logging.CRITICAL})
    assert logger.level == logging.ERROR  # its own one lets more pass
    caught.want(0, {"a": logging.INFO})
    logger.setLevel(logging.CRITICAL)
    caught.want(0, {})
    assert logger.level == logging.CRITICAL


def test_handlers_of_the_program_get_what_its_own_levels_let_pass(caught, own):
    """A logger with a lower level than the root: its records pass the root's handlers."""
    logging.getLogger("a").setLevel(logging.DEBUG)
    caught.is_wanted = True
    caught.want(logging.INFO, {})
    log("a", logging.DEBUG)
    log("other")
    assert own.texts == ["a 10"]
    assert caught.of_tasks == ["other 20"]


def test_handlers_below_a_followed_logger_get_what_they_would_get_without_it(caught, own):
    handlers = {name: Collected() for name in ("a.b", "a.b.c")}
    for name, handler in handlers.items():
        logging.getLogger(name).addHandler(handler)
    try:
        for followed in ("a", ""):
            caught.want(0, {followed: logging.DEBUG})
            log("a.b.c", logging.DEBUG)
            log("a.b.c", logging.ERROR)
        assert caught.followed == ["a.b.c 10", "a.b.c 40"] * 2
        assert [each.texts for each in handlers.values()] == [["a.b.c 40"] * 2] * 2
        caught.want(0, {})
        assert not any(each.filters for each in handlers.values())
    finally:
        for name, handler in handlers.items():
            logging.getLogger(name).removeHandler(handler)


def test_records_of_tasks_and_followed_ones_are_taken_apart(caught, own):
    caught.want(logging.INFO, {"a": logging.DEBUG})
    log("other")
    caught.is_wanted = True
    log("a", logging.DEBUG)
    log("a")
    log("other")
    assert caught.of_tasks == ["a 20", "other 20"]
    assert caught.followed == ["a 10", "a 20"]


def handler_of_rich():
    return RichHandler(
        console=Console(stderr=True), show_time=False, show_level=False, show_path=False
    )


@pytest.mark.parametrize("make", [logging.StreamHandler, handler_of_rich])
def test_a_worker_that_shares_its_terminal_does_not_write_what_it_sends_there(own, capsys, make):
    caught, handler = Caught(keeps=False), make()
    logging.getLogger().addHandler(handler)
    try:
        caught.want(logging.INFO, {"a": logging.ERROR})
        log("a", logging.ERROR)
        log("a", logging.WARNING)
        caught.is_wanted = True
        log("other", logging.ERROR)
        caught.want(0, {})
        log("a", logging.CRITICAL)
    finally:
        logging.getLogger().removeHandler(handler)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rstrip() for line in lines] == ["a 30", "a 50"]  # rich fills its lines
    assert (caught.followed, caught.of_tasks) == (["a 40"], ["other 40"])


def test_files_and_the_ring_have_what_a_worker_sends_and_its_terminal_does_not_show(own, tmp_path):
    caught, ring = Caught(keeps=False), LogRing()
    file = logging.FileHandler(tmp_path / "log")
    logging.getLogger().addHandler(ring)
    logging.getLogger("a").addHandler(file)
    try:
        caught.want(logging.INFO, {"a": logging.INFO})
        log("a", logging.ERROR)
        log("a")  # which they would not have without us
        caught.is_wanted = True
        log("other", logging.ERROR)
        caught.want(0, {})
    finally:
        logging.getLogger().removeHandler(ring)
        logging.getLogger("a").removeHandler(file)
        file.close()
    assert (tmp_path / "log").read_text().splitlines() == ["a 40"]
    assert [row[3] for row in ring.page(None, "")[0]["records"]] == ["a 40", "other 40"]
    assert own.texts == ["a 40", "other 40"]
    assert (caught.followed, caught.of_tasks) == (["a 40", "a 20"], ["other 40"])


def test_weft_s_own_records_and_those_that_came_from_workers_are_not_caught(caught, own):
    caught.want(logging.INFO, {"": logging.INFO})
    logging.getLogger("weft.worker").error("own")
    root = logging.getLogger()
    root.handle(logging.makeLogRecord({"name": "x", "levelno": 40, "weft_worker": "w"}))
    assert caught.followed == []


def test_a_record_that_cannot_be_taken_does_not_reach_the_code_that_logs(own, capsys):
    def fails(_record):
        raise ZeroDivisionError

    catcher = RecordCatcher(fails, fails, lambda: False, True)
    catcher.want(0, {"a": logging.INFO})
    log("a")
    catcher.want(0, {})
    assert "ZeroDivisionError" in capsys.readouterr().err
