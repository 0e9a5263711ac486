"""Records of followed loggers, as they arrive in a program with one client, or several."""

from __future__ import annotations

import logging
import threading

import pytest

from weft.client.display.following import LOOK_S, FollowedLoggers
from weft.client.display.output import TaskOutputs
from weft.protocol.values.log_records import packed
from weft.protocol.wire import messages as m
from weft.protocol.wire.payload import Payload


def blob(text="text", **more):
    return packed(logging.makeLogRecord({"msg": text, **more}), "k")


def records(*rows, worker="w"):
    return m.LogRecords(
        names=[name for name, _, _ in rows],
        levels=[level for _, level, _ in rows],
        dropped=[what if isinstance(what, int) else 0 for _, _, what in rows],
        records=[None if isinstance(what, int) else what for _, _, what in rows],
        worker=worker,
    )


def lines(*clients, text="line"):
    n = len(clients)
    columns = {"keys": ["k"] * n, "levels": [m.STDOUT] * n, "names": [""] * n, "texts": [text] * n}
    return m.TaskOutput(clients=[*clients], worker="w", **columns)


@pytest.fixture
def outputs():
    """Return a function that makes the outputs of clients of one scheduler."""
    made = []

    def make(**options):
        made.append(TaskOutputs(**options))
        made[-1].place = lambda: 7
        return made[-1]

    yield make
    for each in made:
        each.place = int


def show(outputs, *messages):
    outputs._waiting.extend((message, outputs._rows_of(message)) for message in messages)
    outputs.show()


def test_records_are_handled_by_the_logger_of_their_name(outputs, caplog):
    mine = outputs()
    mine.following.follow("lib", logging.INFO)
    with caplog.at_level(logging.INFO, "lib"):
        show(
            mine,
            records(
                ("lib", 20, blob("one")),
                ("lib.sub", 30, Payload(blob("two"), ())),
                ("lib", 10, blob("below the level that is wanted")),
                ("other", 50, blob("not followed")),
            ),
        )
    found = [(r.name, r.levelno, r.getMessage(), r.weft_worker) for r in caplog.records]
    assert found == [("lib", 20, "one", "w"), ("lib.sub", 30, "two", "w")]


def test_the_logger_of_this_program_decides_what_it_lets_pass(outputs, caplog):
    mine = outputs()
    mine.following.follow("lib", logging.DEBUG)
    with caplog.at_level(logging.ERROR, "lib"):
        show(mine, records(("lib", 20, blob()), ("lib", 40, blob())))
    assert [r.levelno for r in caplog.records] == [40]


def test_records_that_were_left_out_are_counted(outputs, caplog):
    mine = outputs()
    mine.following.follow("", logging.INFO)
    show(mine, records(("lib", 20, 5), ("x", 20, 2)), records(("", 0, 30), worker=""))
    (record,) = caplog.records
    assert "left out, because there were too many per second: 7 of w, 30 of all" in record.message
    caplog.clear()
    show(mine, *[records(("lib", 20, 1), worker=f"w{i}") for i in range(9)])
    assert "1 of w4, and of 4 other workers." in caplog.text


def test_a_record_that_cannot_be_read_and_a_filter_that_raises_are_logged(outputs, caplog):
    mine = outputs()
    mine.following.follow("", logging.INFO)

    def fails(_record):
        raise ZeroDivisionError

    logger = logging.getLogger("failing")
    logger.addFilter(fails)
    try:
        show(mine, records(("failing", 40, blob()), ("lib", 40, b"\xc1"), ("lib", 40, blob("ok"))))
    finally:
        logger.removeFilter(fails)
    texts = [record.message for record in caplog.records]
    assert texts == [
        "a record of logger 'failing' cannot be handled",
        "a record of logger 'lib' cannot be handled",
        "ok",
    ]


def test_levels_follow_those_of_the_program_unless_one_is_given():
    following = FollowedLoggers()
    following.follow("lib", logging.NOTSET)
    following.follow("other", logging.DEBUG)
    logger = logging.getLogger("lib")
    logger.setLevel(logging.ERROR)
    try:
        assert following.wanted() == {"lib": logging.ERROR, "other": logging.DEBUG}
    finally:
        logger.setLevel(logging.NOTSET)
    assert following.wanted()["lib"] == logging.getLogger().getEffectiveLevel()


def test_levels_of_the_program_are_looked_at_once_in_a_while_and_own_wishes_count_at_once():
    following = FollowedLoggers()
    assert not following.has_changed({}, 0.0)
    following.follow("lib", logging.NOTSET)
    assert following.has_changed({}, 0.0)
    sent = following.wanted()
    assert not following.has_changed(sent, 1.0)
    logger = logging.getLogger("lib")
    logger.setLevel(logging.ERROR)
    try:
        assert not following.has_changed(sent, 1.0 + LOOK_S / 2)  # it does not look
        assert following.has_changed(sent, 1.0 + LOOK_S)
        assert following.has_changed(sent, 1.0 + LOOK_S)  # until it is sent
        sent = following.wanted()
        assert not following.has_changed(sent, 2.0)
    finally:
        logger.setLevel(logging.NOTSET)
    following.follow("other", logging.DEBUG)
    assert following.has_changed(sent, 2.0)
    sent = following.wanted()
    assert not following.has_changed(sent, 2.0)
    following.end("other")
    following.end("lib")
    assert following.has_changed(sent, 2.0)
    assert not following.has_changed({}, 2.0)


def test_loggers_have_a_limit_and_an_unknown_one_is_not_ended():
    following = FollowedLoggers()
    for i in range(m.MAX_LOGGERS):
        following.follow(f"l{i}", 10)
    following.follow("l0", 20)
    with pytest.raises(ValueError, match="100 loggers, which is the limit"):
        following.follow("one more", 10)
    with pytest.raises(ValueError, match="does not forward the records of logger 'one more'"):
        following.end("one more")
    with pytest.raises(ValueError, match="of the root logger"):
        following.end("")


def test_followed_loggers_are_stated_once_and_again_in_each_session(outputs):
    mine = outputs(forward_output=False)
    assert mine.first_messages() == []
    mine.following.follow("lib", 20)
    assert mine.has_changed()
    wish = m.WantOutput(clients=[], level=0, loggers={"lib": 20})
    assert mine.wanted() == wish
    assert not mine.has_changed()
    assert mine.first_messages() == [wish]
    mine.following.end("lib")
    assert mine.has_changed()
    assert mine.wanted() == m.WantOutput(clients=[], level=0)
    assert not mine.has_changed()


def test_two_clients_of_a_program_show_what_both_have_got_once(outputs, capsys, caplog):
    silent, mine, other = outputs(forward_output=False), outputs(), outputs()
    elsewhere = outputs()
    elsewhere.place = lambda: 8
    mine.following.follow("lib", 20)
    other.following.follow("", 30)
    with caplog.at_level(logging.INFO, "lib"):
        for each in (silent, other, mine):
            show(each, lines(m.EVERYONE, 5), records(("lib", 30, blob("a")), ("x", 30, blob("b"))))
    shown = capsys.readouterr().out
    # Once for all clients, and in each client the line of its own task.
    assert shown.splitlines() == ["(w) line"] * 3
    assert [record.getMessage() for record in caplog.records] == ["b", "a"]
    show(elsewhere, lines(m.EVERYONE))
    mine.place = int  # it has lost its connection
    show(other, lines(m.EVERYONE))
    assert capsys.readouterr().out.splitlines() == ["(w) line"] * 2


def test_a_record_that_is_followed_is_not_shown_as_a_line_of_a_task_too(outputs, caplog):
    mine = outputs(forward_output=True)
    mine.following.follow("lib", 30)
    message = m.TaskOutput(
        clients=[1, 1], keys=["k"] * 2, levels=[30, 30], names=["lib", "x"], texts=["1", "2"]
    )
    show(mine, message)
    assert [record.name for record in caplog.records] == ["x"]


def test_a_look_waits_for_the_thread_that_shows_lines_already(outputs, caplog):
    mine = outputs()
    mine.following.follow("lib", logging.INFO)
    begun, go = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record):
            begun.set()
            assert go.wait(30)

    handler = Slow()
    logging.getLogger("lib").addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "lib"):
            message = records(("lib", 20, blob("slow")))
            thread = threading.Thread(target=show, args=(mine, message))
            thread.start()
            assert begun.wait(30)
            assert mine.is_waiting  # though the message was taken out
            go.set()
            mine.show()
            assert not mine.is_waiting
            assert [record.getMessage() for record in caplog.records] == ["slow"]
            thread.join()
    finally:
        logging.getLogger("lib").removeHandler(handler)
