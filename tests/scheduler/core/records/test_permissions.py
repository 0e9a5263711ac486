"""The rights of a token: the least level of each message, and the answer to a message beyond it."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import graph
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.message import _REGISTRY, sent_by
from weft.protocol.wire.roles import ROLE_LEVELS, Role
from weft.scheduler.core.feature import Feature
from weft.scheduler.core.state import SchedulerState


def test_the_handlers_are_those_of_the_messages_that_peers_declare_to_send(board):
    declared = {kind for role in board.state._handlers for kind in sent_by(role)}
    assert {kind for kinds in board.state._handlers.values() for kind in kinds} == declared
    assert board.state.features.handlers.keys() == declared


@pytest.mark.parametrize("kind", [m.RetryKeys, m.Bye])
def test_a_feature_cannot_take_a_message_of_the_kernel(kind):
    feature = Feature(name="mine", handlers={kind: print})
    with pytest.raises(ValueError, match=f"'the kernel' and 'mine' both declare .*{kind.__name__}"):
        SchedulerState(1, features=[feature])


@pytest.mark.parametrize("role", [Role.CLIENT, Role.TASK_CLIENT, Role.WORKER, Role.SUPERVISOR])
def test_one_message_registers_peers_of_a_role(role):
    opening = {Role.WORKER: m.RegisterWorker, Role.SUPERVISOR: m.RegisterSupervisor}
    found = [kind for kind in _REGISTRY.values() if kind.opens and role in kind.senders]
    assert found == [opening.get(role, m.RegisterClient)]


@pytest.mark.parametrize("role", [Role.CLIENT, Role.WORKER, Role.SUPERVISOR, Role.VIEWER])
def test_the_level_of_a_role_permits_all_of_its_messages_but_the_shutdown(board, role):
    level = ROLE_LEVELS[role]
    beyond = [kind for kind in board.state._handlers[role] if kind.least_level > level]
    assert beyond == ([m.ShutdownCluster] if role is Role.CLIENT else [])


def test_a_shutdown_without_the_token_of_an_admin_is_denied_and_disturbs_nothing(board):
    worker, client = board.worker(), board.client(level=Level.CLIENT)
    out = board.send(client, m.ShutdownCluster(reason="mine", request=7), m.Heartbeat())
    denied = m.Denied(request=7, needed="admin", level="client")
    assert out == {client: [denied, m.Heartbeat(next_ms=2000)]}
    assert board.actions == []
    assert board.state.counters.denied == 1
    assert board.state.counters.protocol_errors == 0
    assert {worker, client} == {*board.state.roles}


def test_the_level_belongs_to_the_connection_and_not_to_the_client(board):
    first = board.client(level=Level.ADMIN)
    again = board.client(level=Level.CLIENT)
    assert first not in board.state.levels
    board.send(again, m.ShutdownCluster(reason="mine", request=1))
    assert board.actions == []
    board.send(board.client("bob", level=Level.ADMIN), m.ShutdownCluster(reason="mine"))
    assert [type(action).__name__ for action in board.actions] == ["LogLine", "StopServer"]


def test_a_message_of_another_role_still_ends_the_connection_whatever_the_level(board):
    worker = board.worker()
    board.state.levels[worker] = Level.ADMIN
    board.send(worker, m.ShutdownCluster(reason="mine"))
    assert board.refused() == ["a worker may not send ShutdownCluster"]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.WORKER])
def test_a_message_that_only_a_higher_level_may_send_is_denied_with_that_level(board, role):
    peer = board.worker() if role is Role.WORKER else board.connect(role)
    out = board.send(peer, graph("a"), m.WantKeys(keys=["a"]))
    level = ROLE_LEVELS[role].label
    assert [x for x in out[peer] if isinstance(x, m.Denied)] == [
        m.Denied(request=0, needed="client", level=level)
    ] * 2
    assert board.states("a") == ["-"]
    assert board.refused() == []
    assert peer in board.state.roles
