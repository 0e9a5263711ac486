"""A task that asks for a client, or uses a future, gets an error with advice."""

from __future__ import annotations

import pytest

import weft


@pytest.mark.slow
def test_a_task_has_no_client_and_cannot_use_a_future():
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        with pytest.raises(weft.ClientClosed, match="a task has no client: tasks cannot submit"):
            client.submit(weft.Client.current).result(60)
        future = client.submit(abs, -1)
        with pytest.raises(weft.ClientClosed, match="cannot be used inside a task: pass it as an"):
            client.submit(lambda: future.result()).result(60)
