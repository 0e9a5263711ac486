"""The frame of the pages, and those that show no cluster: signing in, going on, a problem. Pure."""

from __future__ import annotations

from ...protocol.markup import Markup, element, join


def document(
    title: str,
    name: str,
    content: Markup,
    current: str,
    refresh_s: float,
    head: Markup | None = None,
    visitor: str = "",
    query: str = "",
) -> str:
    """Return a page with a header.

    Args:
        title: of the tab.
        name: of the cluster.
        content: what is below the header.
        current: the page, as the header knows it.
        refresh_s: it is fetched again so often; 0 = it is not.
        head: its scripts and styles; None = that which fetches it again.
        visitor: who looks, if that is known.
        query: what was searched for.
    """
    pages = (
        ("status", "./", "Status"),
        ("workers", "workers", "Workers"),
        ("stream", "stream", "Task stream"),
        ("history", "history", "History"),
        ("profile", "profile", "Profile"),
    )
    links = [
        element("a", label, href=href, aria_current="page" if page == current else None)
        for page, href, label in pages
    ]
    sign_out = element(
        "form",
        element("span", visitor, class_="soft", title="what the link of this visit permits")
        if visitor
        else None,
        element("button", "Sign out", type="submit"),
        method="post",
        action="logout",
    )
    body = join(
        element("header", element("h1", name), element("nav", links), _search(query), sign_out),
        element("p", id="silent", class_="silent", role="alert", hidden=True),
        element("main", content),
    )
    if head is None:
        again = element("meta", http_equiv="refresh", content=f"{refresh_s:g}")
        head = join(element("noscript", again), element("script", src="refresh.js", defer=True))
    return _html(title, head, body, refresh_s)


def _search(query: str) -> Markup:
    field = element(
        "input",
        type="search",
        name="q",
        value=query or None,
        placeholder="Key, function, worker, error",
        maxlength=200,
    )
    named = element("label", element("span", "Search", class_="sr"), field)
    return element("form", named, action="search", role="search", class_="search")


def _plain_document(title: str, content: Markup, head: Markup | None = None, root: str = "") -> str:
    return _html(title, head or Markup(""), element("main", content), 0, root)


def _html(title: str, head: Markup, body: Markup, refresh_s: float, root: str = "") -> str:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="icon", href=f"{root}icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href=f"{root}style.css"),
        head,
    )
    document = element(
        "html", head, element("body", body), lang="en", data_refresh=f"{refresh_s:g}"
    )
    return "<!DOCTYPE html>\n" + document + "\n"


def live_switch() -> Markup:
    """Return the box that stops fetching the page again; without scripts it is hidden."""
    box = element("input", type="checkbox", id="live", checked=True)
    return element("label", box, "refresh", hidden=True)


def login_page(name: str, problem: str = "") -> str:
    """Return the form that takes the view token, with what was wrong with the last one."""
    content = element(
        "section",
        element("h1", f"Sign in to {name}"),
        element("p", problem, class_="silent", role="alert", id="problem") if problem else None,
        element(
            "form",
            element("label", "View token", for_="token"),
            element(
                "input",
                id="token",
                name="token",
                type="password",
                class_="field",
                autocomplete="current-password",
                required=True,
                aria_invalid="true" if problem else None,
                aria_describedby="problem" if problem else None,
                autofocus=True,
            ),
            element("button", "Sign in", type="submit", class_="main"),
            method="post",
            action="login",
        ),
        element(
            "p",
            "The token is what ",
            element("code", "weft token --role view --bare"),
            " prints on the scheduler's machine; if several run there, give the address or the "
            "--connection-file of this one as well. This browser stays signed in for a week; the "
            "token itself is not kept. In a notebook, a click on ",
            element("code", "client.dashboard_link"),
            " signs in without it.",
            class_="soft",
        ),
        class_="gate",
    )
    return _plain_document(f"Sign in – {name}", content)


def missing_page(path: str) -> str:
    """Return the page for an address at which there is none."""
    root = "../" * (path.count("/") - 1) or "./"
    content = element(
        "section",
        element("h1", "There is no page at this address"),
        element("p", "The status of the cluster is at ", element("a", "the first page", href=root)),
        class_="gate",
    )
    return _plain_document("Not found – weft", content, root=root)


def onward_page(target: str) -> str:
    """Return a page that goes on to another one by itself.

    A redirect would count as a part of the request that led here. If that came from another site,
    for instance a notebook, the browser would send no cookie with it.
    """
    content = element("section", element("p", element("a", "Go on", href=target)), class_="gate")
    refresh = element("meta", http_equiv="refresh", content=f"0; url={target}")
    return _plain_document("weft", content, refresh)


def problem_page(text: str, refresh_s: float) -> str:
    """Return a page that says why there is nothing to show, and tries again."""
    content = join(
        element("section", element("p", text, class_="silent", role="alert")), live_switch()
    )
    return document("weft", "weft", content, "", refresh_s)
