"""Each process handles the messages that are declared to be sent to it, and no others."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from weft.client.core.features import FEATURES as CLIENT_FEATURES
from weft.client.core.state import ClientState
from weft.client.core.table import FutureTable
from weft.client.shell.actor_connections import _ActorConnection
from weft.deploy.http.viewer import Viewer
from weft.protocol.net.data_connection import _DataConnection
from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message, sent_by, sent_to
from weft.protocol.wire.roles import CLIENTS, Role
from weft.worker.core.features import FEATURES as WORKER_FEATURES
from weft.worker.core.state import WorkerState
from weft.worker.data.serving import DataServer
from weft.worker.family.supervisor_link import SupervisorLink
from weft.worker.server import WorkerServer

#: Handled for every process by `protocol/net/session.py`.
OF_SESSIONS = {m.Welcome, m.Refused, m.Heartbeat}


def named_in(function: Callable[..., Any]) -> set[type[Message]]:
    """Return the classes of messages by which a function distinguishes what it is given."""
    names = vars(sys.modules[function.__module__])
    found: set[type[Message]] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            kinds = eval(ast.unparse(node.args[1]), names)
            found.update(kinds if isinstance(kinds, tuple) else (kinds,))
    return found


@pytest.mark.parametrize("role", CLIENTS)
def test_a_client_handles_what_it_is_sent(role):
    # After a farewell the connection ends, and then the client looks for the next scheduler.
    handlers = ClientState(FutureTable(nullcontext()), CLIENT_FEATURES).handlers
    handled = {kind for kind in handlers if issubclass(kind, Message)}
    assert handled == {*sent_to(role)} - OF_SESSIONS - {m.Bye}


def test_a_worker_handles_what_it_is_sent():
    others = named_in(WorkerServer._on_other)
    of_core = {*WorkerState(1, "", WORKER_FEATURES).messages}
    assert not of_core & others
    assert of_core | others == {*sent_to(Role.WORKER)} - OF_SESSIONS


def test_a_supervisor_handles_what_it_is_sent():
    # It asks nothing that a scheduler may not know.
    expected = {*sent_to(Role.SUPERVISOR)} - OF_SESSIONS - {m.Bye, m.Unsupported}
    assert named_in(SupervisorLink.on_messages) == expected


def test_a_viewer_handles_what_it_is_sent():
    assert named_in(Viewer.on_messages) == {*sent_to(Role.VIEWER)} - {m.Bye, m.Heartbeat}


def test_both_ends_of_a_connection_to_a_data_port_handle_what_they_are_sent():
    assert named_in(DataServer.on_messages) == {*sent_by(Role.PEER)}
    read = named_in(_DataConnection.on_messages) | named_in(_ActorConnection.on_messages)
    assert read == {*sent_to(Role.PEER)}
