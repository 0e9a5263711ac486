"""What a client has set, for a scheduler that is started again."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Bench, Listener
from weft.client.core.events import ClientClosing, Disconnected, Warn
from weft.client.core.features import remembered
from weft.client.core.features.coordination import AnswerTaken, CallAbandoned, ObjectCall
from weft.client.core.features.remembered import remembered_of
from weft.protocol.wire.messages import Denied, Operate, Operated, Resubmitted
from weft.protocol.wire.messages import coordination as h


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    assert bench.connect(1) == []
    return bench


SETTINGS = {
    h.VARIABLE: ("v", "set", {}, [b"value"], {}),
    h.EVENT: ("e", "set", {}, [], {}),
    h.DATASET: (
        "datasets",
        "publish",
        {"dataset": "d", "override": False},
        [b"value"],
        {"dataset": "d"},
    ),
    h.METADATA: ("metadata", "set", {"path": ["a"], "value": 1}, [], {"path": ["a"], "value": 1}),
}


def do(bench, kind, name, operation, arguments=(), values=(), **info):
    """Let a call be done."""
    watcher = Listener(wants_data=False)
    call = ObjectCall(
        watcher, kind, name, operation, dict(arguments), [*values], ["k"] if values else []
    )
    bench.do(call)
    problem = info.pop("problem", "")
    bench.hear(Operated(request=call.request, info=info, problem=problem))


def put(bench, kind, number, **info):
    name, operation, arguments, values, _ = SETTINGS[kind]
    do(bench, kind, name, operation, {**arguments, "timeout": 5.0}, values, number=number, **info)


def restarted(bench, epoch=2):
    """Let the scheduler be started again; return what is stated, and what else is left."""
    bench.handle(Disconnected())
    messages, actions = bench.handle_connected(epoch=epoch)
    stated = [x for x in messages.of(Operate) if x.operation == "restate"]
    return stated, actions


def answer(bench, stated, **more):
    """Let what was stated be answered; return the warnings."""
    actions = bench.acted_on(*(Operated(request=x.request, **more) for x in stated))
    return [x.text for x in actions.of(Warn)]


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_are_stated_to_a_new_scheduler_before_the_client_is_complete(bench, kind):
    put(bench, kind, 7)
    bench.handle(Disconnected())
    messages = bench.connect(2)
    (stated,) = [x for x in messages.of(Operate) if x.operation == "restate"]
    name, _, _, values, arguments = SETTINGS[kind]
    assert (stated.kind, stated.name) == (kind, name)
    assert stated.arguments == {**arguments, "number": 7}
    assert (stated.values, stated.keys) == (values, ["k"] if values else [])
    assert isinstance(messages[-1], Resubmitted)


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_that_do_not_hold_any_more_are_not_stated(bench, kind):
    put(bench, kind, 7)
    put(bench, kind, 9, superseded=[7])
    assert [x.arguments["number"] for x in restarted(bench)[0]] == [9]
    bench.hear(Operated(request=0, info={h.SUPERSEDED: [9, 10]}))
    assert restarted(bench, 3) == ([], [])
    assert remembered_of(bench.core).nbytes == 0


def test_a_refused_setting_is_not_stated(bench):
    do(bench, h.VARIABLE, "v", "set", {}, [b"1"], problem=h.TOO_LARGE, number=7)
    assert restarted(bench) == ([], [])


def test_settings_are_stated_in_their_order_each_time_until_they_are_answered(bench):
    put(bench, h.EVENT, 9)
    put(bench, h.VARIABLE, 7)
    stated, _ = restarted(bench)
    assert [x.arguments["number"] for x in stated] == [7, 9]
    assert answer(bench, stated[:1]) == []
    # The connection breaks: the same scheduler is asked what holds of those that it has.
    bench.handle(Disconnected())
    resume, again, _ = bench.connect(2)
    assert resume.arguments == {"pending": [], "set": [7]}
    assert again.arguments == {"number": 9}
    answer(bench, [again])
    assert [x.arguments["number"] for x in restarted(bench, 3)[0]] == [7, 9]


def test_the_same_scheduler_has_all_that_was_set(bench):
    put(bench, h.VARIABLE, 7)
    bench.handle(Disconnected())
    resume, _ = bench.connect(1)
    assert resume.arguments == {"pending": [], "set": [7]}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (h.VARIABLE, "variable 'v'"),
        (h.EVENT, "event 'e'"),
        (h.DATASET, "dataset 'd'"),
        (h.METADATA, "metadata ['a']"),
    ],
)
def test_a_setting_that_the_new_scheduler_refuses_is_reported_once(bench, kind, what):
    put(bench, kind, 7)
    stated, actions = restarted(bench)
    assert actions == []
    (line,) = answer(bench, stated, problem=h.KEY_LOST, text="why")
    assert line.startswith(f"{what} was lost with the scheduler")
    assert line.endswith("why")
    assert restarted(bench, 3) == ([], [])


def test_a_client_that_may_not_state_its_settings_any_more_reports_them(bench):
    put(bench, h.EVENT, 7)
    (stated,), _ = restarted(bench)
    actions = bench.acted_on(Denied(request=stated.request, needed="client", level="view"))
    assert [type(x) for x in actions] == [Warn]


def test_a_setting_that_another_client_has_made_later_is_forgotten_without_a_word(bench):
    put(bench, h.VARIABLE, 7)
    stated, _ = restarted(bench)
    assert answer(bench, stated, info={h.SUPERSEDED: [7]}) == []
    assert restarted(bench, 3) == ([], [])


# --- What cannot be stated ------------------------------------------------------------------------


def take(bench, name, operation, n, end=AnswerTaken):
    """Let values of a queue be taken by a caller, or given back."""
    call = ObjectCall(Listener(wants_data=False), h.QUEUE, name, operation, {"number": n})
    bench.do(call)
    bench.hear(Operated(request=call.request, values=[b"1"] * n, keys=[[]] * n))
    bench.do(end(call))


def queue_lines(*names_and_more):
    return [
        f"queue {name!r}: what it held was lost with the scheduler, which was started again{more}"
        for name, more in names_and_more
    ]


def test_lost_queues_are_reported_once_to_those_that_have_put_or_wait(bench):
    for _ in range(3):
        do(bench, h.QUEUE, "q", "put", {}, [b"1"])
    do(bench, h.QUEUE, "one", "put", {}, [b"1"])
    do(bench, h.QUEUE, "closed", "put", {}, [b"1"])
    do(bench, h.QUEUE, "closed", "close")
    do(bench, h.QUEUE, "refused", "put", {}, [b"1"], problem=h.LATE)
    do(bench, h.QUEUE, "read", "get")
    bench.do(ObjectCall(Listener(wants_data=False), h.QUEUE, "w", "get", {"number": 1}))
    stated, actions = restarted(bench)
    assert stated == []
    assert [x.text for x in actions] == queue_lines(
        ("q", "; this client had put 3 values there"),
        ("one", "; this client had put 1 value there"),
        ("w", ""),
    )
    # It waits still; of the other ones nothing was lost with the second scheduler.
    assert [x.text for x in restarted(bench, 3)[1]] == queue_lines(("w", ""))


def test_queues_that_are_empty_for_all_that_this_client_knows_are_not_reported(bench):
    for name in ("taken", "drained", "counted", "left", "given back"):
        for _ in range(2):
            do(bench, h.QUEUE, name, "put", {}, [b"1"])
    for _ in range(2):
        take(bench, "taken", "get", 1)
    take(bench, "drained", "drain", 2)
    do(bench, h.QUEUE, "counted", "count", n=0)
    do(bench, h.QUEUE, "left", "count", n=1)
    take(bench, "left", "get", 1)
    take(bench, "given back", "get", 2, end=CallAbandoned)
    do(bench, h.QUEUE, "left", "count", problem=h.CLOSED)
    had_put = "; this client had put 2 values there"
    assert [x.text for x in restarted(bench)[1]] == queue_lines(
        ("left", f"{had_put}, and taken 1 out"), ("given back", had_put)
    )


def test_a_lost_connection_to_the_same_scheduler_loses_no_queue(bench):
    do(bench, h.QUEUE, "q", "put", {}, [b"1"])
    assert restarted(bench, 1)[1] == []


@pytest.mark.parametrize(("kind", "operation"), [(h.VARIABLE, "get"), (h.EVENT, "wait")])
def test_waits_for_what_others_set_are_reported_after_a_restart(bench, kind, operation):
    def wait(name):
        call = ObjectCall(Listener(wants_data=False), kind, name, operation, {}, awaits_set=True)
        bench.do(call)

    wait("x")
    wait("x")
    put(bench, h.VARIABLE, 7)
    put(bench, h.EVENT, 8)
    for name in ("v", "e"):
        wait(name)  # the answer to that of its own kind is on its way
    stated, _ = restarted(bench)
    unset = "e" if kind == h.VARIABLE else "v"
    assert answer(bench, stated) == [
        f"{kind} {name!r}: this client waits for it; the scheduler was started again, and what "
        "clients that are gone had set is lost"
        for name in ("x", unset)
    ]


def test_late_answers_are_known_to_come_after_a_restart(bench):
    def late():
        call = ObjectCall(Listener(wants_data=False), h.VARIABLE, "x", "get", {"timeout": 1.0})
        bench.do(call)
        bench.hear(Operated(request=call.request, problem=h.LATE))
        return call.is_after_restart

    assert not late()
    bench.handle(Disconnected())
    bench.connect(1)
    assert not late()
    restarted(bench)
    assert late()


def test_the_first_objects_are_named_and_the_others_counted(bench):
    for i in range(8):
        do(bench, h.QUEUE, f"{i}", "put", {}, [b"1"])
    put(bench, h.VARIABLE, 7)
    stated, actions = restarted(bench)
    assert actions == []  # until it is known what else is lost
    lines = answer(bench, stated, problem=h.KEY_LOST, text="why")
    assert len(lines) == remembered.MAX_LINES + 1
    assert lines[-1] == "4 more objects were lost with the scheduler, or are waited for, likewise"


def test_the_oldest_settings_are_forgotten_beyond_a_limit_and_reported(bench, monkeypatch):
    monkeypatch.setattr(remembered, "MAX_NBYTES", 1000)
    for i in range(3):
        do(bench, h.VARIABLE, f"{i}", "set", {}, [bytes(300)], number=10 + i)
    do(bench, h.VARIABLE, "3", "set", {}, [bytes(300)], number=20, superseded=[11])
    stated, _ = restarted(bench)
    assert [x.name for x in stated] == ["2", "3"]
    (line,) = answer(bench, stated)
    assert line.startswith("variable '0' was lost with the scheduler")
    assert restarted(bench, 3)[1] == []


def test_a_forgotten_setting_that_does_not_hold_any_more_is_not_reported(bench, monkeypatch):
    monkeypatch.setattr(remembered, "MAX_SETTINGS", 1)
    put(bench, h.VARIABLE, 7)
    put(bench, h.EVENT, 8)
    bench.hear(Operated(request=0, info={h.SUPERSEDED: [7]}))
    stated, actions = restarted(bench)
    assert [x.kind for x in stated] == [h.EVENT]
    assert answer(bench, stated) == actions == []


def test_nothing_is_remembered_at_the_end(bench):
    put(bench, h.VARIABLE, 7)
    bench.handle(ClientClosing())
    assert remembered_of(bench.core).settings == {}
