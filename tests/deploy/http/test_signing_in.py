"""Signing in as a browser does, on the level of HTTP: forms, cookies, links, refusals."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from urllib.parse import urlencode, urlsplit

import pytest

from tests.deploy.http.serving import pages_in_this_loop
from weft.protocol.reported import METRICS_URL
from weft.protocol.trust.page_access import COOKIE_LIFE_S, PageAccess, link_into
from weft.protocol.wire.levels import Level, lowered
from weft.protocol.wire.messages import RegisterSupervisor
from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of
from weft.scheduler.core.records.peers import SupervisorHandle

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

NUMBER = "0123456789abcdef"
HTML = {"Accept": "text/html,application/xhtml+xml"}


class Visitor:
    """Asks as a browser that keeps one cookie."""

    def __init__(self, port):
        self.place = ("127.0.0.1", port)
        self.cookie = ""

    async def get(self, path, **headers):
        return await asyncio.to_thread(self._ask, "GET", path, headers, None)

    async def post(self, path, headers=None, **fields):
        own = {"Origin": f"http://127.0.0.1:{self.place[1]}"}
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body = urlencode(fields)
        return await asyncio.to_thread(self._ask, "POST", path, own | form | (headers or {}), body)

    def _ask(self, method, path, headers, body):
        connection = http.client.HTTPConnection(*self.place, timeout=30)
        if self.cookie:
            headers = {**headers, "Cookie": self.cookie}
        try:
            connection.request(method, path, body, HTML | headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie", ()):
            self.set_cookie = cookie
            self.cookie = cookie.partition(";")[0]
        return answer, text


async def test_the_token_gives_a_cookie_that_opens_the_pages_and_signing_out_takes_it():
    async with pages_in_this_loop() as (_, port, token):
        visitor = Visitor(port)
        answer, _ = await visitor.get("/")
        assert (answer.status, answer.headers["Location"]) == (303, "login")
        answer, text = await visitor.get("/login")
        assert answer.status == 200
        assert 'type="password"' in text
        answer, _ = await visitor.post("/login", token=f" {token}\n")
        assert answer.status == 200
        attributes = visitor.set_cookie.split("; ")[1:]
        wanted = {"HttpOnly", "Path=/", "SameSite=Strict", f"Max-Age={COOKIE_LIFE_S}"}
        assert wanted <= {*attributes}
        assert "Secure" not in attributes
        assert token not in visitor.cookie
        for path in ("/", "/workers", "/workers?sort=memory", "/workers?sort=x", "/stream"):
            answer, text = await visitor.get(path)
            assert (answer.status, "<main>" in text) == (200, True), path
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
        for path in ("/api/v1/cluster", "/api/v1/scale", "/api/v1/workers", "/metrics"):
            assert (await visitor.get(path))[0].status == 200, path
        kept = visitor.cookie
        answer, _ = await visitor.post("/logout")
        assert (answer.status, answer.headers["Location"]) == (303, "login")
        assert visitor.cookie.endswith("=") or visitor.cookie.endswith('=""')
        assert (await visitor.get("/"))[0].status == 303
        visitor.cookie = kept  # it was not revoked, only taken away
        assert (await visitor.get("/"))[0].status == 200


@pytest.mark.parametrize("level", [Level.ADMIN, Level.CLIENT, Level.WORKER])
async def test_a_token_that_can_do_more_is_refused_by_its_role(level):
    async with pages_in_this_loop() as (started, port, _):
        token = lowered(started._config.security.token, level).decode()
        answer, text = await Visitor(port).post("/login", token=token)
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers
        assert f"this one is of role {level.label}" in text
        assert "weft token --role view --bare" in text
        assert token not in text


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("", "No token was given: use what"),
        ("wrong", "This is not the view token of this cluster: use what"),
        ("view." + "A" * 43, "This is not the view token of this cluster"),
        ("é" * 1000, "This is not the view token of this cluster"),
    ],
)
async def test_a_wrong_token_gets_one_line_that_says_what_to_do(token, text):
    async with pages_in_this_loop() as (_, port, _token):
        answer, page = await Visitor(port).post("/login", token=token)
        assert answer.status == 403
        assert text in page
        assert "weft token --role view --bare" in page


async def test_wrong_tokens_of_one_user_lock_out_no_other_behind_the_same_proxy(caplog):
    async with pages_in_this_loop() as (_, port, token):
        visitor, other = Visitor(port), Visitor(port)  # both come from 127.0.0.1
        guesses = [visitor.post("/login", token="guess") for _ in range(30)]
        answers = await asyncio.gather(*guesses)
        assert {answer.status for answer, _ in answers} == {403}
        answer, _ = await other.post("/login", token=token)
        assert (answer.status, other.cookie != "") == (200, True)
        await visitor.get("/?access=wrong")
        await visitor.get("/metrics", Authorization="Bearer wrong")
    lines = [record.message for record in caplog.records if record.name == "weft.http"]
    assert "1 attempt to sign in to the pages failed, the last one from 127.0.0.1" in lines[0]
    assert "31 attempts to sign in to the pages failed, the last one from 127.0.0.1" in lines[1]
    assert len(lines) == 2


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "", "x"]
)
async def test_forms_of_other_sites_are_refused(path, origin):
    async with pages_in_this_loop() as (_, port, token):
        visitor = Visitor(port)
        answer, text = await visitor.post(path, {"Origin": origin}, token=token)
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers
        assert "--dashboard-host-name" in text


async def test_a_proxy_whose_name_was_given_may_send_forms():
    async with pages_in_this_loop(host_names=("hub.example",)) as (_, port, token):
        headers = {"Origin": "https://hub.example", "X-Forwarded-Proto": "https"}
        visitor = Visitor(port)
        answer, _ = await visitor.post("/login", headers, token=token)
        assert answer.status == 200
        assert "Secure" in visitor.set_cookie.split("; ")


async def test_a_link_signs_in_once_and_then_the_cookie_counts():
    async with pages_in_this_loop() as (started, port, _):
        # The admin's token, of which a program may have more than the pages do.
        access = PageAccess(started._config.security.token)
        link = urlsplit(access.link("http://h/", time.time(), NUMBER))
        path = f"{link.path}?{link.query}"
        visitor, other = Visitor(port), Visitor(port)
        answer, text = await visitor.get(path)
        assert (answer.status, visitor.cookie != "") == (200, True)
        assert 'content="0; url=./"' in text
        assert (await visitor.get("/"))[0].status == 200
        assert (await visitor.get(path))[0].status == 200  # again, in the same browser
        answer, text = await other.get(path)
        assert (answer.status, other.cookie) == (403, "")
        assert "This link was used before, and works once." in text
        assert "dashboard_link" in text


async def test_a_browser_that_is_signed_in_uses_a_link_up_as_well():
    async with pages_in_this_loop() as (started, port, token):
        link = urlsplit(link_into("http://h/", started._config.security))
        path = f"{link.path}?{link.query}"
        visitor, other = Visitor(port), Visitor(port)
        await visitor.post("/login", token=token)
        assert (await visitor.get(path))[0].status == 200
        assert (await other.get(path))[0].status == 403


async def test_a_click_on_another_site_goes_on_by_a_page_that_has_the_cookie():
    async with pages_in_this_loop() as (_, port, _token):
        visitor = Visitor(port)
        answer, text = await visitor.get("/workers", **{"Sec-Fetch-Site": "cross-site"})
        assert answer.status == 200
        assert 'content="0; url=./workers"' in text
        answer, _ = await visitor.get("/workers", **{"Sec-Fetch-Site": "same-origin"})
        assert answer.status == 303


async def test_an_address_without_a_page_leads_browsers_to_the_first_page():
    async with pages_in_this_loop() as (_, port, _token):
        for path, root in (("/nowhere", "./"), ("/a/b/c", "../../")):
            answer, text = await Visitor(port).get(path)
            assert answer.status == 404
            assert f'href="{root}"' in text
            assert f'href="{root}style.css"' in text
            assert "script-src" in answer.headers["Content-Security-Policy"]
        answer, text = await Visitor(port).get("/nowhere", Accept="*/*")
        assert (answer.status, text) == (404, "404 Not Found\n")
        answer, _ = await Visitor(port).get("/nowhere", Host="foreign.example")
        assert answer.status == 421


async def test_a_cookie_that_is_half_over_is_renewed():
    async with pages_in_this_loop() as (started, port, _):
        access = PageAccess(started._config.security.token)
        visitor = Visitor(port)
        old = access.cookie(time.time() - COOKIE_LIFE_S * 0.6)
        visitor.cookie = f"{access.cookie_name}={old}"
        assert (await visitor.get("/"))[0].status == 200
        assert visitor.cookie != f"{access.cookie_name}={old}"
        visitor.cookie = f"{access.cookie_name}={access.cookie(time.time() - COOKIE_LIFE_S - 1)}"
        assert (await visitor.get("/"))[0].status == 303


async def test_programs_get_json_and_401():
    async with pages_in_this_loop() as (started, port, token):
        visitor = Visitor(port)
        for path in ("/", "/api/v1/cluster", "/api/v1/scale", "/api/v1/workers"):
            accept = {"Accept": "application/json"}
            assert (await visitor.get(path, **accept))[0].status == 401, path
            bearer = {"Authorization": f"Bearer {token}"}
            answer, _ = await visitor.get(path, **accept, **bearer)
            assert answer.status == 200, path
            assert answer.headers["Content-Type"] == "application/json"
        assert no_worker_limit_of(started.state).adapts_until > started.state.now + 200
        for query in ("?resources=", "?resources=GPU,SSD&target=2"):  # of one pool
            answer, text = await visitor.get(f"/api/v1/scale{query}", **bearer)
            assert json.loads(text)["desired_workers"] == 0, query
        answer, text = await visitor.get("/api/v1/scale?target=x", **bearer)
        assert (answer.status, text.count("\n")) == (400, 1)
        assert "number of seconds" in text
        answer, text = await visitor.get("/api/v1/scale?target=-1", **bearer)
        assert (answer.status, text.count("\n")) == (400, 1)


async def test_many_browsers_share_one_question_per_second():
    async with pages_in_this_loop() as (started, port, token):
        n_asked = []
        handle = started.state.handle

        def counting(event, now):
            n_asked.extend(
                m.name for m in getattr(event, "messages", ()) if type(m).__name__ == "Ask"
            )
            handle(event, now)

        started.state.handle = counting
        visitors = [Visitor(port) for _ in range(30)]
        bearer = {"Authorization": f"Bearer {token}"}
        begun = time.monotonic()
        answers = await asyncio.gather(*(visitor.get("/", **bearer) for visitor in visitors))
        seconds = time.monotonic() - begun
        assert {answer.status for answer, _ in answers} == {200}
        assert 1 <= n_asked.count("overview") <= 2 + seconds
        assert 1 <= n_asked.count("workers") <= 2 + seconds


async def test_the_metrics_pages_of_workers_are_targets_of_prometheus():
    async with pages_in_this_loop() as (started, port, token):
        urls = ["http://127.0.0.1:9100/metrics", "https://[fd00::1]:9100/metrics"]
        for i, url in enumerate(urls, 1000):
            hello = RegisterSupervisor(
                supervisor_id=f"s{i}", session=1, last_epoch=0, facts={METRICS_URL: url}
            )
            started.state.supervisors[i] = SupervisorHandle(i, hello)
        visitor = Visitor(port)
        assert (await visitor.get("/sd"))[0].status == 401
        answer, text = await visitor.get("/sd", Authorization=f"Bearer {token}")
        started.state.supervisors.clear()
        assert answer.headers["Content-Type"] == "application/json"
        path = {"__metrics_path__": "/metrics"}
        assert json.loads(text) == [
            {"targets": ["127.0.0.1:9100"], "labels": {"__scheme__": "http", **path}},
            {"targets": ["[fd00::1]:9100"], "labels": {"__scheme__": "https", **path}},
        ]
