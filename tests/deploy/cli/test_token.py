"""`weft token`, and what the files that it writes permit."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

import weft
from tests.deploy.daemons import address_of, daemon, file_of, run, scheduler
from weft.deploy.cli.token import ROLES
from weft.protocol.errors import ConfigError, NotPermitted
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import new_token
from weft.protocol.wire.levels import Level


def test_the_roles_of_the_command_are_the_levels():
    assert [*ROLES] == [level.label for level in reversed(Level)]


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(new_token() + "\n")
    path.chmod(0o600)
    return path


def test_a_bare_token_is_derived_without_a_scheduler(tmp_path, token_file):
    made = {}
    for role in ROLES:
        options = ("--role", role, "--bare", "--token-file", str(token_file))
        printed = run("token", *options, folder=tmp_path)
        assert printed.returncode == 0, printed.stderr
        made[role] = printed.stdout
        written = run("token", *options, "--output", role, folder=tmp_path)
        assert (written.returncode, written.stdout) == (0, "")
        assert (tmp_path / role).read_text() == printed.stdout
        assert (tmp_path / role).stat().st_mode & 0o777 == 0o600
    assert made["admin"] == token_file.read_text()
    assert made["view"].startswith("view.")
    # From the file of a lower role come the same tokens, and no higher one.
    options = ("--bare", "--token-file", "client")
    assert run("token", "--role", "view", *options, folder=tmp_path).stdout == made["view"]
    done = run("token", "--role", "admin", *options, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "a token of role admin cannot be derived from one of role client" in done.stderr
    # A file that is there may be the only copy of its token.
    again = run("token", "--role", "view", *options, "--output", "token", folder=tmp_path)
    assert again.returncode == 2
    assert "exists and will not be replaced" in again.stderr


def test_a_token_of_a_client_carries_a_user(tmp_path, token_file):
    options = ("--role", "client", "--bare", "--token-file")
    made = run("token", *options, "token", "--user", "ann", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("client.ann.")
    (tmp_path / "ann").write_text(made.stdout)
    (tmp_path / "ann").chmod(0o600)
    # Hers gives the lower ones, and no other user's.
    view = ("--role", "view", "--bare", "--token-file")
    given = [run("token", *view, name, folder=tmp_path).stdout for name in ("ann", "token")]
    assert given[0] == given[1] != ""
    for role, user, text in (
        ("client", "bob", "a token of user bob cannot be derived from that of user ann"),
        ("worker", "bob", "only tokens of role client carry a user, not worker"),
        ("client", "b b", "'b b' cannot be the name of a user"),
    ):
        arguments = ("--role", role, "--bare", "--token-file", "ann", "--user", user)
        refused = run("token", *arguments, folder=tmp_path)
        assert refused.returncode == 2
        assert text in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [("--token-file", "token"), ("--token-file", "token", "--bare", "tcp://127.0.0.1:1")],
)
def test_a_token_file_gives_bare_tokens_only(tmp_path, token_file, arguments):
    done = run("token", "--role", "view", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "it needs --bare, and no scheduler" in done.stderr


def test_a_scheduler_needs_the_token_of_an_admin(tmp_path, token_file):
    options = ("--role", "client", "--bare", "--token-file", "token", "--output", "client")
    run("token", *options, folder=tmp_path)
    done = run("scheduler", "--port", "0", "--token-file", "client", folder=tmp_path)
    assert done.returncode == 2
    assert "client has a token of role client" in done.stderr


@pytest.mark.slow
def test_each_role_may_do_what_its_file_says_and_no_more(tmp_path):
    with scheduler("--dashboard-address", "127.0.0.1:0", folder=tmp_path) as started:
        own = file_of(started)
        files = {}
        for role in ROLES:
            files[role] = tmp_path / f"{role}.json"
            options = ("--connection-file", str(own), "--output", str(files[role]))
            done = run("token", "--role", role, *options, folder=tmp_path)
            assert done.returncode == 0, done.stderr
            printed = run("token", "--role", role, folder=tmp_path)
            assert json.loads(printed.stdout) == json.loads(files[role].read_text())
            assert files[role].stat().st_mode & 0o777 == 0o600
        assert files["admin"].read_text() == own.read_text()

        refused = run("worker", "--connection-file", str(files["view"]), folder=tmp_path)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "a worker needs a token of role worker, and this one is of role view" in (
            refused.stderr
        )
        options = ("--connection-file", str(files["worker"]), "--nworkers", "1")
        with daemon("worker", *options, folder=tmp_path) as worker:
            worker.wait_for("registered")
            for role in ("worker", "view"):
                with pytest.raises(ConfigError, match="a client needs a token of role client"):
                    weft.Client(connection_file=files[role])
                info = run("info", "--connection-file", str(files[role]), folder=tmp_path)
                assert "1 with" in info.stdout, info.stderr
            with weft.Client(connection_file=files["client"]) as client:
                assert client.submit(abs, -1).result(60) == 1
                with pytest.raises(NotPermitted, match="role admin, and this one is of role clie"):
                    client.shutdown()
                assert client.submit(abs, -2).result(60) == 2

            dashboard = ConnectionFile.read(own).dashboard
            assert dashboard is not None
            for role in ROLES:
                bearer = ConnectionFile.read(files[role]).token
                request = urllib.request.Request(
                    f"{dashboard}metrics", headers={"Authorization": f"Bearer {bearer}"}
                )
                if role == "view":
                    with urllib.request.urlopen(request, timeout=30) as answer:
                        assert b"weft_scheduler_workers" in answer.read()
                else:
                    with pytest.raises(urllib.error.HTTPError) as caught:
                        urllib.request.urlopen(request, timeout=30)
                    assert caught.value.code == 401
                    assert f"of role {role}" in caught.value.read().decode()

            # The scheduler's own file is not replaced by one that permits less, and none is put
            # where it would be taken for that of another scheduler.
            for output, words in (
                (files["admin"], "has a token of role admin, which would be lost"),
                (own, "two would be found"),
                (own.with_name("view.json"), "two would be found"),
            ):
                options = ("--role", "view", "--output", str(output))
                done = run("token", *options, folder=tmp_path)
                assert done.returncode == 2
                assert done.stderr.count("\n") == 1
                assert words in done.stderr

            with weft.Client(connection_file=files["admin"]) as owner:
                owner.shutdown()
            assert worker.process.wait(30) == 0
        assert started.process.wait(30) == 0


@pytest.mark.slow
def test_an_address_and_the_bare_token_of_a_worker_are_enough_for_one(tmp_path, token_file):
    options = ("--role", "worker", "--bare", "--token-file", "token", "--output", "worker")
    run("token", *options, folder=tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with (
        scheduler("--token-file", str(token_file), folder=tmp_path) as started,
        daemon(
            *("worker", address_of(started), "--nworkers", "1"),
            folder=tmp_path / "elsewhere",
            WEFT_TOKEN_FILE=str(tmp_path / "worker"),
        ) as worker,
    ):
        worker.wait_for("registered")
        done = run(
            *("token", address_of(started), "--role", "worker"),
            folder=tmp_path / "elsewhere",
            WEFT_TOKEN_FILE=str(tmp_path / "worker"),
        )
        assert done.returncode == 2
        assert "use --bare, or the scheduler's connection file" in done.stderr
