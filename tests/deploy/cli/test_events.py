"""`weft events`: what it prints, and a real cluster whose events are followed."""

from __future__ import annotations

import json

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from weft.deploy.cli.events import as_record, show


def test_an_event_of_the_scheduler_is_one_line_with_its_subject_first():
    event = {"event": "worker-left", "reason": "its lifetime\nis over", "n_lost": 0, "worker": "w1"}
    line = show(1.0, event).split(" ", 2)[2]
    assert line == r"worker-left w1 reason='its lifetime\nis over' n_lost=0"


@pytest.mark.parametrize("event", [("loss", 1.5), {"loss": 1.5}, None])
def test_an_event_of_a_user_is_printed_as_it_is(event):
    assert show(1.0, event).endswith(f" {event!r}")


def test_a_record_has_texts_for_what_json_does_not_have():
    assert json.loads(as_record(1.5, {"event": "mine", "of": {1}})) == {
        "time": 1.5,
        "event": {"event": "mine", "of": "{1}"},
    }


@pytest.mark.slow
def test_events_of_a_cluster_are_chosen_and_followed(tmp_path):
    with (
        scheduler(folder=tmp_path) as master,
        daemon("worker", "--name", "w", "--nworkers", "1", folder=tmp_path),
        weft.Client(connection_file=file_of(master), name="me") as client,
    ):
        client.wait_for_workers(1, timeout=60)
        failed = client.submit(int, "x", key="no number")
        assert failed.exception(60) is not None
        client.log_event("loss", {"step": 1})
        chosen = run(
            "events", "--event", "worker-joined", "--event", "task-failed", folder=tmp_path
        )
        assert (chosen.returncode, chosen.stderr) == (0, "")
        joined, *_, erred = chosen.stdout.splitlines()
        assert " worker-joined w" in joined
        assert "task-failed no number" in erred
        mine = run("events", "loss", "--json", folder=tmp_path)
        assert json.loads(mine.stdout)["event"] == {"step": 1}
        none = run("events", "-n", "0", folder=tmp_path)
        assert (none.returncode, none.stdout) == (0, "")
        with daemon("events", "-f", "-n", "1", "--event", "task-failed", folder=tmp_path) as shown:
            shown.wait_for("no number")
            again = client.submit(int, "y", key="another")
            assert again.exception(60) is not None
            shown.wait_for("another")
