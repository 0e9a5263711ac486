"""Questions about the cluster: their pages, and what a wrong question gets."""

from __future__ import annotations

import pytest

from weft.protocol.story import MAX_KEYS as MAX_STORY_KEYS
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.question_arguments import MAX_KEYS
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight import task_questions
from weft.scheduler.core.insight.questions import N_PEERS, AskShell
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.upkeep.turns import SLICE_COST, cost_of

from ...builders import Board, graph
from ..moves.test_transitions import EVENTS, board_with


def ask(board: Board, peer: int, name: str, page: str = "", **arguments: object) -> m.Message:
    """Ask for one page; return the only message that goes out."""
    question = m.Ask(request=9, name=name, arguments=arguments, page=page)
    ((receiver, (answer,)),) = board.send(peer, question).items()
    assert receiver == peer
    assert isinstance(answer, (m.Answer, m.AskFailed))
    assert answer.request == 9
    return answer


def pages(board: Board, peer: int, name: str, **arguments: object) -> list[dict[str, object]]:
    """Return all pages of an answer."""
    found, page = [], ""
    while True:
        answer = ask(board, peer, name, page, **arguments)
        assert isinstance(answer, m.Answer), answer
        found.append(answer.info)
        page = answer.next_page
        if not page:
            return found


@pytest.fixture
def viewer(board: Board) -> int:
    return board.connect(Role.VIEWER)


def test_clients_and_viewers_get_answers(board):
    client, viewer = board.client("alice"), board.connect(Role.VIEWER)
    board.worker("w", nthreads=3)
    for peer in (client, viewer):
        (info,) = pages(board, peer, "cluster")
        assert (info["n_workers"], info["nthreads"], info["n_clients"]) == (1, 3, 1)
        (clients,) = pages(board, peer, "clients")
        assert [one["name"] for one in clients["clients"]] == ["alice"]


def test_an_unknown_question_fails_and_the_connection_stays(board, viewer):
    answer = ask(board, viewer, "why")
    assert isinstance(answer, m.AskFailed)
    assert (answer.kind, answer.text) == (
        "unknown-question",
        "there is no question 'why' to the scheduler",
    )
    assert not board.refused()


@pytest.mark.parametrize("page", ["-1", "x", "1.0", "9" * 19, "²"])
def test_an_invalid_page_fails(board, viewer, page):
    answer = ask(board, viewer, "workers", page)
    assert isinstance(answer, m.AskFailed)
    assert answer.kind == "bad-argument"


def test_a_worker_may_not_ask(board):
    board.send(board.worker(), m.Ask(request=1, name="cluster"))
    assert board.refused() == ["a worker may not send Ask"]


def test_workers_are_described_in_pages(board, viewer):
    for i in range(2 * N_PEERS + 1):
        board.worker(f"w{i}")
    found = pages(board, viewer, "workers")
    assert [len(page["workers"]) for page in found] == [N_PEERS, N_PEERS, 1]
    names = [w["name"] for page in found for w in page["workers"].values()]
    assert names == [f"w{i}" for i in range(2 * N_PEERS + 1)]


def test_peers_that_come_and_go_between_two_pages_change_nothing_for_the_others(board, viewer):
    workers = [board.worker(f"w{i}") for i in range(N_PEERS + 3)]
    clients = [board.client(f"c{i}") for i in range(N_PEERS + 3)]
    first, first_clients = ask(board, viewer, "workers"), ask(board, viewer, "clients")
    for peer in (workers[0], workers[N_PEERS - 1], workers[N_PEERS]):
        board.close(peer)
    for peer in (clients[0], clients[N_PEERS - 1], clients[N_PEERS]):
        board.send(peer, m.Bye(reason=""))
    board.worker("late")
    board.client("late")
    second = ask(board, viewer, "workers", first.next_page)
    names = [w["name"] for w in second.info["workers"].values()]
    assert names == [f"w{N_PEERS + 1}", f"w{N_PEERS + 2}", "late"]
    second_clients = ask(board, viewer, "clients", first_clients.next_page)
    names = [c["name"] for c in second_clients.info["clients"]]
    assert names == [f"c{N_PEERS + 1}", f"c{N_PEERS + 2}", "late"]
    assert not second.next_page
    assert not second_clients.next_page


def test_a_question_without_end_leaves_nothing_behind(board):
    viewer = board.connect(Role.VIEWER, Level.CLIENT)
    for i in range(N_PEERS + 1):
        board.worker(f"w{i}")
    before = {name: repr(value) for name, value in vars(board.state).items()}
    for name in board.state.features.questions:
        for _ in range(3):
            ask(board, viewer, name, keys=["a"])
    after = {name: repr(value) for name, value in vars(board.state).items()}
    assert {name for name in after if after[name] != before[name]} <= {"now", "outboxes"}


def test_a_client_that_is_away_is_described(board, viewer):
    client = board.client("alice")
    board.send(client, graph("a"))
    board.close(client)
    board.tick(2.0)
    ((one,),) = [page["clients"] for page in pages(board, viewer, "clients")]
    assert (one["n_wants"], one["lost_s"]) == (1, 2.0)


def test_a_page_counts_like_many_rows_so_that_others_come_in_between():
    assert 2 * cost_of(m.Ask(request=1, name="cluster")) >= SLICE_COST


def test_a_question_may_need_a_higher_token(board, viewer, monkeypatch):
    questions = board.state.features.questions
    question = questions["cluster"]._replace(least_level=Level.CLIENT)
    monkeypatch.setitem(questions, "cluster", question)
    (denied,) = board.send(viewer, m.Ask(request=9, name="cluster"))[viewer]
    assert denied == m.Denied(request=9, needed="client", level="view")
    assert pages(board, board.client(), "cluster")


# --- Tasks ----------------------------------------------------------------------------------------


@pytest.fixture
def busy(board: Board) -> Board:
    """Return a board with tasks in several states; their keys name them."""
    alice = board.client("alice")
    worker = board.worker("w")
    board.send(alice, graph("failed", "memory -> processing", "waiting0 -> waiting"))
    board.raise_(worker, "failed")
    board.finish(worker, "memory")
    board.send(alice, graph("aside", workers=["nowhere"]))
    return board


def test_holders_of_results_are_listed(busy, viewer):
    (info,) = pages(busy, viewer, "holders", keys=["memory", "unknown", "processing"])
    assert info == {
        "keys": ["memory", "unknown", "processing"],
        "holders": [[0], [], []],
        "workers": ["tcp://w"],
    }


def test_holders_come_in_pages_of_bounded_size(board, viewer, monkeypatch):
    monkeypatch.setattr(task_questions, "N_HOLDERS", 4)
    worker, client = board.worker("w", nthreads=9), board.client()
    keys = [f"k{i}" for i in range(5)]
    board.send(client, graph(*keys))
    for key in keys:
        board.finish(worker, key)
    found = pages(board, viewer, "holders", keys=keys)
    assert [page["keys"] for page in found] == [["k0", "k1"], ["k2", "k3"], ["k4"]]
    assert all(page["holders"] == [[0]] * len(page["keys"]) for page in found)


def test_sizes_are_those_of_results_in_memory(busy, viewer):
    (info,) = pages(busy, viewer, "sizes", keys=["memory", "unknown", "processing"])
    assert info == {"keys": ["memory"], "nbytes": [busy.task("memory").nbytes]}


def test_states_say_where_tasks_run(busy, viewer):
    (info,) = pages(busy, viewer, "states", keys=["memory", "processing", "gone"])
    assert info == {
        "keys": ["memory", "processing"],
        "states": ["memory", "processing"],
        "processing": [["processing", "id of w"]],
    }


@pytest.mark.parametrize("keys", [None, "a", [1], ["a"] * (MAX_KEYS + 1)])
def test_wrong_keys_are_refused(board, viewer, keys):
    answer = ask(board, viewer, "states", keys=keys)
    assert isinstance(answer, m.AskFailed)
    assert answer.kind == "bad-argument"


def processing(found: list[dict[str, object]]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for page in found:
        for address, some in page["processing"]:
            keys.setdefault(address, []).extend(some)
    return keys


def many_processing(board: Board) -> list[str]:
    client = board.client()
    for name in ("a", "b", "c"):
        board.worker(name, nthreads=5)
    board.send(client, graph(*(f"k{i}" for i in range(15))))
    keys = [task.key for ws in board.state.workers.values() for task in ws.processing.values()]
    assert len(keys) == 15
    return keys


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 100])
def test_processing_tasks_come_in_pages(board, viewer, monkeypatch, n):
    monkeypatch.setattr(task_questions, "N_PROCESSING", n)
    keys = many_processing(board)
    found = processing(pages(board, viewer, "processing"))
    assert [key for some in found.values() for key in some] == keys
    assert list(found) == ["tcp://a", "tcp://b", "tcp://c"]
    assert pages(board, viewer, "processing", workers=["id of b"])[0]["processing"][0][0] == (
        "tcp://b"
    )


def test_tasks_that_end_between_two_pages_hide_no_others(board, viewer, monkeypatch):
    monkeypatch.setattr(task_questions, "N_PROCESSING", 3)
    keys = many_processing(board)
    first = ask(board, viewer, "processing")
    (worker, *_), seen = list(board.state.workers), processing([first.info])["tcp://a"]
    for key in seen[1:]:
        board.finish(worker, key)
    board.close(list(board.state.workers)[1])
    rest = []
    page = first.next_page
    while page:
        answer = ask(board, viewer, "processing", page)
        rest.append(answer.info)
        page = answer.next_page
    found = processing(rest)
    assert [*seen, *found["tcp://a"]][:5] == keys[:5]
    assert set(found["tcp://c"]) >= set(keys[10:])


def test_a_story_comes_in_pages(board, viewer, monkeypatch):
    monkeypatch.setattr(task_questions, "N_LOOKED_AT", 1)
    monkeypatch.setattr(task_questions, "N_LINES", 1)
    worker, client = board.worker("w"), board.client("alice")
    board.send(client, graph("a", "b"))
    board.now += 1.5
    board.finish(worker, "a")
    board.finish(worker, "b")
    found = pages(board, viewer, "story", keys=["a"])
    lines = [line for page in found for line in page["story"]]
    assert lines == [
        [1.5, "a", "submitted by alice"],
        [1.5, "a", "assigned to w"],
        [0.0, "a", "finished on w"],
    ]
    assert len(found) > 1


def test_a_story_that_is_forgotten_between_two_pages_goes_on_with_what_is_left(board):
    story = board.state.story
    story.note(1.0, "first", ["a"])
    found, following = story.search({"a"}, 0, 1, 1)
    assert (found, following) == ([(1.0, "a", "first")], 0)
    story.note(2.0, "second", ["a"])
    _, following = story.search({"a"}, 0, 1, 1)
    assert following == 1
    story.note(3.0, "third", [f"k{i}" for i in range(MAX_STORY_KEYS)])
    story.note(4.0, "fourth", ["a"])
    assert story.search({"a"}, following, 10**9, 9) == ([(4.0, "a", "fourth")], 0)


def test_tasks_are_described_with_the_reason_for_their_state(busy, viewer):
    keys = ["failed", "memory", "processing", "waiting", "aside", "unknown"]
    (info,) = pages(busy, viewer, "tasks", keys=keys)
    found = {task["key"]: task for task in info["tasks"]}
    assert {key: task["state"] for key, task in found.items()} == {
        "failed": "erred",
        "memory": "memory",
        "processing": "processing",
        "waiting": busy.task("waiting").state,
        "aside": "no_worker",
    }
    assert found["memory"]["holders"] == ["w"]
    assert found["memory"]["dependents"] == ["processing"]
    assert found["processing"]["inputs"] == ["memory"]
    assert found["processing"]["worker"] == "w"
    assert "no connected worker is named nowhere" in found["aside"]["why"]
    assert found["failed"]["why"].startswith("exception: ")
    assert all(task["wanted_by"] == ["alice"] for task in found.values())


def test_waiting_tasks_name_what_they_wait_for(board, viewer):
    client = board.client()
    board.send(client, graph("a b c d -> e"))
    (info,) = pages(board, viewer, "tasks", keys=["e", "a"])
    waiting, queued = info["tasks"]
    assert waiting["why"] == "it needs a (no_worker), b (no_worker), c (no_worker) and 1 more"
    assert queued["why"] == "the cluster has no workers"
    board.worker("w")
    board.send(client, graph("f", resources={"GPU": 1.0}))
    board.worker("gpu", resources={"GPU": 1.0})
    board.send(client, graph("g", resources={"GPU": 1.0}))
    (info,) = pages(board, viewer, "tasks", keys=["g"])
    assert info["tasks"][0]["why"] == (
        "all its inputs are there; it waits for one of 1 workers (GPU: 1), with 0 other tasks of "
        "the same requirements"
    )


def test_questions_about_the_process_go_to_the_shell(board, viewer):
    client = board.client()
    question = m.Ask(request=3, name="logs", arguments={"n": 1})
    assert board.send(client, question) == {}
    assert board.actions == [AskShell(client, question)]
    (denied,) = board.send(viewer, question)[viewer]
    assert denied == m.Denied(request=3, needed="client", level="view")


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("away_s", [0.0, 5.0])
def test_every_question_has_an_answer_whatever_has_happened(event, away_s):
    board = Board(allowed_deaths=0, away_s=away_s)
    EVENTS[event](board, board_with("processing", board).attempt)
    viewer = board.connect(Role.VIEWER, Level.CLIENT)
    keys = ["t", "in", "out", "new", "unknown"]
    for name in board.state.features.questions:
        assert pages(board, viewer, name, keys=keys, key="t", text="t")


def test_tasks_of_a_scheduler_that_is_recovering_say_so():
    board = Board(expected=Members(("id of w",), ()))
    client = board.client()
    board.send(client, graph("a"))
    (info,) = pages(board, client, "tasks", keys=["a"])
    assert info["tasks"][0]["why"] == (
        "the scheduler assigns nothing yet, it is recovering: 0 of 1 worker and 0 of 0 clients are "
        "back"
    )


def test_an_assigned_task_shows_whether_its_worker_has_a_thread_for_it(board):
    client, viewer, worker = board.client(), board.connect(Role.VIEWER), board.worker("w")

    def why(key):
        (answer,) = board.send(
            viewer, m.Ask(request=1, name="tasks", arguments={"keys": [key]})
        ).values()
        return answer[0].info["tasks"][0]["why"]

    board.send(client, graph("a -> b"))
    assert board.where("b") == worker
    assert why("b") == "it waits at worker w for task a, which is there, too"
    board.finish(worker, "a", blob=None)
    text = "worker w runs it, or fetches its inputs: it has 1 thread for 1 task"
    assert why("b") == text
    board.send(client, graph("c"))
    assert board.where("c") == worker
    text = "worker w has 1 thread for it and 1 other task; it runs, or waits for a thread"
    assert why("c") == why("b") == text


def test_the_traceback_of_a_failure_is_for_clients(busy, viewer):
    assert isinstance(busy.send(viewer, m.Ask(request=9, name="failures"))[viewer][0], m.Denied)
    client = busy.connect(Role.VIEWER, Level.CLIENT)
    worker = busy.worker("second")
    busy.send(busy.client("bob"), graph("raises -> reads", function="f"))
    failure = ["exception", "raises", b"", "ValueError", "bad", "Traceback ...", b""]
    attempts = [busy.attempt("raises")]
    busy.send(worker, m.AttemptsErred(attempts=attempts, durations_us=[1], failures=[failure]))
    found = pages(busy, client, "failures", keys=["raises", "reads", "failed", "memory", "gone"])
    assert [row for page in found for row in page["failures"]] == [
        ["raises", "exception", "raises", "Traceback ..."],
        ["reads", "exception", "raises", "Traceback ..."],
        ["failed", "exception", "failed", ""],
    ]
    busy.drop_rest()
