"""Two users of one cluster, each with a token of their own: real processes."""

from __future__ import annotations

import operator
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.leaks import wait_until
from weft.protocol.errors import NotPermitted, UserLimit

from .test_scheduler_restarts import locked

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


def gated(gate):
    with open(gate) as file:
        flock(file, LOCK_EX)


@pytest.mark.slow
def test_jobs_have_the_limits_of_their_users_also_in_the_next_scheduler(tmp_path):
    limit = ("--user-running", "1")
    workers = ("--nworkers", "2", "--nthreads", "1")
    gate = tmp_path / "gate"
    with (
        scheduler("--no-dashboard", *limit, folder=tmp_path) as started,
        daemon("worker", *workers, folder=tmp_path) as ready,
    ):
        ready.wait_for("registered", 2)
        files = {user: tmp_path / f"{user}.json" for user in ("ann", "bob")}
        keys = {}
        with locked(gate):
            for user, path in files.items():
                own = ("--connection-file", str(file_of(started)), "--output", str(path))
                done = run("token", "--role", "client", "--user", user, *own, folder=tmp_path)
                assert done.returncode == 0, done.stderr
                with connect(path) as client:
                    futures = client.map(gated, [str(gate)] * 3, pure=False, detached=True)
                    keys[user] = [future.key for future in futures]
            restarted(started, real_pid(started))
            with connect(file_of(started)) as client:
                client.wait_for_workers(2, timeout=60)
                for user in files:
                    held = f"1 task of user {user} may run"
                    wait_until(
                        lambda of_user=keys[user], held=held: (
                            sum(held in str(client.explain(key)) for key in of_user) == 2
                        ),
                        60,
                        f"two held jobs of {user}",
                    )
        with connect(file_of(started)) as client:
            for key in (*keys["ann"], *keys["bob"]):
                client.job_result(key, timeout=60)
            client.wait_recorded()
            assert {job.key for job in client.jobs(user="ann", state="done")} == {*keys["ann"]}
            assert {job.user for job in client.jobs()} == {"ann", "bob"}
        at = ("--connection-file", str(file_of(started)))
        listed = run("queue", "--user", "bob", *at, folder=tmp_path)
        assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == keys["bob"][::-1]
        journal = next(tmp_path.rglob("journal.sqlite"))
        listed = run("journal", "list", str(journal), folder=tmp_path)
        assert listed.stdout.splitlines()[0].split()[4] == "USER"


def connect(path: Path) -> weft.Client:
    return weft.Client(connection_file=str(path))
