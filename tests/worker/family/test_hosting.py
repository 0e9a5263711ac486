"""The decisions about the plugins of a supervisor: orders, workers and the host in, actions out."""

from __future__ import annotations

from typing import Any

import pytest

from weft.protocol.wire.messages import (
    PluginsKept,
    RenewWorkers,
    SetUpOnSupervisor,
    TearDownOnSupervisor,
)
from weft.worker.family.hosting import (
    EndFamily,
    HoldWorkers,
    Hosting,
    KillHost,
    LetHostEnd,
    ReleaseWorkers,
    ReplaceWorkers,
    ReportJob,
    RunJob,
    StartHost,
    WatchJob,
)

FAILURE = [b"", "ValueError", "no", "", b""]


class Play:
    """A `Hosting`, and short calls of it that return the actions."""

    def __init__(self) -> None:
        self.core = Hosting()
        self.request = 0

    def take(self) -> list[Any]:
        actions, self.core.actions = self.core.actions, []
        return actions

    def order(self, order: Any) -> list[Any]:
        self.core.on_order("line", order)
        return self.take()

    def set_up(self, plugin: str = "p", *, is_required: bool = False) -> list[Any]:
        self.request += 1
        return self.order(
            SetUpOnSupervisor(
                request=self.request,
                plugin=plugin,
                name=plugin.upper(),
                blobs=[b"pickle"],
                is_required=is_required,
            )
        )

    def tear_down(self, plugin: str = "p") -> list[Any]:
        self.request += 1
        return self.order(TearDownOnSupervisor(request=self.request, plugin=plugin))

    def started(self) -> list[Any]:
        self.core.on_host_started()
        return self.take()

    def done(self, failure: Any = None, environment: dict[str, str] | None = None) -> list[Any]:
        self.core.on_result(failure, environment or {})
        return self.take()

    def ended(self, why: str = "exit code 3", lived_s: float = 100.0) -> list[Any]:
        self.core.on_host_ended(why, lived_s)
        return self.take()

    def worker_ended(self, worker_id: str) -> list[Any]:
        self.core.on_worker_ended(worker_id)
        return self.take()

    def ready(self, *plugins: str) -> Play:
        """Have plugins set up."""
        for plugin in plugins:
            if any(isinstance(action, StartHost) for action in self.set_up(plugin)):
                self.started()
            self.done()
        return self


def kinds(actions: list[Any]) -> list[str]:
    return [type(action).__name__ for action in actions]


def reports(actions: list[Any]) -> list[tuple[int, Any]]:
    return [(x.asked.request, x.failure) for x in actions if isinstance(x, ReportJob)]


@pytest.fixture
def play() -> Play:
    return Play()


def test_the_host_is_started_with_the_first_plugin_and_ends_with_the_last(play):
    assert play.set_up() == [StartHost(0.0)]
    (run,) = play.started()
    assert (run.job.step, run.job.name, run.job.blob) == ("setup", "P", b"pickle")
    assert reports(play.done(environment={"A": "1"})) == [(1, None)]
    assert play.core.environment == {"A": "1"}
    (run,) = play.tear_down()
    assert isinstance(run, RunJob)
    report, end = play.done()
    assert isinstance(report, ReportJob)
    assert end == LetHostEnd()
    assert play.ended() == []
    assert play.set_up() == [StartHost(0.0)]


def test_plugins_are_set_up_one_after_the_other(play):
    play.set_up("p")
    assert play.set_up("q") == []
    play.started()
    report, run = play.done()
    assert isinstance(report, ReportJob)
    assert run.job.plugin == "q"


def test_one_that_is_set_up_already_is_only_reported(play):
    play.ready("p")
    (report,) = play.set_up("p")
    assert report.was_ready
    (report,) = play.tear_down("unknown")
    assert report.failure is None


def test_a_required_plugin_comes_before_the_workers(play):
    play.core.on_worker_started("w1")
    assert play.set_up(is_required=True) == [HoldWorkers(ends_running=True)]
    assert play.core.is_holding
    assert play.worker_ended("w1") == [StartHost(0.0)]
    play.started()
    assert kinds(play.done()) == ["ReportJob", "ReleaseWorkers"]
    assert not play.core.is_holding


def test_a_required_plugin_that_fails_ends_the_family(play):
    play.set_up(is_required=True)
    play.started()
    assert kinds(play.done(FAILURE)) == ["ReportJob", "EndFamily"]
    assert play.core.is_holding, "no worker is started any more"
    play.core.close()
    assert play.take() == [LetHostEnd()]


def test_another_plugin_that_fails_ends_nothing(play):
    play.ready("p")
    play.set_up("q")
    assert reports(play.done(FAILURE)) == [(2, FAILURE)]
    assert [*play.core.ready] == ["p"]


def test_plugins_of_a_dead_host_are_set_up_again_and_meanwhile_no_worker_is_started(play):
    play.ready("p", "q")
    play.core.on_worker_started("w1")
    play.set_up("r")
    hold, report, start = play.ended(lived_s=1.0)
    assert hold == HoldWorkers(ends_running=False)
    assert "exit code 3" in report.failure
    assert start == StartHost(0.0)
    assert [a.job.plugin for a in play.started()] == ["p"]
    assert [a.job.plugin for a in play.done()] == ["q"]
    assert play.done() == [ReleaseWorkers()]
    assert [*play.core.ready] == ["p", "q"]
    hold, start = play.ended(lived_s=1.0)
    assert start.pause_s > 0, "the pauses grow"


def test_one_that_cannot_be_set_up_again_ends_the_family(play):
    play.ready("p")
    play.ended()
    play.started()
    assert play.done(FAILURE) == [EndFamily("plugin 'P' could not be set up here")]


def test_a_host_that_dies_in_a_teardown_has_torn_down(play):
    play.ready("p", "q")
    play.tear_down("p")
    actions = play.ended()
    assert reports(actions) == [(3, None)]
    assert [a.job.plugin for a in play.started()] == ["q"]


def test_a_set_up_that_hangs_is_ended_by_its_teardown(play):
    play.ready("p")
    play.set_up("q", is_required=True)
    (watch,) = play.tear_down("q")
    assert isinstance(watch, WatchJob)
    play.core.on_overdue(watch.job)
    assert play.take() == [KillHost()]
    actions = play.ended("killed")
    assert "EndFamily" not in kinds(actions)
    assert [a.job.plugin for a in play.started()] == ["p"]
    assert (3, None) in reports(play.done())
    assert not play.core.is_holding


def test_a_set_up_that_returns_in_time_is_torn_down(play):
    play.set_up("p")
    play.started()
    (watch,) = play.tear_down("p")
    report, run = play.done()
    assert isinstance(report, ReportJob)
    assert run.job.step == "teardown"
    play.core.on_overdue(watch.job)
    assert play.take() == []


def test_workers_are_replaced_and_the_answer_follows_when_the_old_ones_have_ended(play):
    play.core.on_worker_started("w1")
    play.core.on_worker_started("w2")
    assert play.order(RenewWorkers(request=7)) == [ReplaceWorkers()]
    assert play.worker_ended("w1") == []
    play.core.on_worker_started("w3")
    assert reports(play.worker_ended("w2")) == [(7, None)]
    assert reports(Play().order(RenewWorkers(request=8))) == [(8, None)]


def test_plugins_that_ended_during_a_lost_connection_are_torn_down(play):
    play.ready("p", "q")
    (run,) = play.order(PluginsKept(plugins=["q"]))
    assert (run.job.step, run.job.plugin) == ("teardown", "p")
    assert play.done() == []
    assert [*play.core.ready] == ["q"]


def test_at_the_end_the_host_tears_down_by_itself_and_nothing_is_answered(play):
    play.ready("p")
    play.set_up("q")
    play.core.close()
    assert play.take() == [LetHostEnd()]
    assert play.ended() == []


def test_a_host_that_is_forked_after_the_end_was_ordered_ends(play):
    play.set_up("p")
    play.core.close()
    assert play.take() == []
    assert play.started() == [LetHostEnd()]
