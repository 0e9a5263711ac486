"""The scheduler's shell when a peer has seen a later epoch: it starts over, or gives way."""

from __future__ import annotations

import asyncio

import pytest

from weft.protocol.errors import TakenOver
from weft.protocol.wire.messages import RegisterClient, Welcome
from weft.scheduler.core.records.presence import Members
from weft.scheduler.server import SchedulerServer

from .test_server import SECURITY, SchedulerConfig, a_client, a_stranger, running


class Record:
    """Keeps what a state directory keeps."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def keep_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def keep_members(self, members: Members) -> None:
        """Keep nothing: no test reads it."""


def registration(last_epoch: int) -> RegisterClient:
    return RegisterClient(client_id="c", name="c", session=1, last_epoch=last_epoch, facts={})


async def test_a_scheduler_whose_clock_is_behind_starts_over_and_keeps_its_new_epoch(caplog):
    record = Record()
    async with running("inproc://behind", keeper=record) as server:
        first, later = server.state.epoch, server.state.epoch + 10**15
        other, _ = await a_client(server)
        end, connection = await a_stranger(server)
        connection.send([registration(later)])
        await asyncio.wait_for(end.closed(), 20)
        await asyncio.wait_for(other.closed(), 20)
        assert server.state.epoch > later
        assert record.epochs == [first, server.state.epoch]
        again, connection = await a_stranger(server)
        connection.send([registration(later)])
        welcome = (await again.got(1))[0]
        assert isinstance(welcome, Welcome)
        assert welcome.epoch == server.state.epoch


async def test_a_scheduler_that_has_given_out_work_ends_when_another_one_has_taken_over(caplog):
    server = SchedulerServer(SchedulerConfig(["inproc://zombie"], SECURITY))
    await server.start()
    server.state.next_attempt += 1
    end, connection = await a_stranger(server)
    connection.send([registration(server.state.epoch + 1)])
    with pytest.raises(TakenOver):
        await asyncio.wait_for(server.wait_stopped(), 20)
    await asyncio.wait_for(end.closed(), 20)
    assert "another scheduler of this cluster has taken over" in caplog.text
