"""Questions that are passed on to workers and supervisors, and what ends them."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.failure import MAX_RELAYED_BYTES
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.plain import MAX_ANSWER_DEPTH, is_flat
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight.forwarded_questions import (
    MAX_UNANSWERED,
    passed_of,
)
from weft.scheduler.core.insight.info import describe_worker

from ...builders import Board, Out


def ask(board: Board, peer: int, to: str, name: str = "logs", request: int = 5) -> Out:
    return board.send(peer, m.Ask(request=request, name=name, arguments={"n": 1}, page="p", to=to))


def failed(out: Out, peer: int) -> m.AskFailed:
    (answer,) = [x for x in out[peer] if isinstance(x, m.AskFailed)]
    return answer


def test_a_question_goes_to_the_worker_and_the_answer_back(board):
    client, worker = board.client(), board.worker("w")
    blob = b"pickle"
    question = m.Ask(request=5, name="run", arguments={"name": "f"}, blobs=[blob], to="id of w")
    (passed,) = board.send(client, question)[worker]
    assert passed == m.Ask(
        request=passed.request, name="run", arguments={"name": "f"}, blobs=[blob]
    )
    answer = m.Answer(request=passed.request, info={"a": 1}, next_page="2", blobs=[b"x"])
    assert board.send(worker, answer) == {
        client: [m.Answer(request=5, info={"a": 1}, next_page="2", blobs=[b"x"])]
    }
    assert not passed_of(board.state)
    assert board.send(worker, answer) == {}


def test_a_question_goes_to_a_supervisor(board):
    client, supervisor = board.client(), board.supervisor("sup")
    (passed,) = ask(board, client, "sup")[supervisor]
    answer = m.AskFailed(request=passed.request, kind="no-answer", text="why")
    assert board.send(supervisor, answer) == {
        client: [m.AskFailed(request=5, kind="no-answer", text="why")]
    }


def test_workers_are_made_to_connect_to_data_ports_of_this_cluster_only(board):
    viewer = board.connect(Role.VIEWER)
    one, _ = board.worker("w1"), board.worker("w2")

    def reach(addresses: object) -> Out:
        arguments = {"addresses": addresses}
        question = m.Ask(request=5, name="reach", arguments=arguments, to="id of w1")
        return board.send(viewer, question)

    (passed,) = reach(["tcp://w2"])[one]
    assert (passed.name, passed.arguments) == ("reach", {"addresses": ["tcp://w2"]})
    for wrong in (["tcp://w2", "tcp://10.0.0.1:22"], "tcp://w2", None, [7]):
        answer = failed(reach(wrong), viewer)
        assert (answer.kind, answer.text) == (
            "bad-argument", "addresses= has one that is of no connected worker",
        )  # fmt: skip


def test_the_end_of_the_asked_process_fails_its_questions_and_no_others(board):
    client, one, other = board.client(), board.worker("w1"), board.worker("w2")
    ask(board, client, "id of w1", "run", 5)
    ask(board, client, "id of w2", "call_stack", 6)
    failure = failed(board.close(one), client)
    assert (failure.request, failure.kind) == (5, "no-answer")
    assert failure.text == (
        "its connection to the scheduler ended before it answered; whether the function has run "
        "there is not known"
    )
    assert failed(board.send(other, m.Bye(reason="")), client).request == 6
    supervisor = board.supervisor("sup")
    ask(board, client, "sup", request=7)
    assert failed(board.close(supervisor), client).request == 7


def test_a_worker_that_is_away_is_not_asked_and_its_questions_fail():
    board = Board(away_s=5.0)
    client, worker = board.client(), board.worker("w")
    ask(board, client, "id of w")
    assert failed(board.close(worker), client).request == 5
    board.tick(2.0)
    described = describe_worker(board.state, board.state.workers_by_id["id of w"])
    assert (described["is_away"], round(described["last_seen_s"], 6)) == (True, 2.0)
    answer = failed(ask(board, client, "id of w", request=6), client)
    assert (answer.request, answer.text) == (6, "it is not connected to the scheduler")


def test_the_end_of_the_asking_peer_leaves_nothing(board):
    client, viewer = board.client(), board.connect(Role.VIEWER)
    worker = board.worker("w")
    (passed,) = ask(board, viewer, "id of w", "versions")[worker]
    (kept,) = ask(board, client, "id of w", "versions")[worker]
    board.close(viewer)
    assert board.send(worker, m.Answer(request=passed.request, info={})) == {}
    assert list(board.send(worker, m.Answer(request=kept.request, info={}))) == [client]
    assert not passed_of(board.state)


@pytest.mark.parametrize(
    ("to", "name", "kind"),
    [
        ("nobody", "logs", "no-answer"),
        ("id of w", "cluster", "unknown-question"),
        ("id of w", "", "unknown-question"),
    ],
)
def test_a_question_that_cannot_be_passed_on_fails(board, to, name, kind):
    client, _ = board.client(), board.worker("w")
    failure = failed(ask(board, client, to, name), client)
    assert (failure.request, failure.kind) == (5, kind)
    assert not passed_of(board.state)


def test_a_viewer_may_not_run_functions_nor_read_logs(board):
    viewer, _ = board.connect(Role.VIEWER), board.worker("w")
    for name in ("run", "logs", "call_stack"):
        (denied,) = ask(board, viewer, "id of w", name)[viewer]
        assert denied == m.Denied(request=5, needed="client", level="view")


def test_a_process_that_answers_nothing_is_not_asked_without_end(board):
    client, worker = board.client(), board.worker("w")
    for i in range(MAX_UNANSWERED):
        assert list(ask(board, client, "id of w", request=i)) == [worker]
    assert "questions to it are unanswered" in failed(ask(board, client, "id of w"), client).text


def test_large_calls_and_answers_are_refused(board):
    client, worker = board.client(), board.worker("w")
    large = Payload(b"", [bytes(MAX_RELAYED_BYTES + 1)])
    question = m.Ask(request=5, name="run", blobs=[large], to="id of w")
    assert failed(board.send(client, question), client).kind == "bad-argument"
    (passed,) = ask(board, client, "id of w", "run")[worker]
    answer = m.Answer(request=passed.request, info={}, blobs=[large])
    assert "beyond the limit of 64 MiB" in failed(board.send(worker, answer), client).text


def test_nested_arguments_and_answers_are_not_passed_on(board):
    client, worker = board.client(), board.worker("w")
    deep: list[object] = []
    for _ in range(600):
        deep = [deep]
    question = m.Ask(request=5, name="held", arguments={"a": deep}, to="id of w")
    out = board.send(client, question)
    assert list(out) == [client]
    assert failed(out, client).kind == "bad-argument"
    (passed,) = ask(board, client, "id of w")[worker]
    answer = m.Answer(request=passed.request, info={"a": deep})
    assert "nested in more than 8 others" in failed(board.send(worker, answer), client).text


@pytest.mark.parametrize("depth", [1, 2, MAX_ANSWER_DEPTH, MAX_ANSWER_DEPTH + 1, 600])
def test_the_depth_of_maps_and_lists_is_counted(depth):
    value: object = "text"
    for i in range(depth):
        value = {"a": value} if i % 2 else [1, value]
    assert is_flat(value) is (depth <= MAX_ANSWER_DEPTH)


def test_a_process_of_an_older_version_fails_the_question(board):
    client, worker = board.client(), board.worker("w")
    (passed,) = ask(board, client, "id of w")[worker]
    out = board.send(worker, m.Unsupported(unknown_code=98, request=passed.request))
    assert failed(out, client).kind == "unknown-question"
    assert not passed_of(board.state)
