"""The page of the statistical profile, which its script fills. Pure.

`protocol/flame_graph.py` draws; the script here reads, and keeps in the address what is shown:
`function` and `in` are the call that is shown alone, `search` and `worker` what they say, and
`span` the seconds that count, if those are not all. Where a visitor has begun anew is kept by the
process of the pages (`profile_watch.py`), and is not in the address.
"""

from __future__ import annotations

from typing import Final

from ...protocol import flame_graph
from ...protocol.markup import Markup, element, join
from . import live_page
from .documents import document

STYLE: Final = (
    live_page.STYLE
    + flame_graph.STYLE
    + """\
.profile .tools label { display: inline-flex; gap: .4rem; align-items: center; color: var(--soft);
  font-size: .85rem; margin-left: auto; }
.profile select { background: var(--card); border: 1px solid var(--line); border-radius: .35rem;
  color: var(--text); font: inherit; font-size: .95rem; padding: .3rem .5rem; max-width: 16rem; }
"""
)

SCRIPT: Final = r"""
"use strict";
(() => {
  const find = (name) => document.querySelector(name);
  const live = find("#live-button"), chosen = find("#worker"), silent = find("#silent");
  const asked = new URLSearchParams(location.search);
  let follows = true, last = null, since = "", timer = 0, isReading = false, failedSince = null;
  let worker = asked.get("worker") || "", span = asked.get("span") || "";
  const spans = [...document.querySelectorAll("[data-span]")];

  const graph = flameGraph(find(".flame"), {changed: (how) => remember(how === "zoomed")});
  function wanted() {
    const query = new URLSearchParams(), [name, ...calls] = graph.path();
    if (worker) query.set("worker", worker);
    if (span) query.set("span", span);
    if (name !== undefined) query.set("function", name);
    for (const call of calls) query.append("in", call);
    if (graph.text()) query.set("search", graph.text());
    const text = String(query);
    return text ? "?" + text : location.pathname;
  }
  function remember(isStep) {
    if (isStep) history.pushState(null, "", wanted());
    else history.replaceState(null, "", wanted());
  }
  function restore() {
    const query = new URLSearchParams(location.search), name = query.get("function");
    const before = worker + " " + span;
    worker = query.get("worker") || "";
    span = query.get("span") || "";
    if (span) since = "";
    press();
    chosen.value = worker;
    graph.zoom(name === null ? [] : [name, ...query.getAll("in")]);
    graph.find(query.get("search") || "");
    if (worker + " " + span !== before) again();
  }
  function press() {
    for (const one of spans)
      one.setAttribute("aria-pressed", String(!since && one.dataset.span === span));
  }
  function say(data) {
    const options = ["", ...data.workers];
    if (worker && !options.includes(worker)) options.push(worker);
    const key = options.join("\n");
    if (chosen.dataset.key !== key) {
      chosen.dataset.key = key;
      chosen.replaceChildren(...options.map((name) => new Option(name || "all workers", name)));
      chosen.value = worker;
    }
    find("#notes").textContent = [...data.notes, ...(data.n_cut ?
      [`${data.n_cut} samples were too deep, or of too many kinds.`] : [])].join(" ");
  }
  function again() {
    last = null;
    clearTimeout(timer);
    if (!isReading) read();
  }
  async function read() {
    if (isReading) return;
    isReading = true;
    clearTimeout(timer);
    const asks = {worker, span, since};
    let pause = PAUSE_MS;
    try {
      if (!document.hidden && (follows || !last)) {
        const answer = await fetch("profile/data?" + new URLSearchParams(asks), {
          cache: "no-store", signal: AbortSignal.timeout(15000),
        });
        if (answer.status === 401) { pause = null; location.reload(); return; }
        if (answer.status === 403) {
          silent.textContent = "This visit is over. Open the pages by a new link of a client.";
          silent.hidden = false;
          pause = null;
          return;
        }
        if (!answer.ok) throw new Error("status " + answer.status);
        const data = await answer.json();
        if (asks.worker !== worker || asks.span !== span || asks.since !== since) pause = 0;
        else {
          last = data;
          since = data.since;
          press();
          say(data);
          graph.show(data);
        }
        failedSince = null;
        silent.hidden = true;
      }
    } catch (error) {
      failedSince = failedSince || new Date();
      silent.textContent = "No answer since " + failedSince.toLocaleTimeString() +
        ": what is shown is old. This page keeps trying.";
      silent.hidden = false;
      pause = 2000;
    } finally {
      isReading = false;
      if (pause !== null) timer = setTimeout(read, pause);
    }
  }
  live.addEventListener("click", () => {
    follows = !follows;
    live.setAttribute("aria-pressed", String(follows));
    if (follows) read();
  });
  find("#anew").addEventListener("click", () => {
    if (last) graph.show({...last, counts: last.counts.map(() => 0), seconds: 0});
    choose("", "now");
  });
  function choose(seconds, from = "") {
    const isStep = seconds !== span;
    span = seconds;
    since = from;
    press();
    remember(isStep);
    again();
  }
  for (const one of spans) one.addEventListener("click", () => choose(one.dataset.span));
  chosen.addEventListener("change", () => {
    worker = chosen.value;
    remember(true);
    again();
  });
  addEventListener("popstate", restore);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
  restore();
  read();
})();
""".replace("PAUSE_MS", "1000")


def profile_page(name: str, visitor: str = "") -> str:
    """Return the page of a cluster of this name, for one who may see the code of tasks."""
    content = join(
        element(
            "section",
            element(
                "div",
                element("h2", "Profile"),
                element("button", "Live", type="button", id="live-button", aria_pressed="true"),
                element(
                    "span",
                    [
                        element("button", text, type="button", data_span=span)
                        for span, text in (("30", "30 s"), ("300", "5 min"), ("", "all"))
                    ],
                    class_="keys",
                    role="group",
                    aria_label="Span",
                ),
                element("button", "Begin anew", type="button", id="anew"),
                element(
                    "label",
                    "of",
                    element("select", element("option", "all workers", value=""), id="worker"),
                ),
                class_="tools",
            ),
            flame_graph.flame_graph(),
            class_="profile",
        ),
        _foot(),
    )
    head = join(
        element("link", rel="stylesheet", href="profile.css"),
        element("script", src="flame.js", defer=True),
        element("script", src="profile.js", defer=True),
    )
    return document(f"Profile – {name}", name, content, "profile", 0, head, visitor)


def refused_page(name: str) -> str:
    """Return the page for one who may only look."""
    content = element(
        "section",
        element("h2", "Profile"),
        element(
            "p", "A profile shows the code of tasks, so it is for visitors with a client's right."
        ),
        element(
            "p",
            "Open the pages by ",
            element("code", "client.dashboard_link"),
            " of a client, or run ",
            element("code", "weft profile"),
            ".",
            class_="soft",
        ),
        id="refused",
    )
    return document(f"Profile – {name}", name, content, "profile", 0, Markup(""))


def _foot() -> Markup:
    def key(name: str) -> Markup:
        return element("kbd", name)

    return element(
        "footer",
        element("span", id="notes", role="status"),
        element(
            "span",
            *("Click or ", key("Enter"), " shows a call alone, ", key("Esc"), " more of it, "),
            *(
                key("↑"),
                " ",
                key("↓"),
                " ",
                key("←"),
                " ",
                key("→"),
                " move, ",
                key("/"),
                " searches",
            ),
        ),
    )
