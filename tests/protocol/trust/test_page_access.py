from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from weft.protocol.trust.page_access import COOKIE_LIFE_S, PARAMETER, PageAccess
from weft.protocol.wire.levels import Level, lowered

TOKEN = b"the token of an admin"
NUMBER = "0123456789abcdef"


def test_every_level_of_token_makes_the_same_cookies_and_links():
    admin = PageAccess(TOKEN)
    for level in Level:
        other = PageAccess(lowered(TOKEN, level))
        assert other.cookie_name == admin.cookie_name
        assert other.cookie(1e9) == admin.cookie(1e9)
        assert other.link("http://h/", 1e9, NUMBER) == admin.link("http://h/", 1e9, NUMBER)


def test_a_cookie_holds_for_its_life_and_does_not_show_the_token():
    access = PageAccess(TOKEN)
    cookie = access.cookie(1000.0)
    assert access.cookie_left_s(cookie, 1000.0) == COOKIE_LIFE_S
    assert access.cookie_left_s(cookie, 1000.0 + COOKIE_LIFE_S - 5) == 5
    assert access.cookie_left_s(cookie, 1000.0 + COOKIE_LIFE_S) == 0
    assert access.cookie_left_s(cookie, 0.0) == COOKIE_LIFE_S
    view = lowered(TOKEN, Level.VIEW).decode()
    assert view.partition(".")[2] not in cookie
    assert PageAccess(b"another").cookie_left_s(cookie, 1000.0) == 0
    assert PageAccess(b"another").cookie_name != access.cookie_name


@pytest.mark.parametrize(
    "change",
    [
        lambda cookie: "",
        lambda cookie: cookie[:-1],
        lambda cookie: "9" + cookie,
        lambda cookie: cookie.replace(".", "0."),
        lambda cookie: cookie + "\n",
        lambda cookie: "²" + cookie[1:],
        lambda cookie: "9" * 10_000 + cookie,
    ],
)
def test_a_changed_cookie_is_none(change):
    access = PageAccess(TOKEN)
    assert access.cookie_left_s(change(access.cookie(1e9)), 1e9) == 0


def test_a_link_names_when_it_was_made_and_is_no_cookie():
    access = PageAccess(TOKEN)
    link = access.link("http://127.0.0.1:8787/", 1e9, NUMBER)
    assert link.startswith("http://127.0.0.1:8787/?")
    (made,) = parse_qs(urlsplit(link).query)[PARAMETER]
    assert access.link_made_at(made) == 10**9
    assert access.cookie_left_s(made, 1e9) == 0
    assert access.link_made_at(access.cookie(1e9)) is None
    assert access.link_made_at(made[:-1] + ("A" if made[-1] != "A" else "B")) is None
    assert PageAccess(b"another").link_made_at(made) is None
