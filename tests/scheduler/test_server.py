"""The scheduler's shell in this process, over its in-process and Unix-socket connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import weft
from tests.protocol.transport_kit import End
from weft.protocol.errors import CommError, InternalError, StuckPeer
from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import connect
from weft.protocol.trust.security import Security
from weft.protocol.wire.messages import (
    Answer,
    Ask,
    AskFailed,
    Bye,
    ClusterChanged,
    FetchKeys,
    Heartbeat,
    KeysData,
    KeysUnknown,
    Operated,
    RegisterClient,
    ReleaseKeys,
    WantKeys,
    Welcome,
)
from weft.protocol.wire.messages.coordination import TOO_LARGE
from weft.protocol.wire.payload import Payload
from weft.protocol.wire.roles import Role
from weft.protocol.wire.sizing import message_nbytes
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.core.actions import CloseConnection
from weft.scheduler.core.events import Load, PeerClosed, PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.core.journal.entries import WriteJournal
from weft.scheduler.core.state import SchedulerState
from weft.scheduler.core.upkeep import turns
from weft.scheduler.core.upkeep.slow_readers import slow_readers_of
from weft.scheduler.core.upkeep.turns import FULL_COST, SLICE_COST, cost_of
from weft.scheduler.journal.journal import Journal
from weft.scheduler.journal.sqlite import SqliteStore
from weft.scheduler.measuring import RECENT_S, Meter
from weft.scheduler.server import SchedulerServer

SECURITY = Security(b"a token for tests only", b"cluster-of-tests")


@asynccontextmanager
async def running(address: str, **options: Any) -> AsyncIterator[SchedulerServer]:
    server = SchedulerServer(SchedulerConfig([address], SECURITY, **options))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def a_client(server: SchedulerServer, name: str = "alice") -> tuple[End, Connection]:
    end, connection = await a_stranger(server)
    register = RegisterClient(client_id=name, name=name, session=1, last_epoch=0, facts={})
    connection.send([register])
    welcome, changed = await end.got(2)
    assert isinstance(welcome, Welcome)
    assert isinstance(changed, ClusterChanged)
    connection.wire.epoch, connection.wire.session = welcome.epoch, welcome.session
    return end, connection


async def a_stranger(server: SchedulerServer) -> tuple[End, Connection]:
    end = End()
    connection = await connect(
        server.addresses[0],
        role=Role.CLIENT,
        server_role=Role.SCHEDULER,
        security=SECURITY,
        handler=end,
    )
    return end, connection


def warnings(caplog: Any) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def test_a_peer_that_proves_the_token_and_never_registers_is_cut_off_with_one_line(
    tmp_path, caplog
):
    async with running(f"unix://{tmp_path}/s", heartbeat_s=0.02) as server:
        stranger, _ = await a_stranger(server)
        await asyncio.wait_for(stranger.closed(), 20)
        (warning,) = warnings(caplog)
        assert "the client did not register within 0.3 s" in warning
        _, healthy = await a_client(server)
        healthy.close()


async def test_the_overview_and_the_welcome_have_the_version_of_the_scheduler():
    async with running("inproc://scheduler", facts={"name": "mine"}) as server:
        end, connection = await a_client(server)
        connection.send([Ask(request=1, name="overview")])
        (answer,) = await end.got(1)
        assert isinstance(answer, Answer)
        assert (answer.info["version"], answer.info["name"]) == (weft.__version__, "mine")
        assert server.state.facts["weft"] == weft.__version__


async def test_heartbeats_are_answered_at_once():
    async with running("inproc://scheduler") as server:
        end, connection = await a_client(server)
        connection.send([Heartbeat()])
        (answer,) = await end.got(1)
        assert isinstance(answer, Heartbeat)
        assert answer.next_ms > 0


async def test_an_answer_that_cannot_be_encoded_fails_its_question_only(tmp_path):
    async with running(f"unix://{tmp_path}/s") as server:
        end, connection = await a_client(server)
        state = server.state
        (peer,) = state.clients_by_peer
        wrong = {"n": 1 << 70}
        messages = Answer(request=5, info=wrong), Operated(request=6, info=wrong)
        for message in (Heartbeat(), *messages, Heartbeat(next_ms=1)):
            state.send(peer, message)
        server.schedule_flush()
        before, failed, refused, after = await end.got(4)
        assert [before, after] == [Heartbeat(), Heartbeat(next_ms=1)]
        assert isinstance(refused, Operated)
        assert (refused.request, refused.problem) == (6, TOO_LARGE)
        assert "the answer cannot be sent" in refused.text
        assert isinstance(failed, AskFailed)
        assert failed.request == 5
        assert "the answer cannot be sent" in failed.text
        connection.close()


async def test_the_shell_does_before_then_sends_then_does_after():
    async with running("inproc://scheduler") as server:
        closed_before, _ = await a_client(server, "alice")
        closed_after, _ = await a_client(server, "bob")
        state = server.state
        alice, bob = state.clients_by_peer
        for peer in (alice, bob):
            state.send(peer, Heartbeat())
        state.before.append(CloseConnection(alice, "", is_error=False))
        state.after.append(CloseConnection(bob, "", is_error=False))
        server.schedule_flush()
        assert await closed_after.got(1) == [Heartbeat()]
        for end in (closed_before, closed_after):
            await asyncio.wait_for(end.closed(), 20)
        assert closed_before.messages == []
        assert not any((state.before, state.outboxes, state.after))


def test_without_a_choice_256_mib_may_wait_for_a_peer_that_does_not_read():
    security = Security(token=b"0" * 32, cluster_id=b"1" * 16)
    config = SchedulerConfig(addresses=["inproc://x"], security=security)
    assert config.max_outbox_nbytes == 256 << 20


async def test_a_peer_that_asks_and_never_reads_is_cut_off_with_one_line_and_the_reason(
    tmp_path, caplog
):
    async with running(f"unix://{tmp_path}/s", max_outbox_nbytes=8 << 20) as server:
        greedy, connection = await a_client(server)
        (far,) = server._listeners[0].connections
        connection._transport.pause_reading()
        keys = [str(i).ljust(1000) for i in range(1000)]
        for request in range(40):
            connection.send([FetchKeys(request=request, keys=keys)])
        healthy, other = await a_client(server, "bob")

        async def others_are_served() -> None:
            answer = KeysData(request=1, keys=[], results=[], missing=["x"])
            while not far.closed:
                other.send([FetchKeys(request=1, keys=["x"])])
                assert await healthy.got(1) == [answer]

        # The 40 answers are 40 MB, five times the limit.
        await asyncio.wait_for(others_are_served(), 60)
        assert isinstance(far._error, StuckPeer)
        (warning,) = warnings(caplog)
        assert "closed: it does not read, and " in warning
        assert slow_readers_of(server.state).measured.keys() <= {1}
        connection._transport.resume_reading()
        await asyncio.wait_for(greedy.closed(), 20)
        # It may come back, and is the same client.
        _, again = await a_client(server)
        assert len(server.state.clients) == 2
        again.close()
        other.close()


async def test_each_tick_lists_the_peers_that_do_not_read_that_send_and_that_wait(tmp_path):
    async with running(f"unix://{tmp_path}/s") as server:
        end, connection = await a_client(server)
        _, sender = await a_client(server, "sender")
        far, of_sender = server._listeners[0].connections
        now = server._loop.time()
        server.state.seen.next_reassurance = now
        far.pause_writing()
        server.state.send(1, Heartbeat())
        sender._transport.write(b"\0")  # the first byte of a header
        while not of_sender.receiving:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        server._turns.add(1, Role.CLIENT, [ReleaseKeys(keys=["x"])], now)
        tick = server._make_tick(now)
        assert (tick.unread, tick.unwritable, tick.receiving) == ([1], [1], [2])
        assert server._make_tick(now - 1).receiving == (), "nobody looks at it"
        far.resume_writing()
        assert await end.got(1) == [Heartbeat()]
        assert server._make_tick(now).unwritable == []
        connection.close()
        sender.close()


async def test_a_client_is_active_when_results_follow_a_heartbeat(monkeypatch):
    async with running("inproc://scheduler") as server:
        alice, _ = await a_client(server)
        active: list[int] = []
        monkeypatch.setattr(server._turns, "note_active", lambda peer, now: active.append(peer))
        server.state.send(1, Heartbeat())
        server.schedule_flush()
        await alice.got(1)
        assert active == []
        server.state.send(1, Heartbeat())
        server.state.send(1, KeysUnknown(keys=["x"]))
        server.schedule_flush()
        await alice.got(2)
        assert active == [1]


async def test_others_are_answered_between_the_slices_of_a_long_message(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "SHARED_S", 1e6)  # the two clients are active, however slow this is
    async with running(f"unix://{tmp_path}/s", heartbeat_s=600.0) as server:
        rude, connection = await a_client(server)
        bob, other = await a_client(server, "bob")
        handled: list[tuple[int, int]] = []
        handle = server.state.handle

        def watched(event: Any, now: float) -> None:
            if isinstance(event, PeerSent):
                handled.append((event.peer, sum(map(cost_of, event.messages))))
            handle(event, now)

        server.state.handle = watched  # type: ignore[method-assign]
        for peer in (1, 2):
            server._turns.note_active(peer, server._loop.time())
        keys = [f"unknown-{i}" for i in range(30_000)]
        connection.send([WantKeys(keys=keys), FetchKeys(request=1, keys=[])])
        other.send([FetchKeys(request=2, keys=[])])
        assert await bob.got(1) == [KeysData(request=2, keys=[], results=[], missing=[])]
        unknown: list[str] = []
        while len(unknown) < len(keys):
            (message,) = await rude.got(1)
            assert isinstance(message, KeysUnknown)
            unknown += message.keys
        assert unknown == keys
        assert await rude.got(1) == [KeysData(request=1, keys=[], results=[], missing=[])]
        assert max(cost for _, cost in handled) <= SLICE_COST + 1
        assert handled[-1][0] == 1, "bob did not wait for the end"
        connection.close()
        other.close()


async def test_a_peer_of_which_much_waits_is_not_read_from_and_not_taken_for_silent(tmp_path):
    async with running(f"unix://{tmp_path}/s") as server:
        end, connection = await a_client(server)
        (far,) = server._listeners[0].connections
        paused: list[bool] = []
        unread: list[list[int]] = []
        pause, resume, turn = far.pause_reading, far.resume_reading, server._turn

        def watched() -> None:
            if server._paused:
                unread.append(server._turns.waiting())
            turn()

        far.pause_reading = lambda: (paused.append(True), pause())
        far.resume_reading = lambda: (paused.append(False), resume())
        server._turn = watched  # type: ignore[method-assign]
        for i in range(4):
            connection.send([ReleaseKeys(keys=[f"{i}-{j}" for j in range(FULL_COST)])])
        connection.send([FetchKeys(request=1, keys=[])])
        await end.got(1)
        assert paused[:2] == [True, False]
        assert paused[::2] == [True] * (len(paused) // 2)
        assert unread[0] == [1]
        assert not server._paused
        connection.close()


async def test_a_connection_that_ends_is_read_to_its_end_first(tmp_path):
    async with running(f"unix://{tmp_path}/s") as server:
        end, connection = await a_client(server)
        (client,) = server.state.clients.values()
        connection.send([ReleaseKeys(keys=[str(i) for i in range(5 * SLICE_COST)])])
        connection.send([Bye(reason="done")])
        connection.close()
        await end.closed()
        while server.state.clients:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        assert client.peer is None
        assert not server._turns.waiting()


@pytest.mark.parametrize(
    ("kind", "during"),
    [
        (PeerSent, "messages of peer 1 (WantKeys)"),
        (SchedulerTick, "a tick"),
        (PeerConnected, "PeerConnected(peer=3, role=<Role.CLIENT"),
        (PeerClosed, "PeerClosed(peer=2)"),
    ],
)
async def test_a_bug_in_the_core_ends_the_scheduler_and_is_logged_once(
    tmp_path, caplog, kind, during
):
    server = SchedulerServer(SchedulerConfig([f"unix://{tmp_path}/s"], SECURITY))
    await server.start()
    end, connection = await a_client(server)
    bob, other = await a_client(server, "bob")
    handle = server.state.handle
    n_raised = 0

    def buggy(event: Any, now: float) -> None:
        nonlocal n_raised
        if type(event) is kind:
            n_raised += 1
            server.state.send(1, Bye(reason="put out by a core that is broken"))
            raise AssertionError("a broken invariant")
        handle(event, now)

    server.state.story.note(0.0, "submitted by alice", ["x"])
    server.state.handle = buggy  # type: ignore[method-assign]
    if kind is PeerSent:
        connection.send([WantKeys(keys=["x"])])
    elif kind is PeerClosed:
        other.close()
    elif kind is PeerConnected:
        with contextlib.suppress(CommError):
            await a_stranger(server)
    with pytest.raises(InternalError, match="a broken invariant"):
        await asyncio.wait_for(server.wait_stopped(), 20)
    for peer in (end, bob):
        await asyncio.wait_for(peer.closed(), 20)
    assert end.messages == []
    await server.stop()  # again: no effect, and no second report
    assert n_raised == 1
    (record,) = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert during in record.getMessage()
    assert ("x: 0.000000 submitted by alice" in record.getMessage()) == (kind is PeerSent)
    assert record.exc_info is not None


async def test_a_bug_in_the_shell_ends_the_scheduler(tmp_path, caplog):
    server = SchedulerServer(SchedulerConfig([f"unix://{tmp_path}/s"], SECURITY))
    await server.start()
    end, _ = await a_client(server)
    server.state.after.append("no action")  # type: ignore[arg-type]
    server._act = lambda action: 1 // 0  # type: ignore[method-assign]
    server.schedule_flush()
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        await asyncio.wait_for(server.wait_stopped(), 20)
    await asyncio.wait_for(end.closed(), 20)
    assert "a bug of weft" in caplog.text


async def test_a_bug_in_the_thread_of_the_journal_ends_the_scheduler(tmp_path, caplog):
    """Those that wait until something is recorded would wait forever."""
    config = SchedulerConfig(
        [f"unix://{tmp_path}/s"],
        SECURITY,
        journal=Journal(SqliteStore(tmp_path / "journal.sqlite")),
    )
    server = SchedulerServer(config)
    await server.start()
    end, _ = await a_client(server)
    server.state.after.append(WriteJournal(1, ["no entry"]))  # type: ignore[list-item]
    server.schedule_flush()
    with pytest.raises(InternalError, match="KeyError"):
        await asyncio.wait_for(server.wait_stopped(), 20)
    await asyncio.wait_for(end.closed(), 20)
    (record,) = [r for r in caplog.records if r.levelno == logging.CRITICAL]
    assert "during the journal's work" in record.getMessage()
    await asyncio.get_running_loop().shutdown_default_executor()  # it has closed the journal


async def test_no_clock_ticks_on_after_the_end(monkeypatch):
    """In the user's own loop it would tick for as long as that runs."""
    async with running("inproc://scheduler") as server:
        await a_client(server)
        monkeypatch.setattr(SchedulerState, "next_deadline", 0.0)  # as while a worker is idle
        await server.stop()
        server.schedule_flush()
        for _ in range(3):
            await asyncio.sleep(0)
        assert server._alarm is None or server._alarm.cancelled()


async def test_a_stop_whose_caller_is_cancelled_goes_on(tmp_path):
    async with running("inproc://scheduler") as server:
        end, _ = await a_client(server)
        stop = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        stop.cancel()
        await asyncio.wait_for(server.wait_stopped(), 20)
        assert stop.cancelled()
        assert server.stopping
        await end.closed()


def test_messages_are_measured_by_their_content():
    small = KeysData(request=1, keys=["a"], results=[None], missing=[])
    for large in (
        KeysData(request=1, keys=["a" * 10_000], results=[None], missing=[]),
        KeysData(request=1, keys=["a"], results=[b"a" * 10_000], missing=[]),
        KeysData(request=1, keys=["a"], results=[Payload(b"", [bytearray(10_000)])], missing=[]),
        KeysData(request=1, keys=["a"], results=[None], missing=["b" * 10_000]),
        Ask(request=1, name="a" * 10_000),
    ):
        assert 9_500 < message_nbytes(large) - message_nbytes(small) < 11_000


def test_the_load_is_that_of_the_last_seconds(monkeypatch):
    used = [0.0]
    monkeypatch.setattr("weft.scheduler.measuring.time.process_time", lambda: used[0])
    meter = Meter()
    for second in range(20):
        load = meter.load(float(second), 0.0)
        assert load.cpu_share == (0.5 if second >= RECENT_S / 2 else 0.0)
        used[0] += 0.5
    meter._latest += [(18.0, 0.25), (19.0, 2.0)]
    assert meter.load(20.0, 7.0) == Load(0.5, 2.0, 7.0)
    for second in range(21, 40):
        load = meter.load(float(second), 0.0)
    assert load == Load(0.0, 0.0, 0.0)
    assert len(meter._used) <= RECENT_S + 1
