"""The script of the page of the live task stream: it reads, follows, and says what is pointed at.

Pure. `stream_drawing.py` keeps the attempts and draws them; `protocol/timelines.py` has the axis,
the wheel and the keys.
"""

from __future__ import annotations

from typing import Final

from . import stream_drawing

_PAGE: Final = r"""
(() => {
  const find = (name) => document.querySelector(name);
  const root = find(".timeline"), plot = find(".plot"), tip = find(".tip");
  const labels = find("#labels");
  const silent = find("#silent"), live = find("#live-button"), legend = find(".legend");
  const attempts = new Attempts();
  const painter = new Painter(find("#lanes"), find("#curve"), getComputedStyle(root));
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const asked = new URLSearchParams(location.search);
  let range = null, follows = !asked.has("from"), next = "", ahead = 0, missed = 0, before = null;
  let rows = [], chosen = asked.get("function"), colourOf = [], pending = 0, drawnAt = 0;

  // -- texts
  const spaced = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const pad = (n, digits = 2) => String(n).padStart(digits, "0");
  const digitsOf = (step) => Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  function clock(s, step = 1) {
    const digits = digitsOf(step), unit = 10 ** digits;
    const rounded = Math.round(s * unit) / unit, date = new Date(Math.floor(rounded) * 1000);
    const rest = Math.round((rounded - Math.floor(rounded)) * unit);
    const parts = [date.getHours(), date.getMinutes(), date.getSeconds()];
    const text = parts.map((n) => pad(n)).join(":");
    return digits ? `${text}.${pad(rest, digits)}` : text;
  }
  function lasting(s) {
    const [n, unit] = s < 1e-3 ? [s * 1e6, "µs"] : s < 1 ? [s * 1e3, "ms"] : [s, "s"];
    return s >= 120 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` :
      `${n < 100 ? Number(n.toPrecision(3)) : Math.round(n)} ${unit}`;
  }

  // -- what is shown
  // The present, a little late: what has ended by then has been read.
  const now = () => performance.now() / 1000 + ahead - LATE_S;
  function layout() {
    const lanes = [...attempts.lanes.values()];
    const collator = new Intl.Collator("en", {numeric: true});
    lanes.sort((a, b) => collator.compare(a.host, b.host) || collator.compare(a.worker, b.worker) ||
      a.thread - b.thread);
    const hosts = new Set(lanes.map((lane) => lane.host)), several = new Set();
    for (const lane of lanes) if (lane.thread) several.add(lane.worker);
    const parts = [];
    rows = [];
    let host = null;
    for (const lane of lanes.slice(0, MAX_LANES)) {
      if (hosts.size > 1 && lane.host !== host) {
        rows.push(null);
        parts.push([lane.host || "?", `host ${lane.host}`, "host"]);
      }
      host = lane.host;
      rows.push(lane);
      const text = several.has(lane.worker) ? `${lane.worker} · ${lane.thread}` : lane.worker;
      parts.push([text, `worker ${lane.worker}, thread ${lane.thread}, host ${lane.host}`, ""]);
    }
    labels.replaceChildren(...parts.map(([text, title, kind]) => {
      const label = document.createElement("div");
      Object.assign(label, {textContent: text, title, className: kind});
      return label;
    }));
    const n = lanes.length - MAX_LANES;
    find("#more").textContent = n > 0 ? `${n} more threads are not drawn.` : "";
    attempts.changed = false;
  }
  function drawLegend() {
    const shown = attempts.functions.filter((one) => one.n && one.colour !== OTHER);
    shown.sort((a, b) => b.n - a.n);
    const nOthers = attempts.functions.filter((one) => one.n && one.colour === OTHER).length;
    const entries = shown.map((one) => [`c${one.colour}`, one.name, one.name]);
    if (chosen !== null && !shown.some((one) => one.name === chosen))
      entries.push(["cx", chosen, chosen]);
    if (nOthers) entries.push(["cx", `${nOthers} other function${nOthers > 1 ? "s" : ""}`, null]);
    if (attempts.nRaised) entries.push(["cf", "raised", null]);
    if (attempts.nFetched) entries.push(["ct", "inputs fetched", null]);
    const key = JSON.stringify([entries, chosen]);
    if (legend.dataset.key === key) return;
    const focused = legend.contains(document.activeElement) && document.activeElement.textContent;
    legend.dataset.key = key;
    legend.replaceChildren(...entries.map(([kind, text, name]) => {
      const entry = document.createElement("li"), swatch = document.createElement("i");
      const label = document.createElement(name === null ? "span" : "button");
      swatch.className = kind;
      label.textContent = text;
      if (name !== null) {
        label.type = "button";
        label.setAttribute("aria-pressed", String(chosen === name));
        label.addEventListener("click", () => choose(chosen === name ? null : name));
      }
      entry.append(swatch, label);
      return entry;
    }));
    if (focused)
      [...legend.querySelectorAll("button")].find((e) => e.textContent === focused)?.focus();
  }
  function choose(name) {
    chosen = name;
    recolour();
    drawLegend();
    wish();
    remember();
  }
  function recolour() {
    colourOf = attempts.functions.map((one) =>
      chosen === null || chosen === one.name ? one.colour : OTHER + 1);
  }
  function draw() {
    pending = 0;
    drawnAt = performance.now();
    if (follows) {
      range.left = now() - range.shown;
      range.show(range.left, range.shown);
    }
    if (attempts.changed) layout();
    painter.draw(rows, range.left, range.shown, colourOf, attempts.lanes.size);
    find("#most").textContent = `${Number(painter.most?.toPrecision(3) || 0)} threads busy`;
    const step = range.shown / 1000, end = range.left + range.shown;
    find("#shown").textContent =
      `${clock(range.left, Math.min(1, step))} – ${clock(end, Math.min(1, step))}`;
    find("#seconds").textContent = lasting(range.shown);
    if (attempts.total && !root.dataset.drawn) {
      root.dataset.drawn = "1";
      performance.mark("drawn");
    }
    if (follows && !still.matches && !document.hidden) wish();
  }
  // At most 30 frames per second, and none where nothing changes.
  function wish() {
    if (!pending && range) pending = requestAnimationFrame(frame);
  }
  function frame() {
    if (follows && performance.now() - drawnAt < 30) pending = requestAnimationFrame(frame);
    else draw();
  }
  function follow(does) {
    if (follows !== does) {
      follows = does;
      if (does) wish();
    }
    live.setAttribute("aria-pressed", String(follows));
  }
  let writing = 0;
  function remember() {
    clearTimeout(writing);
    writing = setTimeout(() => {
      const query = new URLSearchParams();
      if (!follows) {
        query.set("from", range.left.toFixed(6));
        query.set("to", (range.left + range.shown).toFixed(6));
      } else if (Math.abs(range.shown - SHOWN_S) > 0.01)
        query.set("last", range.shown.toPrecision(4));
      if (chosen !== null) query.set("function", chosen);
      const text = String(query);
      history.replaceState(null, "", text ? "?" + text : location.pathname);
    }, 300);
  }
  function begin() {
    const from = Number(asked.get("from")), to = Number(asked.get("to"));
    const last = Number(asked.get("last")) || SHOWN_S;
    range = timeRange(plot, {
      whole: () => [Math.min(attempts.oldest, now() - SHOWN_S), now()],
      least: () => 1e-4,
      tick: clock,
      steps: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600],
      fixed: () => follows ? now() : null,
      all: () => [attempts.total ? attempts.oldest : now() - SHOWN_S, now()],
      changed(range, how) {
        if (how === "moved") follow(range.left + range.shown >= now() - range.shown / 1e4);
        if (how === "all") follow(false);  // else the oldest would leave it at once
        if (how === "end") follow(true);
        if (!how) return;
        tip.hidden = true;
        wish();
        remember();
      },
    });
    if (!follows && to > from) range.show(from, to - from);
    else { follow(true); range.show(now() - last, last); }
    live.setAttribute("aria-pressed", String(follows));
    live.addEventListener("click", () => {
      if (!follows) { range.end(); return; }
      follow(false);
      remember();
    });
    find("#in").addEventListener("click", () => range.zoom(0.5));
    find("#out").addEventListener("click", () => range.zoom(2));
    find("#all").addEventListener("click", () => range.all());
    addEventListener("resize", wish);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      painter.mix();
      wish();
    });
  }

  // -- pointing at an attempt
  function found(event) {
    const y = Math.floor((event.clientY - painter.canvas.getBoundingClientRect().top) / LANE);
    const lane = rows[y];
    if (!lane) return null;
    const instant = range.at(event), near = 3 * range.shown / plot.clientWidth;
    let best = -1, least = near;
    for (let i = lane.after(instant - near); i < lane.to && lane.start[i] <= instant + near; i++) {
      const away = Math.max(lane.start[i] - instant, instant - lane.stop[i], 0);
      if (away < least) { best = i; least = away; }
      if (away === 0) break;
    }
    return best < 0 ? null : [lane, best];
  }
  function describe(lane, i) {
    const {key, raised, name} = attempts.about(lane, i), start = lane.start[i], stop = lane.stop[i];
    const lines = [["b", key || name]];
    const step = Math.min(1, (stop - start) / 100 || 1e-6);
    lines.push(["span", `${name} on ${lane.worker} · ${lane.thread}, ${lane.host}`]);
    lines.push(["span", `${clock(start, step)} – ${clock(stop, step)}: ${lasting(stop - start)}`]);
    if (lane.waited[i]) lines.push(["span", `of that it waited ${lasting(lane.waited[i])}`]);
    if (lane.got[i])
      lines.push(["span", `inputs were fetched in ${lasting(lane.got[i] - lane.came[i])}`]);
    if (lane.failed[i]) lines.push(["em", `raised ${raised || "an exception"}`]);
    tip.replaceChildren(...lines.map(([kind, text]) => {
      const line = document.createElement(kind);
      line.textContent = text;
      return line;
    }));
  }
  plot.addEventListener("pointermove", (event) => {
    const hit = range && !(event.buttons & 1) && found(event);
    tip.hidden = !hit;
    if (!hit) return;
    describe(...hit);
    const box = plot.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = Math.max(0, Math.min(x + 12, box.width - tip.offsetWidth)) + "px";
    tip.style.top = y + 18 + "px";
  });
  plot.addEventListener("pointerleave", () => { tip.hidden = true; });

  // -- reading
  function take(buffer) {
    const view = new DataView(buffer);
    let at = 0;
    const piece = () => {
      const length = view.getUint32(at, true), start = at + 4;
      at = start + length;
      return buffer.slice(start, at);
    };
    const head = JSON.parse(new TextDecoder().decode(piece()));
    if (next && !head.goes_on) { attempts.clear(); before = null; missed = 0; }
    next = head.next;
    ahead = head.now - performance.now() / 1000;
    if (before !== null) missed += head.n_missed - before + head.n_late;
    before = head.n_missed;
    while (at < buffer.byteLength) attempts.add(piece());
    if (follows) attempts.trim(MAX_ROWS);
    recolour();
    return head.is_all;
  }
  function say() {
    const n = attempts.total;
    const parts = [n ? `${spaced(n)} attempts since ${clock(attempts.oldest)}` :
      "No task has ended since a page like this was opened"];
    if (missed) parts.push(`${spaced(missed)} are missing: no page was visible, or too many came`);
    if (!follows && n >= MAX_ROWS) parts.push("no more are read until this page is live again");
    find("#count").textContent = parts.join("; ");
  }
  let failedSince = null, timer = 0, isReading = false;
  async function read() {
    if (isReading) return;
    isReading = true;
    clearTimeout(timer);
    let pause = PAUSE_MS;
    try {
      // What is looked at stays: a view that does not follow takes no more than there is room for.
      if (!document.hidden && (follows || attempts.total < MAX_ROWS)) {
        const answer = await fetch("stream/data?after=" + next, {
          cache: "no-store", signal: AbortSignal.timeout(15000),
        });
        if (answer.status === 401) { location.reload(); return; }
        if (!answer.ok) throw new Error("status " + answer.status);
        if (!take(await answer.arrayBuffer())) pause = 0;
        if (!range) begin();
        drawLegend();
        say();
        wish();
        failedSince = null;
        silent.hidden = true;
      }
    } catch (error) {
      failedSince = failedSince || new Date();
      silent.textContent = "No answer since " + failedSince.toLocaleTimeString() +
        ": what is shown is old. This page keeps trying.";
      silent.hidden = false;
      pause = 2000;
    } finally { isReading = false; }
    timer = setTimeout(read, pause);
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    read();
    wish();
  });
  read();
})();
"""

#: Numbers of the page.
_NUMBERS: Final = {
    "SHOWN_S": 60,  # at first
    "LATE_S": 0.7,  # the right edge is so long ago: what has ended by then has been read
    "PAUSE_MS": 500,  # between two questions
    "MAX_ROWS": 100_000,
    "MAX_LANES": 256,
}

SCRIPT: Final = "\n".join(
    [
        '"use strict";',
        *(f"const {name} = {number};" for name, number in _NUMBERS.items()),
        stream_drawing.SCRIPT,
        _PAGE,
    ]
)
