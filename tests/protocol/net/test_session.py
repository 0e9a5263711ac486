"""A session on real connections: registering, losing the scheduler, reconnecting, leaving."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.protocol.transport_kit import PLAIN, End, Server
from weft.protocol.errors import CommClosed, ConfigError, HandshakeError, InternalError, NotAdmitted
from weft.protocol.net.deadline import within
from weft.protocol.net.session import SessionRunner
from weft.protocol.wire.messages import Bye, Heartbeat, Refused, RegisterClient, Stop, Welcome
from weft.protocol.wire.roles import Role
from weft.protocol.wire.session import Policy, Session

WELCOME = Welcome(epoch=7, session=1, heartbeat_ms=50, facts={})


class Scheduler(End):
    """Answers each registration with the answer that the test sets."""

    answer = WELCOME

    def on_messages(self, connection, messages):
        super().on_messages(connection, messages)
        if isinstance(messages[-1], Bye):
            connection.close()
        if isinstance(messages[0], RegisterClient):
            connection.send([self.answer])
            connection.wire.epoch, connection.wire.session = WELCOME.epoch, WELCOME.session


class Owner:
    """A process that notes what happens to its session."""

    def __init__(self):
        self.events = []
        self.changed = asyncio.Event()
        self.prepare_fails = 0

    def note(self, *event):
        self.events.append(event)
        self.changed.set()

    async def until(self, name, n=1):
        while sum(event[0] == name for event in self.events) < n:
            self.changed.clear()
            await within(20, self.changed.wait())
        return [event for event in self.events if event[0] == name][n - 1]

    async def prepare(self, connection, address, security):
        if self.prepare_fails:
            self.prepare_fails -= 1
            raise ConfigError("no data port")

    def registration(self, number, last_epoch):
        self.note("registration", number, last_epoch)
        return RegisterClient(
            client_id="c", name="", session=number, last_epoch=last_epoch, facts={}
        )

    def heartbeat(self):
        return [Heartbeat()]

    def on_welcome(self, connection, welcome, outage):
        self.note("welcome", connection.wire.epoch)

    def on_messages(self, connection, messages):
        self.note("messages", messages)

    def on_writable(self, connection):
        pass

    def on_lost(self, reason):
        self.note("lost", reason)

    def on_retry(self, outage, left_s):
        self.note("retry", outage.last_error)

    def on_outage(self, outage, left_s):
        self.note("outage", left_s)

    def on_over(self, end):
        self.note("over", end.error)


def runner_for(owner, address, **policy):
    session = Session(Policy(first_delay_s=0.01, **policy), random.Random(0).random)
    find = address if callable(address) else lambda: ([address], PLAIN)
    return SessionRunner(session, owner, find, role=Role.CLIENT)


async def started(address, answer=WELCOME):
    class Answering(Scheduler):
        pass

    Answering.answer = answer
    server = Server(Answering)
    return server, await server.start(address, security=PLAIN)


def test_a_session_registers_beats_and_says_goodbye(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s")
        owner = Owner()
        runner = runner_for(owner, address)
        runner.start()
        assert await owner.until("welcome") == ("welcome", 7)
        assert runner.connection is not None
        (end,) = server.ends
        await end.wait(lambda: sum(isinstance(m, Heartbeat) for m in end.messages) >= 2)
        await runner.leave("enough", 5.0)
        await end.wait(lambda: any(isinstance(m, Bye) for m in end.messages))
        assert await end.closed() is not None or end.errors == [None]
        assert await runner.over is None
        await server.listener.close()

    run(main())


def test_a_lost_scheduler_is_looked_up_again_and_met_with_the_next_number(run, tmp_path):
    async def main():
        server, first = await started(f"unix://{tmp_path}/first")
        other, second = await started(f"unix://{tmp_path}/second")
        places = [first]
        owner = Owner()
        runner = runner_for(owner, lambda: (places, PLAIN))
        runner.start()
        await owner.until("welcome")
        places[:] = [f"unix://{tmp_path}/nobody", second]
        server.connections[0].close()
        assert isinstance((await owner.until("lost"))[1], CommClosed)
        await owner.until("welcome", 2)
        assert [event for event in owner.events if event[0] == "registration"] == [
            ("registration", 1, 0),
            ("registration", 2, 7),
        ]
        assert runner.address == second
        await runner.leave("enough", 5.0)
        await server.listener.close()
        await other.listener.close()

    run(main())


def test_a_scheduler_of_a_lower_epoch_is_refused_and_another_one_waited_for(run, tmp_path):
    async def main():
        server, first = await started(f"unix://{tmp_path}/first")
        other, older = await started(
            f"unix://{tmp_path}/older", Welcome(epoch=6, session=1, heartbeat_ms=50, facts={})
        )
        places = [first]
        owner = Owner()
        runner = runner_for(owner, lambda: (places, PLAIN))
        runner.start()
        await owner.until("welcome")
        places[:] = [older]
        server.connections[0].close()
        error = (await owner.until("retry"))[1]
        assert "its epoch is 6, and this process had a session with epoch 7" in str(error)
        places[:] = [first]
        await owner.until("welcome", 2)
        await runner.leave("enough", 5.0)
        await server.listener.close()
        await other.listener.close()

    run(main())


def test_the_proof_of_an_epoch_is_shown_to_the_next_scheduler(run, tmp_path):
    proofs = []

    class Proving(Scheduler):
        answer = Welcome(epoch=7, session=1, heartbeat_ms=50, facts={}, epoch_proof="proof of 7")

        def on_messages(self, connection, messages):
            proofs.extend(m.epoch_proof for m in messages if isinstance(m, RegisterClient))
            super().on_messages(connection, messages)

    async def main():
        server = Server(Proving)
        owner = Owner()
        runner = runner_for(owner, await server.start(f"unix://{tmp_path}/s", security=PLAIN))
        runner.start()
        await owner.until("welcome")
        server.connections[0].close()
        await owner.until("welcome", 2)
        assert proofs == ["", "proof of 7"]
        await runner.leave("enough", 5.0)
        await server.listener.close()

    run(main())


@pytest.mark.parametrize("is_final", [True, False])
def test_a_refusal_is_typed_and_ends_the_attempts_if_the_policy_calls_it_final(
    run, tmp_path, is_final
):
    class Strict(Policy):
        def is_final(self, error, outage, now):
            return isinstance(error, HandshakeError)

    async def main():
        refused = Refused(reason="another Python", is_final=is_final)
        server, address = await started(f"unix://{tmp_path}/s", refused)
        owner = Owner()
        session = Session(Strict(), random.Random(0).random)
        runner = SessionRunner(session, owner, lambda: ([address], PLAIN), role=Role.CLIENT)
        runner.start()
        end = await runner.over
        assert type(end.error) is (NotAdmitted if is_final else HandshakeError)
        assert "another Python" in str(end.error)
        assert owner.events[-1] == ("over", end.error)
        await server.listener.close()

    run(main())


def test_an_error_before_the_registration_is_a_failed_attempt(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s")
        owner = Owner()
        owner.prepare_fails = 1
        runner = runner_for(owner, address)
        runner.start()
        await owner.until("welcome")
        assert runner.session.number == 1
        await runner.leave("enough", 5.0)
        await server.listener.close()

    run(main())


def test_a_look_up_without_an_answer_ends_when_the_time_is_over(run):
    def find():
        raise ConfigError("no connection file")

    async def main():
        owner = Owner()
        runner = runner_for(owner, find, first_s=0.05)
        runner.start()
        end = await runner.over
        assert isinstance(end.error, ConfigError)
        assert not end.is_final

    run(main())


def test_messages_reach_the_owner_without_heartbeats_and_not_after_the_loss(run, tmp_path):
    async def main():
        server, address = await started(f"unix://{tmp_path}/s")
        owner = Owner()
        runner = runner_for(owner, address, again_s=0.0)
        runner.start()
        await owner.until("welcome")
        (connection,) = server.connections
        connection.send([Heartbeat(), Stop(reason="enough")])
        assert await owner.until("messages") == ("messages", [Stop(reason="enough")])
        connection.send([Stop(reason="late")])
        runner.fail(CommClosed("given up"))
        assert (await runner.over).error.text == "given up"
        await server.ends[0].closed()
        assert sum(event[0] == "messages" for event in owner.events) == 1
        await server.listener.close()

    run(main())


@pytest.mark.parametrize("method", ["registration", "heartbeat", "on_welcome", "on_messages"])
def test_a_bug_of_the_owner_ends_its_session_for_good(run, tmp_path, caplog, method):
    class Broken(Owner):
        pass

    def fail(*args):
        raise KeyError("a bug")

    setattr(Broken, method, fail)

    async def main():
        server, address = await started(f"unix://{tmp_path}/s")
        owner = Broken()
        runner = runner_for(owner, address)
        runner.start()
        if method == "on_messages":
            await owner.until("welcome")
            server.connections[0].send([Stop(reason="enough")])
        end = await runner.over
        assert isinstance(end.error, InternalError)
        assert end.is_final
        assert owner.events[-1] == ("over", end.error)
        await server.ends[0].closed()
        assert runner.connection is None
        await server.listener.close()

    run(main())
    assert "a bug of weft ends the session" in caplog.text


def test_abort_leaves_no_attempt_behind(run, tmp_path):
    async def main():
        owner = Owner()
        runner = runner_for(owner, f"unix://{tmp_path}/nobody")
        runner.start()
        runner.abort()
        assert await runner.over is None
        assert owner.events == []

    run(main())
