"""`weft dashboard`: links into the pages, with the role that is wished."""

from __future__ import annotations

import urllib.request

import pytest

from tests.deploy.daemons import run, scheduler
from weft.deploy.cli.dashboard import ROLES

pytestmark = pytest.mark.slow


def cookies_of(link):
    with urllib.request.urlopen(link, timeout=30) as answer:
        return answer.headers.get_all("Set-Cookie", ())


def test_a_link_permits_what_was_wished_for_and_a_token_of_a_lower_role_makes_none(tmp_path):
    with scheduler("--dashboard-address", "127.0.0.1:0", folder=tmp_path) as started:
        for role in ROLES:
            done = run("dashboard", "--role", role, folder=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert (f"claim={role}." in done.stdout) == (role != "view")
            assert len(cookies_of(done.stdout.strip())) == (1 if role == "view" else 2)
        assert "claim=client." in run("dashboard", folder=tmp_path).stdout
        run("token", "--role", "client", "--user", "ann", "--output", "ann", folder=tmp_path)
        of_ann = run("dashboard", "--connection-file", "ann", folder=tmp_path)
        assert "claim=client.ann." in of_ann.stdout
        done = run("dashboard", "--connection-file", "ann", "--role", "admin", folder=tmp_path)
        assert done.returncode != 0
        assert "weft dashboard --role admin" in done.stderr
        assert "admin" in done.stderr
        assert "user ann at 127.0.0.1" not in started.err
        cookies_of(of_ann.stdout.strip())
        assert started.stop() == 0
        assert "a visitor of the pages, user ann at 127.0.0.1, has come by a link" in started.err


def test_a_scheduler_without_pages_has_no_links(tmp_path):
    with scheduler("--no-dashboard", folder=tmp_path):
        done = run("dashboard", folder=tmp_path)
        assert done.returncode != 0
        assert "--dashboard-address" in done.stderr
