"""Questions to a worker: what it holds, which pages it keeps, and what wrong questions get."""

from __future__ import annotations

import asyncio
import dataclasses
import socket

import pytest

from weft.protocol.trust.security import new_token
from weft.protocol.values.serialize import dumps
from weft.protocol.wire.messages import Answer, Ask, AskFailed
from weft.worker import answering, reaching
from weft.worker.answering import Answering
from weft.worker.data.peers import Peers
from weft.worker.reaching import MAX_ADDRESSES


class AnswerBox:
    """The connection that questions come on: it collects the answers."""

    def __init__(self):
        self.answers = asyncio.Queue()

    def send(self, messages):
        for message in messages:
            self.answers.put_nowait(message)


@pytest.fixture
async def asked(cluster, security):
    """Return a worker that holds the results of five tasks, and a function that asks it."""
    worker = await cluster.start()
    tasks = [cluster.scheduler.task(abs, -i, key=f"k{i}", wanted=0) for i in range(5)]
    cluster.scheduler.send(worker, *tasks)
    await cluster.scheduler.until_done(5)
    answers = Answering(worker.executor, reach=worker._peers.reach)
    box = AnswerBox()

    async def ask(name, page="", blobs=(), **arguments):
        question = Ask(request=7, name=name, arguments=arguments, page=page, blobs=[*blobs])
        answers.on_ask(box, question)
        return await asyncio.wait_for(box.answers.get(), 30)

    yield ask
    answers.close()


async def test_kept_results_come_in_pages_of_one_moment(asked, monkeypatch):
    monkeypatch.setattr(answering, "N_KEPT", 2)
    first = await asked("held")
    assert first.info["keys"] == ["k0", "k1"]
    second = await asked("held", first.next_page)
    third = await asked("held", second.next_page)
    assert (second.info["keys"], third.info["keys"]) == (["k2", "k3"], ["k4"])
    assert third.next_page == ""
    late = await asked("held", second.next_page)
    assert isinstance(late, AskFailed)
    assert "asked for too late" in late.text


async def test_a_page_can_be_asked_for_again(asked, monkeypatch):
    monkeypatch.setattr(answering, "N_KEPT", 2)
    first = await asked("held")
    assert await asked("held", first.next_page) == await asked("held", first.next_page)


async def test_many_lists_at_once_are_read_to_their_ends(asked, monkeypatch):
    monkeypatch.setattr(answering, "N_KEPT", 2)
    pages = [await asked("held") for _ in range(50)]
    for n_more in (1, 0):
        pages = [await asked("held", page.next_page) for page in pages]
        assert [bool(page.next_page) for page in pages] == [bool(n_more)] * 50


async def test_the_list_that_waits_longest_is_dropped_beyond_the_limit(asked, monkeypatch):
    monkeypatch.setattr(answering, "N_KEPT", 2)
    monkeypatch.setattr(answering, "_MAX_ROWS", 10)  # two lists of five
    (oldest, second, latest) = [await asked("held") for _ in range(3)]
    assert isinstance(await asked("held", oldest.next_page), AskFailed)
    assert isinstance(await asked("held", second.next_page), Answer)
    assert isinstance(await asked("held", latest.next_page), Answer)


async def test_a_list_beyond_the_limit_is_kept_while_it_is_the_latest(asked, monkeypatch):
    monkeypatch.setattr(answering, "N_KEPT", 2)
    monkeypatch.setattr(answering, "_MAX_ROWS", 1)
    first = await asked("held")
    assert isinstance(await asked("held", first.next_page), Answer)


async def test_lists_that_are_not_asked_for_are_forgotten(asked, monkeypatch):
    monkeypatch.setattr(answering, "N_KEPT", 2)
    monkeypatch.setattr(answering, "_KEEP_S", 0.0)
    first = await asked("held")
    while isinstance(answer := await asked("held", first.next_page), Answer):
        continue
    assert "asked for too late" in answer.text


@pytest.mark.parametrize(
    ("name", "page", "kind"),
    [
        ("why", "", "unknown-question"),
        ("held", "x", "bad-argument"),
        ("held", "1.x", "bad-argument"),
        ("held", "9.0", "bad-argument"),
        ("logs", "x", "bad-argument"),
        ("run", "", "bad-argument"),
        ("reach", "", "bad-argument"),
    ],
)
async def test_wrong_questions_fail(asked, monkeypatch, name, page, kind):
    from weft.protocol.host import log_ring

    monkeypatch.setattr(log_ring, "_ring", log_ring.LogRing())
    answer = await asked(name, page)
    assert isinstance(answer, AskFailed)
    assert (answer.request, answer.kind) == (7, kind)


async def test_more_addresses_than_the_limit_are_not_tried(asked):
    answer = await asked("reach", addresses=["tcp://127.0.0.1:1"] * (MAX_ADDRESSES + 1))
    assert isinstance(answer, AskFailed)
    assert answer.text == "addresses= is a list of at most 64 addresses"


async def test_data_ports_out_of_reach_are_returned_each_with_its_cause(
    asked, cluster, security, monkeypatch
):
    monkeypatch.setattr(reaching, "TIMEOUT_S", 0.2)
    other = await cluster.start(name="other")
    stranger = Peers(
        dataclasses.replace(security, token=new_token().encode()), "tcp://127.0.0.1:1", *[None] * 4
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as gone,
    ):
        nobody = f"tcp://127.0.0.1:{gone.getsockname()[1]}"
        gone.close()
        mute = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        unknown = "tcp://no.such.invalid:1"
        answer = await asked("reach", addresses=[other.address, nobody, mute, unknown])
        assert answer.info == {
            "unreached": {
                nobody: ["refused", "no process listens there"],
                mute: ["no-answer", answer.info["unreached"][mute][1]],
                unknown: ["name", "the name does not resolve there"],
            }
        }
        assert "within 0.2 s" in answer.info["unreached"][mute][1]
    assert (await stranger.reach([other.address]))[other.address][0] == "other"


async def test_a_call_that_cannot_be_unpickled_is_an_error_of_the_call(asked):
    answer = await asked("run", blobs=[b"no pickle"])
    assert answer.info["failure"][1].endswith("UnpicklingError")


async def test_the_result_of_a_call(asked):
    answer = await asked("run", blobs=[dumps((max, (1, 2), {}))])
    assert answer == Answer(request=7, info={}, blobs=[dumps(2)])


async def test_nothing_is_sent_after_the_end(cluster, security):
    worker = await cluster.start()
    answers, box = Answering(worker.executor), AnswerBox()
    answers.on_ask(box, Ask(request=7, name="held"))
    answers.close()
    for thread in answers._threads:
        await asyncio.to_thread(thread.join, 30)
    assert answers.join()
    await asyncio.sleep(0)
    assert box.answers.empty()
