"""Two users of one cluster, each with a token of their own: real processes."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from weft.protocol.errors import NotPermitted, UserLimit

LIMIT = 20


@pytest.mark.slow
def test_users_have_tokens_turns_and_limits_of_their_own(tmp_path):
    with scheduler("--no-dashboard", "--user-tasks", str(LIMIT), folder=tmp_path) as started:
        own = str(file_of(started))
        files = {}
        for user in ("ann", "bob"):
            files[user] = tmp_path / f"{user}.json"
            options = ("--connection-file", own, "--output", str(files[user]))
            done = run("token", "--role", "client", "--user", user, *options, folder=tmp_path)
            assert done.returncode == 0, done.stderr
        arguments = ("--connection-file", own, "--nworkers", "1", "--nthreads", "1")
        with (
            daemon("worker", *arguments, folder=tmp_path),
            connect(files["ann"]) as ann,
            connect(files["ann"]) as other,
            connect(files["bob"]) as bob,
        ):
            ann.wait_for_workers(1)
            clients = ann.scheduler_info()["clients"]
            assert sorted(name.partition(" ")[2] for name in clients) == [
                "(user ann)", "(user ann)", "(user bob)",
            ]  # fmt: skip

            held = ann.map(operator.neg, range(LIMIT))
            ann.gather(held)  # so they are there when those of the other client come
            # Both are one user; bob is another.
            refused = other.submit(operator.neg, 1000)
            with pytest.raises(UserLimit, match="user ann") as caught:
                refused.result(timeout=30)
            assert (caught.value.setting, caught.value.limit) == ("user-tasks", LIMIT)
            assert caught.value.n_tasks == LIMIT
            assert bob.submit(operator.neg, 1000).result(timeout=30) == -1000
            # A large result is read at the worker's data port, with the token of a worker.
            large = bob.submit(bytes, 30_000_000)
            assert len(large.result(timeout=30)) == 30_000_000

            # Accepted tasks go on, and when they are let go the user may submit again.
            assert ann.gather(held) == [-i for i in range(LIMIT)]
            del held
            ann.scheduler_info()  # the release was read before
            again = other.submit(operator.neg, 2000)
            assert again.result(timeout=30) == -2000
            with pytest.raises(NotPermitted):
                bob.shutdown()


def connect(path: Path) -> weft.Client:
    return weft.Client(connection_file=str(path))
