"""Plugins in the client's core: they are stated anew to each new scheduler, before all else."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Bench, Listener
from weft.client.core.events import Disconnected, Warn
from weft.client.core.features.plugins import plugins_of
from weft.client.core.features.questions import AskScheduler
from weft.protocol.wire.messages import Answer, Ask, AskFailed, PluginGone, PluginsKept, Resubmitted


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    assert bench.connect(1) == []
    return bench


def register(bench, content="1", **info):
    """Let a user register a plugin; `info` is the answer."""
    arguments = {"name": "p", "plugin": f"p-{content}"}
    watcher = Listener(wants_data=False)
    question = AskScheduler(watcher, "register_plugin", arguments, blobs=[b"x"])
    (sent,) = bench.do(question)
    bench.hear(Answer(request=sent.request, info=info))


def again(bench, epoch=2):
    """Let another scheduler come; return what it is asked first."""
    bench.handle(Disconnected())
    *asked, last = bench.connect(epoch)
    assert isinstance(last, Resubmitted)
    return asked


def test_a_new_scheduler_is_sent_what_the_last_one_had(bench):
    register(bench, workers=[])
    register(bench, "2", n_failed=1)
    (stated,) = again(bench)
    assert isinstance(stated, Ask)
    assert (stated.name, stated.arguments["plugin"]) == ("register_plugin", "p-1")
    assert stated.blobs == [b"x"]
    assert bench.hear(Answer(request=stated.request, info={"workers": []})) == ([], [])
    assert len(again(bench, 3)) == 1


def test_the_same_scheduler_is_not(bench):
    register(bench, workers=[])
    bench.handle(Disconnected())
    assert bench.connect(1) == [Resubmitted()]


def test_one_that_was_ignored_is_not_stated(bench):
    register(bench, workers=[], was_ignored=True)
    assert again(bench) == []


def test_one_that_another_client_has_stated_first_is_forgotten(bench):
    register(bench, workers=[])
    (stated,) = again(bench)
    answer = Answer(request=stated.request, info={"workers": [], "was_ignored": True})
    assert bench.hear(answer) == ([], [])
    assert again(bench, 3) == []


def test_plugins_that_ended_are_forgotten(bench):
    register(bench, workers=[])
    bench.hear(PluginGone(plugin="p-1"))
    assert again(bench) == []


def test_plugins_that_ended_while_the_connection_was_lost_are_forgotten(bench):
    """A `PluginGone` was sent before the connection broke, and not read."""
    register(bench, "1", workers=[])
    register(bench, "2", workers=[])
    bench.handle(Disconnected())
    bench.connect(1)
    bench.hear(PluginsKept(plugins=["p-2", "of another client"]))
    assert [stated.arguments["plugin"] for stated in again(bench)] == ["p-2"]


def test_unconfirmed_plugins_are_stated_again_in_the_next_session(bench):
    register(bench, "1", workers=[])
    register(bench, "2", workers=[])
    first, _second = again(bench)
    bench.hear(Answer(request=first.request, info={"workers": []}))
    bench.handle(Disconnected())
    stated, _ = bench.connect(2)
    assert stated.arguments["plugin"] == "p-2"
    bench.hear(PluginsKept(plugins=["p-1"]))
    assert {*plugins_of(bench.core).kept} == {"p-1", "p-2"}
    bench.hear(Answer(request=stated.request, info={"workers": []}))
    bench.handle(Disconnected())
    assert bench.connect(2) == [Resubmitted()]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda n: Answer(request=n, info={"n_failed": 3}), "it failed on 3 of the workers"),
        (lambda n: AskFailed(request=n, kind="bad-argument", text="too many"), "too many"),
    ],
)
def test_failures_then_are_warnings(bench, make, text):
    register(bench, workers=[])
    (stated,) = again(bench)
    (warning,) = bench.acted_on(make(stated.request))
    assert isinstance(warning, Warn)
    assert text in warning.text
    assert "register it again" in warning.text
