"""membership.py, liveness.py: registration, leases, silence, the size of the cluster."""

from __future__ import annotations

import random

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import Unknown
from weft.protocol.wire.roles import Role
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.core.actions import CloseConnection, LogLine
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.insight.cluster_size import FEW_WORKERS, SIZE_PAUSE_S
from weft.scheduler.core.insight.info import describe_worker
from weft.scheduler.core.insight.metrics import metrics
from weft.scheduler.core.moves.eligibility import fill_class

from ...builders import Board, assigned, graph, sent_keys


def changes(out, peer):
    return [(x.n_workers, x.nthreads) for x in out.get(peer, []) if isinstance(x, m.ClusterChanged)]


def test_a_peer_that_registers_is_welcomed_with_epoch_and_a_session_of_its_own(board):
    client, worker = board.client(), board.worker(nthreads=3)
    (welcome,) = board.out[worker]
    assert welcome == m.Welcome(epoch=7, session=2, heartbeat_ms=2000, facts={})
    assert changes(board.out, client) == [(1, 3)]


def test_a_message_before_registration_ends_the_connection(board):
    peer = board.connect(Role.CLIENT)
    board.send(peer, graph("a"))
    assert board.refused() == ["SubmitTasks before registration"]
    assert board.state.tasks == {}
    assert board.send(peer, graph("a")) == {}  # messages that were on the way are void


def test_a_role_may_not_send_messages_of_another_role(board):
    worker = board.worker()
    board.send(worker, m.WorkersAlive(worker_ids=[], rss=[]))
    assert board.refused() == ["a worker may not send WorkersAlive"]
    assert board.state.workers == {}


def test_a_second_registration_on_one_connection_ends_it(board):
    client = board.client()
    board.send(client, m.RegisterClient(client_id="x", name="x", session=1, last_epoch=0, facts={}))
    assert board.refused() == ["a client may not send RegisterClient"]


def client_of(board: Board, name: str, python: str) -> int:
    peer = board.connect(Role.CLIENT)
    board.send(
        peer,
        m.RegisterClient(
            client_id=name, name=name, session=1, last_epoch=0, facts={"python": python}
        ),
    )
    return peer


def test_the_first_worker_decides_which_python_the_cluster_has(board):
    alice, bob = client_of(board, "alice", "3.11.4"), client_of(board, "bob", "3.12.0")
    lost = client_of(board, "lost", "3.11.4")
    board.send(lost, graph("c"))
    board.close(lost)
    board.send(alice, graph("a"))
    board.send(bob, graph("b"))
    worker = board.worker(facts={"python": "3.12.1"})
    assert board.refused() == ["client alice is refused: Python 3.11, the workers have 3.12"]
    assert list(board.state.clients) == ["bob"]
    assert board.states("a", "b", "c") == ["-", "processing", "-"]
    for register in (
        lambda: board.worker("odd", facts={"python": "3.11.9"}),
        lambda: client_of(board, "alice", "3.11.4"),
    ):
        peer = register()
        (refused,) = board.out[peer]
        assert refused.is_final
        assert "Python 3.11 here, Python 3.12 on the cluster" in refused.reason
    assert list(board.state.workers) == [worker]
    assert list(board.state.clients) == ["bob"]


def test_a_first_worker_that_could_run_none_of_the_waiting_tasks_is_refused_for_now(board):
    alice = client_of(board, "alice", "3.11.4")
    board.send(alice, graph("a"))
    stray = board.worker("stray", facts={"python": "3.12.1"})
    (refused,) = board.out[stray]
    assert not refused.is_final
    assert "Python 3.12, and tasks wait for workers of another version" in refused.reason
    worker = board.worker("right", facts={"python": "3.11.2"})
    assert board.states("a") == ["processing"]
    board.finish(worker, "a")
    board.send(alice, m.ReleaseKeys(keys=["a"]))
    board.close(worker)
    board.worker("stray", facts={"python": "3.12.1"})
    assert board.refused()[-1] == ("client alice is refused: Python 3.11, the workers have 3.12")


def test_a_worker_that_leaves_does_not_decide_which_python_the_cluster_has(board):
    old = board.worker("old", facts={"python": "3.11.4"})
    board.send(old, m.WorkerLeaving(reason="stopped"))
    new = board.worker("new", facts={"python": "3.12.1"})
    assert new in board.state.workers


# -- clients --------------------------------------------------------------------------------------
def test_a_client_s_wishes_outlive_its_connection_by_the_lease():
    board = Board(client_lease_s=10.0)
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.close(client)
    board.send(worker, m.Heartbeat())
    board.tick(9.0)
    assert board.states("a") == ["processing"]
    board.tick(2.0)
    assert board.states("a") == ["-"]
    assert board.state.counters.clients_expired == 1


def test_a_client_that_is_back_in_time_is_sent_the_states_of_its_wanted_keys(board):
    client, worker = board.client("alice"), board.worker()
    board.send(client, graph("a b"))
    board.close(client)
    board.finish(worker, "a")
    client = board.client("alice")
    out = board.send(client, m.WantKeys(keys=["a", "b"]))
    assert sent_keys(out, client, m.KeysInMemory) == ["a"]
    assert sent_keys(out, client, m.KeysPending) == ["b"]
    board.tick(1000.0)
    assert sent_keys(board.out, client, m.KeysCancelled) == []
    assert board.state.counters.clients_expired == 0
    assert board.rest() == ["KeysPending", "KeysUnrunnable"]


def test_data_that_was_never_sent_to_a_client_does_not_count_as_delivered(board):
    client, worker = board.client("alice"), board.worker()
    board.send(client, graph("a"))
    board.close(client)
    board.finish(worker, "a")
    client = board.client("alice")
    board.send(client, m.WantKeys(keys=["a"]))
    out = board.close(worker)
    assert sent_keys(out, client, m.KeysPending) == ["a"]


def test_a_client_that_sends_a_goodbye_leaves_nothing_behind(board):
    client = board.client()
    board.worker()
    board.send(client, graph("a -> b"))
    board.send(client, m.Bye(reason=""))
    assert board.state.tasks == board.state.clients == {}


def test_a_client_that_is_back_before_its_old_connection_ended_has_that_one_closed(board):
    old = board.client("alice")
    board.send(old, graph("a"))
    board.client("alice")
    closed = [a for a in board.actions if isinstance(a, CloseConnection)]
    assert [(a.peer, a.is_error) for a in closed] == [(old, False)]
    assert board.send(old, m.ReleaseKeys(keys=["a"])) == {}
    assert board.states("a") == ["no_worker"]


# -- workers --------------------------------------------------------------------------------------
def test_a_worker_that_is_back_before_its_old_connection_ended_is_a_new_session(board):
    client, old = board.client(), board.worker("w")
    board.send(client, graph("a"))
    new = board.worker("w")
    assert list(board.state.workers) == [new]
    assert board.where("a") == new
    assert board.attempt("a") == 2
    assert board.close(old) == {}


def test_another_process_at_a_worker_s_address_means_that_the_worker_is_gone(board):
    client, old = board.client(), board.worker("w", worker_id="one")
    board.send(client, graph("a"))
    board.finish(old, "a", blob=None)
    new = board.worker("w", worker_id="two")
    assert list(board.state.workers) == [new]
    assert (board.where("a"), board.attempt("a")) == (new, 2)


def test_names_stay_unique(board):
    board.worker("w", worker_id="1111111", address="tcp://1")
    board.worker("w", worker_id="2222222", address="tcp://2")
    assert [ws.name for ws in board.state.workers.values()] == ["w", "w-222222"]


def test_a_worker_is_lost_only_when_its_supervisor_is_silent_too():
    board = Board(heartbeat_s=1.0)
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("a"))
    for _ in range(4):
        assert board.pass_time(MISSED_HEARTBEATS - 1) == []
        board.send(supervisor, m.WorkersAlive(worker_ids=["w1"], rss=[1]))
    assert board.where("a") == worker
    assert board.pass_time(MISSED_HEARTBEATS - 0.5) == []
    assert board.pass_time(1) == [
        "worker w and its supervisor were silent for 15 s",
        "the supervisor was silent for 15 s",
    ]
    assert board.states("a") == ["no_worker"]
    assert board.state.supervisors == {}


def test_a_supervisor_may_report_a_worker_alive_that_is_away():
    board = Board(heartbeat_s=1.0, away_s=5.0)
    supervisor = board.supervisor("sup")
    worker = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.close(worker)
    for _ in range(4):
        board.send(supervisor, m.WorkersAlive(worker_ids=["w1"], rss=[1]))
        assert worker not in board.state.seen  # its connection is over
        assert board.pass_time(MISSED_HEARTBEATS - 1) == []
    assert board.state.workers_by_id == {}


def test_a_worker_that_its_supervisor_does_not_report_alive_is_lost_alone():
    board = Board(heartbeat_s=1.0)
    supervisor = board.supervisor("sup")
    for i in (1, 2):
        board.worker(f"w{i}", worker_id=f"w{i}", supervisor_id="sup", address=f"tcp://{i}")
    refused = []
    for _ in range(MISSED_HEARTBEATS + 1):
        board.send(supervisor, m.WorkersAlive(worker_ids=["w2"], rss=[1]))
        refused += board.pass_time(1)
    assert refused == ["worker w1 and its supervisor were silent for 15 s"]
    assert list(board.state.workers_by_id) == ["w2"]


def test_the_memory_of_a_worker_that_is_too_busy_for_heartbeats_is_known_from_its_supervisor(board):
    worker, supervisor = board.worker("w", worker_id="w1"), board.supervisor("sup")
    assert describe_worker(board.state, board.state.workers[worker])["metrics"] == {}
    status = m.WorkerStatus(
        state="running",
        nthreads=1,
        n_records=4,
        n_ready=2,
        managed_nbytes=10,
        resident_nbytes=1,
        cpu_percent=99,
    )
    board.send(worker, status, m.Heartbeat())
    board.send(supervisor, m.WorkersAlive(worker_ids=["w1", "w2"], rss=[3, 4]))
    info = describe_worker(board.state, board.state.workers[worker])
    held = {"managed": 10, "spilled": 0, "rss": 3, "fetched": 0}
    assert info["metrics"] == {"tasks": 4, "ready": 2, **held, "cpu": 99}
    found = metrics(board.state)
    assert (found["workers_stored_bytes"], found["workers_resident_bytes"]) == (10, 3)


def answer(board, peer, message):
    """Send the message, and return the milliseconds until the next one of its kind."""
    (peers, (beat,)), *others = board.send(peer, message).items()
    assert (peers, type(beat), others) == (peer, m.Heartbeat, [])
    return beat.next_ms


def test_heartbeats_are_answered_with_the_time_of_the_next_one():
    board = Board(heartbeat_s=2.0)
    board.now = 100.5
    for peer in (board.worker(), board.client()):
        assert answer(board, peer, m.Heartbeat()) == 1500
    alive = m.WorkersAlive(worker_ids=[], rss=[])
    supervisor = board.supervisor("sup")
    assert answer(board, supervisor, alive) == 500  # twice as often as others
    board.now = 101.01
    assert answer(board, supervisor, alive) == 990
    board.now = 101.99  # too early by less than an eighth
    assert answer(board, supervisor, alive) == 1010


def test_a_report_of_living_workers_is_not_cut_so_that_it_is_answered_once():
    alive = m.WorkersAlive(worker_ids=["w1", "w2"], rss=[1, 2])
    assert alive.parts(1) == [alive]
    board = Board()
    supervisor = board.supervisor("sup")
    assert [type(answer) for answer in board.send(supervisor, alive)[supervisor]] == [m.Heartbeat]


def test_many_peers_send_fewer_heartbeats_and_in_groups(monkeypatch):
    monkeypatch.setattr("weft.scheduler.core.members.liveness._FEW_PEERS", 20)
    monkeypatch.setattr("weft.scheduler.core.members.liveness._GROUP", 5)
    board = Board(heartbeat_s=2.0)
    workers = [board.worker(f"w{i}", address=f"tcp://{i}") for i in range(40)]
    due = {}
    for worker in workers:
        board.now += 0.01
        next_ms = answer(board, worker, m.Heartbeat())
        assert 500 <= next_ms <= 4500
        due[worker] = round((board.now + next_ms / 1000) % 4.0, 2) % 4.0
    assert sorted(set(due.values())) == [i / 2 for i in range(8)]
    for worker in workers[:8]:
        board.now += (due[worker] - board.now) % 4.0 + 0.003
        assert answer(board, worker, m.Heartbeat()) == 3997


def test_a_scheduler_that_was_held_up_counts_no_peer_as_dead():
    """Messages of peers are still to be read: a stopped scheduler loses no peer."""
    board = Board(heartbeat_s=1.0)
    board.supervisor("sup")
    board.worker("w", worker_id="w1", supervisor_id="sup")
    board.connect(Role.CLIENT)
    assert board.pass_time(MISSED_HEARTBEATS - 2) == []
    board.hold_up(1000.0)
    assert board.refused() == []
    assert len(board.pass_time(3)) == 3


@pytest.mark.parametrize("role", [Role.WORKER, Role.CLIENT, Role.SUPERVISOR])
def test_a_peer_that_proves_the_token_and_never_registers_is_cut_off(role):
    board = Board(heartbeat_s=1.0)
    board.connect(Role.VIEWER)  # which need not
    stranger = board.connect(role)
    assert board.pass_time(MISSED_HEARTBEATS - 1) == []
    board.connect(role)
    name = role.name.lower()
    assert board.pass_time(1) == [f"the {name} did not register within 15 s"]
    assert stranger not in board.state.roles
    assert len(board.state.strangers) == 1


def test_a_client_that_is_silent_keeps_its_wanted_keys():
    """Its program is suspended, or computes in the loop of its client."""
    board = Board(heartbeat_s=1.0)
    client = board.client()
    board.send(client, graph("a"))
    assert board.pass_time(100 * MISSED_HEARTBEATS) == []
    assert board.states("a") == ["no_worker"]


def test_a_worker_that_leaves_in_order_is_no_warning(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(worker, m.Bye(reason="retired"))
    levels = [action.level for action in board.actions if isinstance(action, LogLine)]
    assert levels == ["info"]
    assert board.states("a") == ["no_worker"]


# -- restrictions ---------------------------------------------------------------------------------
def test_restricted_tasks_run_only_where_they_may(board):
    client, other = board.client(), board.worker("other", host="there")
    board.send(client, graph("a", workers=["here"]), graph("b", workers=["tcp://w"]))
    board.send(client, graph("c", workers=["w"], resources={"gpu": 1.0}))
    assert board.states("a", "b", "c") == ["no_worker"] * 3
    worker = board.worker("w", host="here")
    assert [board.where(key) for key in "ab"] == [worker, worker]
    assert board.states("c") == ["no_worker"]
    assert other not in {board.where(key) for key in "ab"}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("tcp://10.0.0.7:8000", "10.0.0.7"),
        ("tls://10.0.0.7:8000", "10.0.0.7:8000"),
        ("tls://[fe80::1]:8000", "fe80::1"),
        ("tcp://node7.lab:8000", "node7.lab"),
        ("unix:///tmp/w", "127.0.0.1"),
        ("inproc://w", "localhost"),
    ],
)
def test_a_worker_is_named_by_the_machine_in_its_address_too(board, address, name):
    client = board.client()
    board.worker("other", address="tcp://10.0.0.8:8000")
    board.send(client, graph("a", workers=[name]), graph("b", workers=["10.0.0"]))
    assert board.states("a", "b") == ["no_worker"] * 2
    worker = board.worker("w", address=address)
    assert board.where("a") == worker
    assert board.states("b") == ["no_worker"]


def test_loose_restrictions_bind_while_a_worker_satisfies_them(board):
    client, other = board.client(), board.worker("other")
    board.send(client, graph("a", workers=["w"], allow_other_workers=True))
    assert board.where("a") == other
    worker = board.worker("w")
    board.send(client, graph("b", workers=["w"], allow_other_workers=True))
    assert board.where("b") == worker
    out = board.close(worker)
    assert assigned(out, other) == {"b": board.attempt("b")}


def test_a_task_that_no_worker_can_run_is_logged_and_reported_once(board):
    client = board.client()
    board.worker()
    board.send(client, graph("a b", resources={"gpu": 1.0}))
    assert sent_keys(board.tick(1.0), client, m.KeysUnrunnable) == []
    out = board.tick(5.0)
    (message,) = out[client]
    assert message.keys == ["a", "b"]
    assert "no worker offers gpu: 1" in message.reason
    assert sent_keys(board.tick(5.0), client, m.KeysUnrunnable) == []


def test_queued_tasks_are_set_aside_when_the_last_worker_that_may_run_them_goes(board):
    client = board.client()
    gpu = board.worker("gpu", resources={"gpu": 1.0})
    board.worker("cpu")
    board.send(client, graph("a b c", resources={"gpu": 1.0}))
    assert board.states("a", "b", "c") == ["processing", "queued", "queued"]
    board.close(gpu)
    assert board.states("a", "b", "c") == ["no_worker"] * 3


def test_shutdown_notifies_all_peers_and_ends_the_process(board):
    worker, supervisor = board.worker(), board.supervisor()
    client, other = board.client(level=Level.ADMIN), board.client("other")
    out = board.send(client, m.ShutdownCluster(reason="done"))
    assert out[client][-1] == out[other][-1] == m.ClusterStopped(reason="done")
    assert out[worker] == out[supervisor] == [m.Stop(reason="done")]
    assert [type(action).__name__ for action in board.actions] == ["LogLine", "StopServer"]


def test_a_worker_whose_messages_wait_to_be_handled_is_not_silent(board):
    worker, supervisor, stranger = board.worker(), board.supervisor(), board.connect(Role.CLIENT)
    silent = board.worker("silent")
    waiting = [worker, supervisor, stranger]
    refused = []
    for _ in range(40):
        board.now += board.state.settings.heartbeat_s / 2
        board.play(SchedulerTick(unread=waiting))
        refused += board.refused()
    assert len(refused) == 1
    assert silent not in board.state.workers
    assert worker in board.state.workers
    assert supervisor in board.state.supervisors
    assert stranger in board.state.strangers


def test_a_loose_restriction_binds_as_soon_as_a_worker_satisfies_it(board):
    client = board.client()
    board.send(client, graph("a", workers=["strict"], allow_other_workers=True))
    (task_class,) = [c for c in board.state.classes.values() if c.workers]
    members = []
    for name in ("other", "another", "strict", "third"):
        board.worker(name)
        members.append([ws.name for ws in task_class.members])
    assert members == [["other"], ["other", "another"], ["strict"], ["strict"]]


# --- Messages of a later version ------------------------------------------------------------------


@pytest.mark.parametrize("role", ["client", "worker", "supervisor", "viewer"])
def test_a_message_of_unknown_code_is_answered_and_its_sender_goes_on(board, role):
    peer = board.connect(Role.VIEWER) if role == "viewer" else getattr(board, role)()
    ping = m.GetMetrics(request=3) if role == "viewer" else m.Heartbeat()
    out = board.send(peer, Unknown(250, 5), Unknown(251, 0), ping)
    assert out[peer][:2] == [
        m.Unsupported(unknown_code=250, request=5),
        m.Unsupported(unknown_code=251, request=0),
    ]
    assert len(out[peer]) == 3
    assert board.refused() == []


def test_a_message_of_unknown_code_before_registration_ends_the_connection(board):
    board.send(board.connect(Role.CLIENT), Unknown(250, 0))
    assert board.refused() == ["a message of unknown code 250 before registration"]


def test_a_peer_that_does_not_know_a_message_is_logged_once_for_each_code(board):
    worker = board.worker("old")
    answers = [m.Unsupported(unknown_code=code, request=0) for code in (250, 250, 251, 2**40)]
    board.send(worker, *answers)
    lines = [action.text for action in board.actions if isinstance(action, LogLine)]
    lines = [line for line in lines if "does not know" in line]
    assert [line.partition(":")[0] for line in lines] == [
        "old does not know messages of code 250",
        "old does not know messages of code 251",
    ]
    assert board.refused() == []


def test_a_worker_that_does_not_know_a_fetch_has_none_of_its_data(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", nbytes=1 << 20)
    out = board.send(client, m.FetchKeys(request=4, keys=["a"]))
    (fetch,) = out[worker]
    out = board.send(worker, m.Unsupported(unknown_code=20, request=fetch.request))
    assert m.KeysData(request=4, keys=[], results=[], missing=["a"]) in out[client]
    assert board.rest() == ["DropAttempts"]


# -- the size of the cluster ----------------------------------------------------------------------
def test_many_workers_that_join_at_once_are_few_messages_to_clients(board):
    client = board.client()
    board.tick()
    sizes = []
    for i in range(100):
        board.worker(f"w{i}", nthreads=2)
        sizes += changes(board.out, client)
    assert sizes == [(n, 2 * n) for n in range(1, FEW_WORKERS + 1)]
    assert changes(board.tick(SIZE_PAUSE_S), client) == [(100, 200)]
    assert changes(board.tick(1.0), client) == []
    assert changes(board.close(next(iter(board.state.workers))), client) == [(99, 198)]


def test_names_stay_unique_if_a_worker_has_the_name_that_another_would_get(board):
    for name, worker_id in (("w", "1"), ("w-2", "3"), ("w", "2")):
        board.worker(name, worker_id=worker_id, address=f"tcp://{worker_id}")
    assert [*board.state.staying] == ["w", "w-2", "w-2-2"]


@pytest.mark.parametrize("seed", range(30))
def test_members_that_are_kept_up_to_date_are_those_that_are_found_anew(seed):
    """Workers join, leave and are lost; classes come and go, with restrictions of all kinds."""
    rng = random.Random(seed)
    board = Board()
    client = board.client()
    n_submitted = 0
    for i in range(60):
        kind = rng.choice(["join", "join", "lose", "leave", "submit", "release", "tick"])
        workers = list(board.state.workers)
        if kind == "join" and len(workers) < 8:
            resources = {name: 1.0 for name in ("gpu", "mem") if rng.random() < 0.4}
            host = rng.choice(["here", "there"])
            board.worker(
                f"w{rng.randrange(4)}",
                worker_id=f"id{i}",
                address=f"tcp://{i}",
                host=host,
                resources=resources,
            )
        elif kind == "lose" and workers:
            board.close(rng.choice(workers))
        elif kind == "leave" and workers:
            board.send(rng.choice(workers), m.WorkerLeaving(reason="stopped"))
        elif kind == "submit":
            keys = [f"t{n_submitted + n}" for n in range(rng.randint(1, 3))]
            n_submitted += len(keys)
            places = ["w0", "w1", "here", "there", f"tcp://{rng.randrange(60)}"]
            options = {
                "workers": rng.sample(places, rng.choice([0, 1, 2])),
                "allow_other_workers": rng.random() < 0.5,
                "resources": {"gpu": 1.0} if rng.random() < 0.3 else {},
            }
            board.send(client, graph(" ".join(keys), **options))
        elif kind == "release" and board.state.tasks:
            keys = rng.sample([*board.state.tasks], rng.randint(1, min(4, len(board.state.tasks))))
            board.send(client, m.ReleaseKeys(keys=keys))
        else:
            board.tick(0.2)
        for task_class in board.state.classes.values():
            kept = {*task_class.members}, {*task_class.open, *task_class.partly}
            is_open = bool(task_class.queue)
            fill_class(board.state, task_class)
            found = {*task_class.members}, {*task_class.open, *task_class.partly}
            assert kept[0] == found[0]
            assert is_open or kept[1] <= found[1], "stuck ones are open again when found anew"
        board.tick()
