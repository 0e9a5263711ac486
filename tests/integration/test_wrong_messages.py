"""Registered peers that send wrong messages, to a real scheduler, which is well afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.attack_kit import (
    Attacker,
    Cluster,
    Registration,
    attacked_cluster,
    check_as_before,
    client,
    framed,
    submit,
    supervisor,
    worker,
)
from tests.leaks import wait_until
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level, lowered
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import ROLE_LEVELS, Role

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]
cluster = attacked_cluster


# --- Messages of registered peers -----------------------------------------------------------------


FORBIDDEN: dict[str, tuple[Role, Registration, list[Message], str]] = {
    "another role's": (
        Role.CLIENT,
        client,
        [m.AttemptsFinished(attempts=[1], nbytes=[1], durations_us=[1], results=[None])],
        "a client may not send AttemptsFinished",
    ),
    "the scheduler's own": (
        Role.CLIENT,
        client,
        [m.ResultsReady(keys=["k"], results=[b""])],
        "a client may not send ResultsReady",
    ),
    "registration again": (Role.CLIENT, client, [client()], "may not send RegisterClient"),
    "unknown function": (
        Role.CLIENT,
        client,
        [submit(functions=[bytes(16), b"f" * 16], function_names=["f", "g"])],
        "names a function",
    ),
    "no arguments": (Role.CLIENT, client, [submit(args=[None])], "without arguments"),
    "good before bad": (
        Role.CLIENT,
        client,
        [m.ReleaseKeys(keys=["k"]), submit(), m.GetMetrics(request=1)],
        "may not send GetMetrics",
    ),
    "submission by a worker": (
        Role.WORKER,
        worker,
        [submit()],
        "a worker may not send SubmitTasks",
    ),
    "report of what waits, by a client": (
        Role.CLIENT,
        client,
        [m.AttemptsBlocked(attempts=[1])],
        "a client may not send AttemptsBlocked",
    ),
    "end of waits, by a worker": (
        Role.WORKER,
        worker,
        [m.FailWaits(attempts=[1], texts=["x"])],
        "a worker may not send FailWaits",
    ),
    "report of what actors wait for, by a client": (
        Role.CLIENT,
        client,
        [
            m.ActorsBlocked(
                names=["a"], attempts=[1], keys=[[]], actors=[[]], calls=[[]], begun=[[]], open=[[]]
            )
        ],
        "a client may not send ActorsBlocked",
    ),
    "end of what actors wait for, by a supervisor": (
        Role.SUPERVISOR,
        supervisor,
        [m.ActorsResumed(attempts=[1])],
        "a supervisor may not send ActorsResumed",
    ),
    "results of actors taken, at the scheduler": (
        Role.CLIENT,
        client,
        [m.ActorResultsTaken(requests=[1])],
        "a client may not send ActorResultsTaken",
    ),
    "overdue attempts, by a client": (
        Role.CLIENT,
        client,
        [m.AttemptsOverdue(attempts=[1], timeouts_us=[1])],
        "a client may not send AttemptsOverdue",
    ),
    "overdue attempts without limits": (
        Role.WORKER,
        worker,
        [m.AttemptsOverdue(attempts=[1, 2], timeouts_us=[1])],
        "timeouts_us",
    ),
    "a worker that is held up, by a worker": (
        Role.WORKER,
        worker,
        [m.WorkerHeldUp(worker_id="w", attempts=[1], held_ms=[1 << 48])],
        "a worker may not send WorkerHeldUp",
    ),
    "waits with too few keys": (
        Role.WORKER,
        worker,
        [m.AttemptsBlocked(attempts=[1, 2], keys=[["a"]])],
        "keys",
    ),
    "submission by a supervisor": (
        Role.SUPERVISOR,
        supervisor,
        [submit()],
        "a supervisor may not send SubmitTasks",
    ),
}
FORBIDDEN["unknown function"][2][0].function_blobs = [b"good", None]  # type: ignore[attr-defined]


def test_clients_in_tasks_without_a_pass_or_a_running_task_submit_nothing(
    cluster: Cluster,
) -> None:
    token = lowered(cluster.token, Level.WORKER)
    hello = worker()
    with (
        Attacker(cluster, Role.WORKER, token=token) as one,
        Attacker(cluster, Role.TASK_CLIENT, token=token) as thief,
        Attacker(cluster, Role.TASK_CLIENT, token=token) as inside,
    ):
        one.say(hello)
        welcome = one.hear(m.Welcome)
        assert isinstance(welcome, m.Welcome)
        # The id of a worker is no secret; its pass is.
        thief.say(client(worker_id=hello.worker_id, task_pass="00" * 32))
        assert isinstance(thief.hear(m.Refused), m.Refused)
        thief.is_hung_up()
        inside.register(client(worker_id=hello.worker_id, task_pass=welcome.task_pass))
        for attempt in (0, 1, 1 << 40):
            inside.say(submit(options=[{"attempt": attempt}]))
            erred = inside.hear(m.KeysErred)
            assert isinstance(erred, m.KeysErred)
            assert [failure[0] for failure in erred.failures] == ["not-permitted"]
        inside.say(m.ShutdownCluster(reason="mine"))
        assert isinstance(inside.hear(m.Denied), m.Denied)
        inside.say(m.GetMetrics(request=1))
        inside.is_hung_up()
        one.numbers[:2] = welcome.epoch, welcome.session
        one.leave()  # with the tasks of the healthy client
        cluster.check("its pass is wrong", "a task client may not send GetMetrics")


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_message_causes_one_log_line_and_closes_its_connection(
    cluster: Cluster, name: str
) -> None:
    role, registration, messages, line = FORBIDDEN[name]
    with Attacker(cluster, role) as attacker:
        attacker.register(registration())
        attacker.say(*messages)
        attacker.is_hung_up()
        cluster.check(line)


@pytest.mark.parametrize(
    ("change", "line"),
    [((1, 0), "epoch"), ((0, 1), "came in session")],
    ids=["epoch", "session"],
)
def test_frame_of_another_time_is_refused(
    cluster: Cluster, change: tuple[int, int], line: str
) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.numbers[0] -= change[0]
        attacker.numbers[1] += change[1]
        attacker.say(m.Heartbeat())
        attacker.is_hung_up()
        cluster.check(line)


@pytest.mark.parametrize(
    ("role", "registration", "reason", "line"),
    [
        (
            Role.CLIENT,
            client(last_epoch=2**63 - 1, epoch_proof="é"),
            "without the proof that a scheduler of this cluster has sent",
            "without the proof that a scheduler of this cluster has sent",
        ),
        (
            Role.WORKER,
            worker(last_epoch=2**62),
            "without the proof that a scheduler of this cluster has sent",
            "claims to have seen epoch 4611686018427387904",
        ),
        (
            Role.WORKER,
            worker(facts={"python": "2\nWARNING: forged\x1b[31m.7", "host": "far\nWARNING: away"}),
            "functions pickled by one",
            "worker attacker on far?WARNING: away is refused: Python 2?WARNING: forged?[31m.7, ",
        ),
        (
            Role.WORKER,
            worker(nthreads=2**63 - 1),
            "threads are more than",
            f"worker attacker is refused: {2**63 - 1} threads are more than",
        ),
    ],
    ids=["later epoch", "worker's later epoch", "other python", "threads"],
)
def test_registration_is_refused_with_a_reason(
    cluster: Cluster, role: Role, registration: Message, reason: str, line: str
) -> None:
    # An admin would be believed: it may stop the cluster anyway.
    token = lowered(cluster.token, ROLE_LEVELS[role])
    with Attacker(cluster, role, token=token) as attacker:
        attacker.say(registration)
        refused = attacker.hear(m.Refused)
        assert isinstance(refused, m.Refused)
        assert reason in refused.reason
        attacker.is_hung_up()
        cluster.check(line)


def test_names_cannot_forge_lines(cluster: Cluster) -> None:
    evil = "x\n2020-01-01 weft.scheduler WARNING: forged\x1b[31m\u2028y"
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client(name=evil))
        with Attacker(cluster, Role.SUPERVISOR) as other:
            other.register(supervisor())
            other.say(m.WorkerExited(worker_id="\n" * 9, reason=evil * 1000, running=[1, 2**62]))
            cluster.check("ended: x?2020-01-01")
    wait_until(lambda: "client x?" in cluster.scheduler.err)
    assert cluster.complaints() == []


# --- Messages that are ignored and counted --------------------------------------------------------


def test_client_may_be_wrong_about_keys(cluster: Cluster) -> None:
    strange = ["never heard of", "\u2028\x00", "k" * 1024]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.say(
            m.ReleaseKeys(keys=strange * 1000),
            m.CancelKeys(keys=strange, force=True, reason="\n", running=True),
            m.WithdrawKeys(keys=strange * 1000, reason="\n"),
            m.ReportMissing(keys=strange, holder="tcp://nowhere:1"),
            m.FetchKeys(request=2**63 - 1, keys=strange),
            m.WantKeys(keys=strange),
        )
        data = attacker.hear(m.KeysData)
        assert isinstance(data, m.KeysData)
        assert (data.keys, data.missing) == ([], strange)
        unknown = attacker.hear(m.KeysUnknown)
        assert isinstance(unknown, m.KeysUnknown)
        assert unknown.keys == strange
        attacker.say(m.RetryKeys(request=0, keys=strange * 100))
        unknown = attacker.hear(m.KeysUnknown)
        assert isinstance(unknown, m.KeysUnknown)
        assert unknown.keys == strange
        attacker.say(m.ReleaseKeys(keys=strange), m.Ask(request=1, name="cluster"))
        attacker.hear(m.Answer)
        cluster.check()


def test_client_may_be_wrong_about_dependencies(cluster: Cluster) -> None:
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        attacker.say(submit(keys=["a", "b"], function_of=[0, 0], args=[b"", b""]))
        attacker.say(submit(keys=["itself"], dependencies=[["itself", "unknown"]]))
        erred = attacker.hear(m.KeysErred)
        assert isinstance(erred, m.KeysErred)
        assert erred.keys == ["itself"]
        attacker.leave()
    cluster.check()
    wait_until(lambda: cluster.metrics()["tasks"]["no_worker"] == 0)


def test_worker_may_be_wrong_about_attempts(cluster: Cluster) -> None:
    """Attempts that are over, those of others and those that never were; keys and relays alike."""
    n_before = cluster.metrics()["reports_stale_total"]
    never = [*range(1, 301), *range(2**62, 2**62 + 100)]
    n = len(never)
    with Attacker(cluster, Role.WORKER) as attacker:
        attacker.register(worker())
        zeros = [0] * n
        attacker.say(
            m.AttemptsFinished(attempts=never, nbytes=zeros, durations_us=zeros, results=[b""] * n),
            m.AttemptsErred(
                attempts=never, durations_us=zeros, failures=[["exception", "k"] for _ in never]
            ),
            m.AttemptsReturned(attempts=never),
            m.AttemptsWithdrawn(attempts=never, started=never),
            m.ReplicasAdded(attempts=never, keys=["never heard of"] * n),
            m.KeysMissing(keys=["never heard of"], holder="tcp://nowhere:1"),
            m.KeysData(request=2**62, keys=["k"], results=[b""], missing=["m"]),
            m.Heartbeat(next_ms=2**62),
            m.WorkerStatus(
                state="x" * 1000,
                nthreads=2**62,
                n_records=2**62,
                n_ready=2**62,
                managed_nbytes=2**62,
                resident_nbytes=2**62,
                cpu_percent=2**62,
            ),
        )
        dropped: list[int] = []
        while len(dropped) < 2 * n:
            message = attacker.hear(m.DropAttempts)
            assert isinstance(message, m.DropAttempts)
            dropped += message.attempts
        assert set(dropped) == set(never)
        assert cluster.metrics()["reports_stale_total"] == n_before + 4 * n + 1
        # It was assigned real tasks meanwhile, which are placed again when it leaves.
        attacker.leave()
    cluster.check()


def test_supervisor_may_be_wrong_about_workers(cluster: Cluster) -> None:
    with Attacker(cluster, Role.SUPERVISOR) as attacker:
        attacker.register(supervisor())
        attacker.say(m.WorkersAlive(worker_ids=["x", "x"], rss=[2**48, 0]))
        attacker.say(m.WorkersAlive(worker_ids=[], rss=[]))
        attacker.say(m.PluginDone(request=10**9, info={"failure": ["x"], "was_ready": "no"}))
        attacker.say(m.Bye(reason=""))
    cluster.check()


def test_client_may_be_wrong_about_locks_and_queues(cluster: Cluster) -> None:
    """Each call has an answer with the reason, and what an attacker held goes with it."""
    calls = [
        m.Operate(request=1, operation="climb", kind="tree", name="x"),
        m.Operate(request=2, operation="acquire", kind="lock", name="x", arguments={"lease": 5}),
        m.Operate(request=3, operation="create", kind="queue", name="x", arguments={"maxsize": -1}),
        m.Operate(request=4, operation="put", kind="queue", name="", values=[b"v"]),
        m.Operate(request=5, operation="put", kind="queue", name="x", values=[bytes(5 << 20)]),
        m.Operate(request=6, operation="set", kind="variable", name="x", values=[b"v"], keys=["?"]),
        m.Operate(request=7, operation="release", kind="lock", name="x", arguments={"lease": "1"}),
        m.Operate(request=8, operation="withdraw", arguments={"request": 10**18}),
    ]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        problems = []
        for call in calls:
            attacker.say(call)
            answer = attacker.hear(m.Operated)
            assert isinstance(answer, m.Operated)
            problems.append(answer.problem)
        attacker.say(m.Operate(request=0, operation="resume", arguments={"pending": "all"}))
        attacker.leave()
    wrong = "bad-call"
    assert problems == [wrong, wrong, wrong, wrong, "too-large", "key-lost", "not-held", ""]
    cluster.check()


def test_client_may_be_wrong_about_plugins(cluster: Cluster) -> None:
    """Each question has an answer with the reason; one that cannot be unpickled is not kept."""
    asked: list[tuple[str, dict[str, Any], list[Any]]] = [
        ("register_plugin", {}, [b"x"]),
        ("register_plugin", {"name": "x" * 1000, "plugin": "1"}, [b"x"]),
        ("register_plugin", {"name": "x", "plugin": 1}, [b"x"]),
        ("register_plugin", {"name": "x", "plugin": "1"}, []),
        ("register_plugin", {"name": "x", "plugin": "1"}, [None]),
        ("register_supervisor_plugin", {"name": "x", "plugin": "1", "restart": "yes"}, [b"x"]),
        ("register_supervisor_plugin", {"name": "x", "plugin": "1", "restart": True}, []),
        ("unregister_plugin", {"name": "none"}, []),
        ("unregister_plugin", {"name": ["x"]}, []),
    ]
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        kinds = []
        for i, (name, arguments, blobs) in enumerate(asked):
            attacker.say(m.Ask(request=i + 1, name=name, arguments=arguments, blobs=blobs))
            failed = attacker.hear(m.AskFailed)
            assert isinstance(failed, m.AskFailed)
            kinds.append(failed.kind)
        arguments = {"name": "x", "plugin": "1"}
        attacker.say(
            m.Ask(request=99, name="register_plugin", arguments=arguments, blobs=[b"no pickle"])
        )
        answer = attacker.hear(m.Answer)
        attacker.leave()
    assert {*kinds} == {"bad-argument"}
    assert isinstance(answer, m.Answer)
    assert answer.info["n_failed"] == 2
    cluster.check("plugin 'x' could not be set up on worker")


def test_worker_that_breaks_the_rules_loses_its_work_to_others(cluster: Cluster) -> None:
    def n_lost() -> int:
        return sum(cluster.metrics()["workers_lost_total"].values())

    n_before = n_lost()
    with Attacker(cluster, Role.WORKER) as attacker:
        attacker.register(worker(nthreads=4))
        attacker.hear(m.AssignTasks)
        attacker.say(submit())
        attacker.is_hung_up()
        # Its loss has no line of its own if another attacker was lost a short time ago.
        wait_until(lambda: n_lost() > n_before)
        cluster.check("a worker may not send SubmitTasks")
    assert n_lost() == n_before + 1


def test_endless_frames_do_not_delay_other_clients(cluster: Cluster) -> None:
    """A flood of valid messages, from a client that reads no answer."""
    with Attacker(cluster, Role.CLIENT) as attacker:
        attacker.register(client())
        for _ in range(200):
            frames = [
                framed(attacker.payload(m.Heartbeat(next_ms=i).to_wire())) for i in range(100)
            ]
            attacker.send(b"".join(frames))
        attacker.say(m.Ask(request=1, name="cluster"))
        attacker.hear(m.Answer)
        cluster.check()


def test_after_all_that_the_scheduler_is_as_it_was(cluster: Cluster) -> None:
    """The last one."""
    check_as_before(cluster)
