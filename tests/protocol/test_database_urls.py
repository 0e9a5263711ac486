"""URLs of databases: what is shown of them, and the schema that they name."""

from __future__ import annotations

import pytest

from weft.protocol.database_urls import check_url, is_url, schema_of, shown
from weft.protocol.errors import ConfigError
from weft.protocol.settings.kinds import JournalPlace


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://db/jobs", "postgresql://db/jobs"),
        ("postgresql://ann@db/jobs", "postgresql://ann@db/jobs"),
        ("postgresql://ann:secret@db:5432/jobs", "postgresql://ann:***@db:5432/jobs"),
        ("postgresql://ann:se@c/r:e?t@db/jobs", "postgresql://ann:***@db/jobs"),
        (
            "postgresql://db/jobs?user=ann&password=secret&x=1",
            "postgresql://db/jobs?user=ann&password=***&x=1",
        ),
        ("postgresql://db/jobs?sslpassword=secret", "postgresql://db/jobs?sslpassword=***"),
        ("mysql://ann:secret@db", "mysql://ann:***@db"),
        ("/var/lib/weft/journal.sqlite", "/var/lib/weft/journal.sqlite"),
    ],
)
def test_a_password_is_never_shown(url, expected):
    assert shown(url) == expected


@pytest.mark.parametrize(
    ("url", "schema", "plain"),
    [
        ("postgresql://db/jobs", "weft", "postgresql://db/jobs"),
        ("postgresql://db/jobs?schema=team_a", "team_a", "postgresql://db/jobs"),
        ("postgresql://db/jobs?schema=team_a&x=1", "team_a", "postgresql://db/jobs?x=1"),
        ("postgresql://db/jobs?x=1&schema=team_a", "team_a", "postgresql://db/jobs?x=1"),
        ("postgresql://db/jobs?x=1&schema=team_a&y=2", "team_a", "postgresql://db/jobs?x=1&y=2"),
    ],
)
def test_the_schema_of_a_url_is_not_for_the_driver(url, schema, plain):
    assert schema_of(url) == (schema, plain)


@pytest.mark.parametrize("name", ["", "public", "pg_toast", "Team", "a-b", 'a"b', "a" * 64])
def test_a_schema_is_a_plain_name(name):
    with pytest.raises(ConfigError, match="is no schema for a journal"):
        check_url(f"postgresql://db/jobs?schema={name}", "--journal")


def test_a_path_is_no_url():
    assert not is_url("jobs.sqlite")
    assert not is_url("/var/lib/weft")
    assert is_url("sqlite:///jobs")


def test_the_setting_reads_both(tmp_path):
    kind = JournalPlace()
    url = "postgres://ann:secret@db/jobs"
    assert kind.read(url, "--journal") == url
    assert kind.show(url) == "postgres://ann:***@db/jobs"
    assert kind.read(str(tmp_path / "jobs"), "--journal") == str(tmp_path / "jobs")
    with pytest.raises(ConfigError, match="is neither a path nor postgresql://") as caught:
        kind.read("mysql://ann:secret@db/jobs", "--journal")
    assert "secret" not in str(caught.value)
