"""A detached call is accepted if the scheduler says that it is recorded."""

from __future__ import annotations

import pytest

from weft.protocol.errors import JobNotRecorded, QuestionFailed


@pytest.mark.parametrize("answers", [None, [{"unrecorded": 5}]])
def test_a_job_is_not_accepted_if_the_scheduler_cannot_say_that_it_is_recorded(
    scheduler, client, answers
):
    if answers is not None:
        scheduler.answers["recorded"] = answers
    with pytest.raises(JobNotRecorded, match="does not say whether it is recorded") as caught:
        client.submit(abs, -7, detached=True)
    assert isinstance(caught.value.__cause__, QuestionFailed)


def test_a_job_is_accepted_by_a_scheduler_that_names_no_jobs_that_are_not_recorded(
    scheduler, client
):
    scheduler.answers["recorded"] = [{}]
    assert client.submit(abs, -7, detached=True).result(60) == 7


def test_the_first_job_that_is_not_recorded_is_named(scheduler, client):
    scheduler.answers["recorded"] = [{"unrecorded": {"b": "the disk is full"}}]
    with pytest.raises(JobNotRecorded, match=r"'b' was not recorded.*the disk is full"):
        client.map(abs, [1, 2, 3], key=["a", "b", "c"], detached=True)
    client.wait_recorded()
