"""Visitors who come by links with claims: what their browsers keep, and how visits end."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import pytest

from tests.deploy.http.serving import pages_in_this_loop
from tests.deploy.http.test_signing_in import HTML, Visitor
from weft.protocol.trust import page_claims
from weft.protocol.trust.page_access import PageAccess, link_into, made_text
from weft.protocol.trust.security import Security
from weft.protocol.wire.levels import Level, with_user
from weft.scheduler.core.visitors.visits import VISIT_LIFE_S, visits_of

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


class Browser(Visitor):
    """Asks as a browser that keeps all cookies."""

    def __init__(self, port):
        super().__init__(port)
        self.cookies = {}
        self.set_cookies = []

    def _ask(self, method, path, headers, body):
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer, text = super()._ask(method, path, headers | {"Cookie": cookie}, body)
        self.cookie = ""
        self.set_cookies = answer.headers.get_all("Set-Cookie", [])
        for one in self.set_cookies:
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if not self.cookies[name]:
                del self.cookies[name]
        return answer, text

    @property
    def visit(self):
        return next((v for name, v in self.cookies.items() if name.endswith("-visit")), "")

    async def follow(self, link):
        parts = urlsplit(link)
        return await self.get(f"{parts.path}?{parts.query}")


def link_of(started, level=Level.CLIENT, token=None):
    security = started._config.security
    if token is not None:
        security = Security(token, security.cluster_id)
    return link_into("http://h/", security, level)


def visits_at(started):
    return [(v.level.label, v.user) for v in visits_of(started.state).by_number.values()]


@pytest.mark.parametrize("level", [Level.CLIENT, Level.ADMIN])
async def test_a_link_gives_the_right_that_it_claims_in_a_cookie_of_its_own(level):
    async with pages_in_this_loop() as (started, port, _):
        browser = Browser(port)
        answer, _ = await browser.follow(link_of(started, level))
        assert answer.status == 200
        assert len(browser.cookies) == 2
        (cookie,) = [one for one in browser.set_cookies if "-visit=" in one]
        attributes = {*cookie.split("; ")[1:]}
        assert {"HttpOnly", "Path=/", "SameSite=Strict"} <= attributes
        (age,) = [int(a[8:]) for a in attributes if a.startswith("Max-Age=")]
        assert 0 < age <= VISIT_LIFE_S
        assert visits_at(started) == [(level.label, "")]
        for secret in started._config.security.token_for("client"), browser.visit:
            assert secret not in answer.headers.as_string().replace(cookie, "")


async def test_a_link_made_with_a_token_for_looking_begins_no_visit():
    async with pages_in_this_loop() as (started, port, token):
        browser = Browser(port)
        answer, _ = await browser.follow(link_of(started, Level.ADMIN, token.encode()))
        assert (answer.status, len(browser.cookies), visits_at(started)) == (200, 1, [])


async def test_a_link_of_a_user_names_the_user_and_is_of_a_client_whatever_was_wished():
    async with pages_in_this_loop() as (started, port, _):
        token = with_user(started._config.security.token, "ann")
        browser = Browser(port)
        await browser.follow(link_of(started, Level.ADMIN, token))
        assert visits_at(started) == [("client", "ann")]
        assert browser.visit


async def test_a_link_whose_claim_was_changed_lets_nobody_in():
    async with pages_in_this_loop() as (started, port, _):
        link = link_of(started, Level.CLIENT)
        browser = Browser(port)
        answer, text = await browser.follow(link.replace("claim=client", "claim=admin"))
        assert (answer.status, browser.cookies) == (403, {})
        assert "This link was not made by this cluster." in text
        # It was used all the same.
        assert (await Browser(port).follow(link))[0].status == 403
        assert visits_at(started) == []


async def test_a_link_without_its_claim_permits_to_look_and_is_used_up():
    async with pages_in_this_loop() as (started, port, _):
        link = link_of(started, Level.ADMIN)
        browser, other = Browser(port), Browser(port)
        await browser.follow(link.partition("&")[0])
        assert len(browser.cookies) == 1
        answer, _ = await other.follow(link)
        assert (answer.status, other.cookies, visits_at(started)) == (403, {}, [])


async def test_a_claim_of_a_used_link_is_refused_by_the_scheduler_also_beside_the_gate():
    async with pages_in_this_loop() as (started, port, _):
        link = link_of(started, Level.ADMIN)
        await Browser(port).follow(link)
        number = next(iter(visits_of(started.state).by_number))
        assert number in link
        async with pages_in_this_loop() as (other, other_port, _token):
            assert (await Browser(other_port).follow(link))[0].status == 403
            assert visits_at(other) == []


async def test_a_later_link_takes_no_right_away():
    async with pages_in_this_loop() as (started, port, _):
        browser = Browser(port)
        await browser.follow(link_of(started, Level.ADMIN))
        admin = browser.visit
        await browser.follow(link_of(started, Level.CLIENT))
        assert browser.visit == admin
        await browser.follow(link_of(started, Level.ADMIN))
        assert browser.visit not in ("", admin)


async def test_signing_out_ends_the_visit_and_takes_both_cookies():
    async with pages_in_this_loop() as (started, port, _):
        browser, copy = Browser(port), Browser(port)
        await browser.follow(link_of(started, Level.ADMIN))
        copy.cookies = {**browser.cookies}
        answer, _ = await browser.post("/logout")
        assert (answer.status, browser.cookies) == (303, {})
        (visit,) = visits_of(started.state).by_number.values()
        assert visit.is_over
        # A copy of the cookies still permits looking, and its pass is taken away when it is seen.
        await copy.follow(link_of(started, Level.CLIENT))
        assert copy.visit
        assert visits_at(started) == [("admin", ""), ("client", "")]


async def test_a_click_on_another_site_keeps_the_claim_on_its_way():
    async with pages_in_this_loop() as (started, port, _):
        link = urlsplit(link_of(started, Level.ADMIN))
        path = f"{link.path}?{link.query}"
        _, text = await Browser(port).get(path, **{"Sec-Fetch-Site": "cross-site"})
        onward = text.partition('content="0; url=.')[2].partition('"')[0].replace("&amp;", "&")
        assert "claim=admin" in onward
        browser = Browser(port)
        assert (await browser.get(onward, **HTML))[0].status == 200
        assert browser.visit


async def test_old_links_have_no_claim_that_holds():
    async with pages_in_this_loop() as (started, port, _):
        security = started._config.security
        old = time.time() - page_claims.LINK_LIFE_S - 1
        link = PageAccess(security.token).link("http://h/", old, "0123456789abcdef")
        claim = page_claims.claim(security.token, made_text(old, "0123456789abcdef"), Level.ADMIN)
        answer, text = await Browser(port).follow(f"{link}&claim={claim}")
        assert answer.status == 403
        assert "has expired" in text
        assert visits_at(started) == []
