"""URLs of databases: what is shown of them, and the schema that they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        (
            "postgresql://db/jobs?user=ann&password=ab#secret",
            "postgresql://db/jobs?user=ann&password=***",
        ),
        ("postgresql://a#b:secret@db/jobs", "postgresql://a#b:***@db/jobs"),
        ("postgresql://a?b:secret@db/jobs", "postgresql://a?b:***@db/jobs"),
        ("postgresql://ann@x:secret@db/jobs", "postgresql://ann@x:***@db/jobs"),
        ("postgresql://db/jobs?p%61ssword=secret", "postgresql://db/jobs?p%61ssword=***"),
        ("postgresql://ann:se?password=cret@db/jobs", "postgresql://ann:***"),
        ("postgresql://db/jobs?x=1:2&password=sec@ret", "postgresql://db/jobs?x=1:***"),
        ("postgresql:/ann:secret@db/jobs", "postgresql:/ann:***@db/jobs"),
        ("mysql://ann:secret@db", "mysql://ann:***@db"),
        ("/var/lib/weft/journal.sqlite", "/var/lib/weft/journal.sqlite"),
    ],
)
def test_a_password_is_never_shown(url, expected):
    assert shown(url) == expected


_ANY = st.text(st.sampled_from(":@/?#&=%a "), max_size=5)
_PASSWORDS = st.builds("{}s3cret{}".format, _ANY, _ANY)


@given(scheme=st.sampled_from(["postgresql://", "postgres:/", "mysql://"]), user=_ANY,
       password=_PASSWORDS, rest=_ANY)  # fmt: skip
def test_no_password_of_a_user_is_shown(scheme, user, password, rest):
    assert "s3cret" not in shown(f"{scheme}{user}:{password}@{rest}")


@given(before=_ANY, codes=st.sets(st.integers(0, 7)), password=_PASSWORDS, rest=_ANY)
def test_no_password_of_a_query_is_shown(before, codes, password, rest):
    name = "".join(f"%{ord(c):x}" if n in codes else c for n, c in enumerate("password"))
    value = password.replace("&", "%26")
    assert "s3cret" not in shown(f"postgresql://{before}?{name}={value}&{rest}")


@given(st.lists(st.sampled_from([*":@/?#&=uh", "s3cret", "password", "p%61ssword", "%40", "user"])))
def test_no_password_that_the_driver_reads_is_shown(parts):
    conninfo = pytest.importorskip(
        "psycopg.conninfo", reason="psycopg is missing: pip install 'weft[postgres]'"
    )
    url = "postgresql://" + "".join(parts)
    try:
        found = conninfo.conninfo_to_dict(url)
    except conninfo.e.Error:
        return
    if "s3cret" in found.get("password", "") and "s3cret" not in str(
        {name: value for name, value in found.items() if name != "password"}
    ):
        assert "s3cret" not in shown(url)


@pytest.mark.parametrize("start", ["postgresql:", "postgresql:/", "postgres:", "POSTGRES:/"])
def test_a_url_without_two_slashes_is_no_path(start):
    place = f"{start}ann:s3cret@db/jobs"
    with pytest.raises(ConfigError, match="postgresql://USER@HOST/DATABASE") as caught:
        JournalPlace().read(place, "--journal")
    assert "s3cret" not in str(caught.value)


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
