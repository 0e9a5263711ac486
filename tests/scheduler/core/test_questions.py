"""Questions about the cluster: their pages, and what a wrong question gets."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.levels import Level
from weft.scheduler.core.questions import N_PEERS, QUESTIONS
from weft.scheduler.core.turns import SLICE_COST, cost_of

from ..builders import Board, graph


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
def board() -> Board:
    return Board()


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


def test_a_question_without_end_leaves_nothing_behind(board, viewer):
    for i in range(N_PEERS + 1):
        board.worker(f"w{i}")
    before = {name: repr(value) for name, value in vars(board.state).items()}
    for name in QUESTIONS:
        for _ in range(3):
            ask(board, viewer, name)
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
    question = QUESTIONS["cluster"]._replace(least_level=Level.CLIENT)
    monkeypatch.setitem(QUESTIONS, "cluster", question)
    (denied,) = board.send(viewer, m.Ask(request=9, name="cluster"))[viewer]
    assert denied == m.Denied(denied_code=98, request=9, needed="client", level="view")
    assert pages(board, board.client(), "cluster")
