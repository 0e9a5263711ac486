"""Attacks by what serves operation: the output of tasks, orders to retire workers, their order.

The same cluster and the same proofs as in `test_attacks`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.attack_kit import (
    Attacker,
    Cluster,
    Registration,
    altered,
    attacked_cluster,
    client,
    submit,
    supervisor,
    worker,
)
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level, lowered
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role
from weft.scheduler.core.leaving.retiring import MAX_WORKERS
from weft.scheduler.core.output.output import MAX_LINES
from weft.scheduler.core.output.wishes import MAX_CHANGES

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

cluster = attacked_cluster


def lines(n: int = 1, number: int = 1, text: str = "x", level: int = m.STDOUT) -> m.TaskOutput:
    return m.TaskOutput(
        clients=[number] * n, keys=["k"] * n, levels=[level] * n, names=[""] * n, texts=[text] * n
    )


def retire(**arguments: Any) -> m.Ask:
    return m.Ask(request=1, name="retire", arguments=arguments)


def times(**columns: Any) -> m.AttemptTimes:
    row = {"attempts": [1], "ended_us": [1], "durations_us": [1], "threads": [0], "nbytes": [1]}
    return m.AttemptTimes(**{**row, "types": ["int"], **columns})


def want(level: int = 10) -> m.WantOutput:
    return m.WantOutput(clients=[], level=level)


def follow(*loggers: str, level: int = 10) -> m.WantOutput:
    return m.WantOutput(clients=[], level=0, loggers=dict.fromkeys(loggers, level))


def records(n: int = 1, name: str = "lib", record: bytes | None = b"x") -> m.LogRecords:
    dropped = 0 if record else 2**62
    return m.LogRecords(
        names=[name] * n, levels=[20] * n, dropped=[dropped] * n, records=[record] * n
    )


LEAVE, RETIRED = m.LeaveCluster(reason="mine"), m.WorkersRetired(worker_ids=["x"])


def hold() -> m.HoldCopies:
    return m.HoldCopies(keys=["x"], attempts=[1], nbytes=[1], holders=[["tcp://127.0.0.1:1"]])


REGISTRATIONS: dict[Role, Registration] = {
    Role.CLIENT: client,
    # It comes from an earlier scheduler: without its inventory it gets no tasks to lose.
    Role.WORKER: lambda: worker(last_epoch=1),
    Role.SUPERVISOR: supervisor,
}
RENEW, SET_UP = (
    m.RenewWorkers(request=1),
    m.SetUpOnSupervisor(request=1, plugin="x", name="x", blobs=[b"x"]),
)
TEAR_DOWN, KEPT = m.TearDownOnSupervisor(request=1, plugin="x"), m.PluginsKept(plugins=[])
WRONG_ROLES = [
    *((role, order) for role in REGISTRATIONS for order in (RENEW, SET_UP, TEAR_DOWN, KEPT)),
    (Role.CLIENT, lines()),
    (Role.CLIENT, records()),
    (Role.CLIENT, times()),
    (Role.CLIENT, m.RecordTimes(on=True)),
    (Role.WORKER, m.RecordTimes(on=True)),
    (Role.CLIENT, LEAVE),
    (Role.CLIENT, RETIRED),
    (Role.CLIENT, hold()),
    (Role.WORKER, want()),
    (Role.WORKER, LEAVE),
    (Role.WORKER, RETIRED),
    (Role.WORKER, hold()),
    (Role.WORKER, retire(order="o", n=1)),
    (Role.SUPERVISOR, lines()),
    (Role.SUPERVISOR, records()),
    (Role.SUPERVISOR, times()),
    (Role.SUPERVISOR, want()),
    (Role.SUPERVISOR, LEAVE),
    (Role.SUPERVISOR, RETIRED),
    (Role.SUPERVISOR, hold()),
    (Role.SUPERVISOR, retire(order="o", n=1)),
]


@pytest.mark.parametrize(
    ("role", "message"), WRONG_ROLES, ids=[f"{r.name}-{type(x).__name__}" for r, x in WRONG_ROLES]
)
def test_message_of_another_role_closes_its_connection(
    cluster: Cluster, role: Role, message: Message
) -> None:
    with Attacker(cluster, role) as attacker:
        attacker.register(REGISTRATIONS[role]())
        attacker.say(message)
        attacker.is_hung_up()
        cluster.check(f"a {role.name.lower()} may not send {type(message).__name__}")


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (Role.WORKER, lines()),
        (Role.WORKER, records()),
        (Role.CLIENT, want()),
        (Role.SUPERVISOR, RETIRED),
    ],
    ids=["lines", "records", "want", "retired"],
)
def test_message_before_registration_closes_its_connection(
    cluster: Cluster, role: Role, message: Message
) -> None:
    with Attacker(cluster, role) as attacker:
        attacker.say(message)
        attacker.is_hung_up()
        cluster.check(f"{type(message).__name__} before registration")


GARBAGE: dict[str, tuple[Role, bytes, str]] = {
    "unequal columns": (Role.WORKER, altered(lines(2), texts=["x"]), "TaskOutput.texts: 1 items"),
    "client is text": (Role.WORKER, altered(lines(), clients=["1"]), "TaskOutput.clients"),
    "text is bytes": (Role.WORKER, altered(lines(), texts=[b"x"]), "TaskOutput.texts"),
    "level below zero": (Role.CLIENT, altered(want(), level=-1), "WantOutput.level"),
    "level is text": (Role.CLIENT, altered(want(), level="all"), "WantOutput.level"),
    "loggers are no map": (Role.CLIENT, altered(follow(), loggers=["a"]), "WantOutput.loggers"),
    "records are unequal": (Role.WORKER, altered(records(2), records=[]), "LogRecords.records"),
    "a record is text": (Role.WORKER, altered(records(), records=["x"]), "LogRecords.records"),
    "copies are unequal columns": (Role.CLIENT, altered(hold(), nbytes=[]), "HoldCopies.nbytes"),
    "times are unequal columns": (Role.WORKER, altered(times(), failed=[1, 0]), "AttemptTimes.f"),
    "time below zero": (Role.WORKER, altered(times(), ended_us=[-1]), "AttemptTimes.ended_us"),
    "order is no map": (Role.CLIENT, altered(retire(), arguments=[1]), "Ask.arguments"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_its_connection(cluster: Cluster, name: str) -> None:
    role, frame, line = GARBAGE[name]
    with Attacker(cluster, role) as attacker:
        attacker.send(frame)
        attacker.is_hung_up()
        cluster.check(line)


def test_viewer_may_neither_retire_nor_see_who_would_leave_nor_want_output(
    cluster: Cluster,
) -> None:
    token = lowered(cluster.token, Level.VIEW)
    n_before = cluster.metrics()["denied_total"]
    asked = [retire(order="o", n=1), m.Ask(request=1, name="leaving_order"), want()]
    with Attacker(cluster, Role.VIEWER, token=token) as attacker:
        for message in asked:
            attacker.say(message)
            denied = attacker.hear(m.Denied)
            assert isinstance(denied, m.Denied)
            assert (denied.needed, denied.level) == ("client", "view")
        cluster.check()
        assert cluster.metrics()["denied_total"] == n_before + len(asked)


def test_viewer_orders_no_copies_and_senseless_orders_are_refused(cluster: Cluster) -> None:
    order = m.Ask(request=1, name="replicate", arguments={"keys": ["x"]})
    token = lowered(cluster.token, Level.VIEW)
    with Attacker(cluster, Role.VIEWER, token=token) as attacker:
        attacker.say(order)
        denied = attacker.hear(m.Denied)
        assert isinstance(denied, m.Denied)
        assert (denied.needed, denied.level) == ("worker", "view")
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client(name="orders"))
        for arguments in ({}, {"keys": [1]}, {"keys": ["x"] * 2000}, {"keys": [], "n": 2**62}):
            attacker.say(m.Ask(request=1, name="replicate", arguments=arguments))
            attacker.hear(m.AskFailed)
        attacker.say(order)
        answer = attacker.hear(m.Answer)
        assert isinstance(answer, m.Answer)
        assert answer.info == {"keys": [], "n_copies": []}
        attacker.leave()
    cluster.check()


def test_lines_of_a_worker_for_clients_that_want_none_or_never_were_go_nowhere(
    cluster: Cluster,
) -> None:
    with (
        Attacker(cluster, Role.CLIENT) as reader,
        Attacker(cluster, Role.WORKER) as attacker,
    ):
        reader.register(client(name="reader"))
        attacker.register(worker())
        for number in (1, 2, 3, 2**62):
            attacker.say(lines(50_000, number))
        attacker.say(m.Heartbeat())
        attacker.hear(m.Heartbeat)
        reader.say(m.Ask(request=1, name="clients"))
        reader.hear(m.Answer)
        assert not [x for x in reader.heard if isinstance(x, m.TaskOutput)]
        attacker.leave()
        reader.leave()
    cluster.check()


def test_floods_of_records_and_of_wishes_reach_the_others_as_a_few(cluster: Cluster) -> None:
    with (
        Attacker(cluster, Role.CLIENT) as reader,
        Attacker(cluster, Role.CLIENT) as other,
        Attacker(cluster, Role.WORKER) as attacker,
    ):
        reader.register(client(name="reader"))
        other.register(client(name="other"))
        attacker.register(worker())
        names = [f"{i}.{'x' * 60_000}" for i in range(200)]
        for n in range(500):
            other.say(follow("lib" if n % 2 else "other", level=2**62))
        other.say(follow(*names))
        reader.say(follow("lib", ""))
        wanted = attacker.hear(m.WantOutput)
        while "" not in wanted.loggers:
            wanted = attacker.hear(m.WantOutput)
        assert max(map(len, wanted.loggers)) <= m.MAX_LOGGER_CHARS
        assert sum(isinstance(x, m.WantOutput) for x in attacker.heard) <= 2 * MAX_CHANGES
        for message in (
            records(50_000),
            records(10, "." * 60_000),
            records(10, "lib", b"y" * (1 << 20)),
            records(10, "lib", None),
        ):
            attacker.say(message)
        n_shown = n_dropped = 0
        while n_dropped < 10**15:  # the last ones say so
            message = reader.hear(m.LogRecords)
            n_shown += message.dropped.count(0)
            n_dropped += sum(message.dropped)
        assert n_shown <= MAX_LINES
        for attacking in (attacker, other, reader):
            attacking.leave()
    cluster.check()


@pytest.mark.parametrize("is_for_all", [False, True])
def test_flood_of_lines_reaches_a_client_as_a_few_and_their_number(
    cluster: Cluster, is_for_all: bool
) -> None:
    with (
        Attacker(cluster, Role.CLIENT) as reader,
        Attacker(cluster, Role.WORKER) as attacker,
    ):
        reader.register(client(name="reader"))
        reader.say(want(2**62))
        # With room for the call beside all those of the healthy client, which come here, too.
        attacker.register(worker(resources={"flood": 1.0}, nthreads=1000))
        wanted = attacker.hear(m.WantOutput)
        assert isinstance(wanted, m.WantOutput)
        attacker.say(lines(100, wanted.clients[0]), lines(100, m.EVERYONE))  # without a task
        reader.say(submit(keys=["k"], options=[{"resources": {"flood": 1.0}}]))
        keys: list[str] = []
        while "k" not in keys:
            assigned = attacker.hear(m.AssignTasks)
            assert isinstance(assigned, m.AssignTasks)
            keys = assigned.keys
        assert not [x for x in reader.heard if isinstance(x, m.TaskOutput)]
        (number,) = [m.EVERYONE] if is_for_all else wanted.clients
        n_sent = 0
        for text in ("x", "\x1b[31m\n" * 1000, "y" * 4_000):
            n = 100_000 if len(text) == 1 else 10
            attacker.say(lines(n, number, text))
            n_sent += n
        attacker.say(lines(1, number, "9" * 1000, m.DROPPED_LINES))
        n_shown = n_dropped = 0
        while n_shown + n_dropped < n_sent:
            message = reader.hear(m.TaskOutput)
            assert isinstance(message, m.TaskOutput)
            for level, text in zip(message.levels, message.texts, strict=True):
                if level == m.DROPPED_LINES:
                    n_dropped += int(text) if len(text) < 20 else 0
                else:
                    n_shown += 1
        assert n_shown <= MAX_LINES
        attacker.leave()
        reader.leave()
    cluster.check()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "order= is"),
        ({"order": 7}, "order= is"),
        ({"order": "o" * 10_000, "n": 1}, "order= is"),
        ({"order": "o"}, "give the workers that leave"),
        ({"order": "o", "n": -1}, "n= is a whole number"),
        ({"order": "o", "n": True}, "n= is a whole number"),
        ({"order": "o", "keep": "all"}, "keep= is a whole number"),
        ({"order": "o", "n": 1, "keep": 1}, "give one of them"),
        ({"order": "o", "workers": "x"}, "list of the ids"),
        ({"order": "o", "workers": [["x"]]}, "list of the ids"),
        ({"order": "o", "workers": ["x"] * (MAX_WORKERS + 1)}, "list of the ids"),
    ],
)
def test_order_that_makes_no_sense_retires_nobody(
    cluster: Cluster, arguments: dict[str, Any], text: str
) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.say(retire(**arguments))
        failed = attacker.hear(m.AskFailed)
        assert isinstance(failed, m.AskFailed)
        assert text in failed.text
        attacker.leave()
    cluster.check()
    assert cluster.metrics()["workers"] == {
        "running": 2,
        "paused": 0,
        "blocked": 0,
        "leaving": 0,
        "away": 0,
    }


def test_order_for_workers_that_never_were_is_done_at_once(cluster: Cluster) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        for i in range(300):  # more than are kept
            attacker.say(retire(order=f"o{i}", workers=["forged", "\n\x1b[31m", "f" * 1000]))
            answer = attacker.hear(m.Answer)
            assert isinstance(answer, m.Answer)
            assert answer.info == {"workers": {}}
        attacker.leave()
    cluster.check()
    assert cluster.metrics()["workers"]["running"] == 2


def test_worker_that_does_not_leave_when_retired_is_counted_as_leaving_until_it_goes(
    cluster: Cluster,
) -> None:
    with Attacker(cluster, Role.CLIENT) as boss, Attacker(cluster, Role.WORKER) as attacker:
        boss.register(client())
        hello = worker(name="stubborn")
        attacker.register(hello)
        boss.say(retire(order="away with it", workers=[hello.worker_id]))
        attacker.hear(m.LeaveCluster)
        assert cluster.metrics()["workers"]["leaving"] == 1
        # It is a worker still, and may be wrong about what it is to do.
        attacker.say(m.WorkerLeaving(reason="x" * 1000), m.WorkerLeaving(reason="again"), lines())
        attacker.leave()
        answer = boss.hear(m.Answer)
        assert isinstance(answer, m.Answer)
        ((end,),) = [answer.info["workers"].values()]
        assert (end["name"], end["end"]) == ("stubborn", "left")
        boss.leave()
    cluster.check()


def test_floods_of_questions_for_the_word_to_go_are_answered_once_and_hold_nobody_up(
    cluster: Cluster,
) -> None:
    asked = [m.AskToLeave(request=number, left_ms=2**62) for number in range(1, 50_001)]
    with Attacker(cluster, Role.WORKER) as stays, Attacker(cluster, Role.WORKER) as leaves:
        stays.register(worker(name="stays"))
        stays.say(*asked, m.Heartbeat())
        stays.hear(m.Heartbeat)
        leaves.register(worker(name="leaves"))
        leaves.say(m.WorkerLeaving(reason="because"), *asked, m.Heartbeat())
        leaves.hear(m.Heartbeat)
        assert not [x for x in stays.heard if isinstance(x, m.MayLeave)]
        assert sum(isinstance(x, m.MayLeave) for x in leaves.heard) == 1
        assert cluster.metrics()["workers"]["leaving"] == 1
        stays.leave()
        leaves.leave()
    cluster.check()


def test_client_that_asks_for_the_word_to_go_is_hung_up(cluster: Cluster) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.say(m.AskToLeave(request=1))
        attacker.is_hung_up()
    cluster.check("AskToLeave")
