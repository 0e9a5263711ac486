"""The script of the page of the live task stream: it reads, follows, and says what is pointed at.

Pure. `protocol/stream_drawing.py` keeps the attempts and draws them; `protocol/timelines.py` has
the axis, the wheel and the keys.
"""

from __future__ import annotations

from typing import Final

from ...protocol import stream_drawing
from . import live_script

_PAGE: Final = r"""
(() => {
  const find = (name) => document.querySelector(name);
  const root = find(".timeline"), plot = find(".plot"), tip = find(".tip");
  const labels = find("#labels");
  const legend = find(".legend");
  const attempts = new Attempts();
  const painter = new Painter(find("#lanes"), find("#curve"), getComputedStyle(root),
                              (fn) => attempts.functions[fn].name);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let next = "", ahead = 0, missed = 0, before = null;
  let rows = [], chosen = asked.get("function"), colourOf = [], pending = 0, drawnAt = 0;

  // -- what is shown
  // The present, a little late: what has ended by then has been read.
  const now = () => performance.now() / 1000 + ahead - LATE_S;
  const view = liveRange(plot, {
    now,
    oldest: () => attempts.oldest,
    firstS: SHOWN_S,
    least: 1e-4,
    changed() {
      tip.hidden = true;
      wish();
    },
    note(query) {
      if (chosen !== null) query.set("function", chosen);
    },
  });
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
      const title = `worker ${lane.worker}, thread ${lane.thread}, host ${lane.host}`;
      parts.push([text, title, "", "worker?address=" + encodeURIComponent(lane.address)]);
    }
    labels.replaceChildren(...parts.map(([text, title, kind, href]) => {
      const label = document.createElement("div");
      const inner = href ? document.createElement("a") : label;
      if (href) {
        inner.href = href;
        inner.tabIndex = -1;  // the page of all workers has the same links
        label.append(inner);
      }
      inner.textContent = text;
      Object.assign(label, {title, className: kind});
      return label;
    }));
    grow();
    const n = lanes.length - MAX_LANES;
    find("#more").textContent = n > 0 ? `${n} more threads are not drawn.` : "";
    attempts.changed = false;
  }
  function drawLegend() {
    const seen = attempts.functions.filter((one) => one.n || one.nOpen);
    const shown = seen.filter((one) => one.colour !== OTHER);
    shown.sort((a, b) => b.n - a.n);
    const nOthers = seen.length - shown.length;
    const entries = shown.map((one) => [`c${one.colour}`, one.name, one.name]);
    if (chosen !== null && !shown.some((one) => one.name === chosen))
      entries.push(["cx", chosen, chosen]);
    if (nOthers) entries.push(["cx", `${nOthers} other function${nOthers > 1 ? "s" : ""}`, null]);
    if (attempts.nOpen) entries.push(["cr", "runs now", null]);
    if (attempts.nRaised) entries.push(["cf", "raised", null]);
    if (attempts.hasDisk) entries.push(["cd", "spilled, read back", null]);
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
    view.remember();
  }
  function recolour() {
    colourOf = attempts.functions.map((one) =>
      chosen === null || chosen === one.name ? one.colour : OTHER + 1);
  }
  // What is drawn fills the window as far as it can.
  function grow() {
    const top = plot.getBoundingClientRect().top + scrollY;
    painter.grow(rows.length, innerHeight - top - BELOW);
    root.style.setProperty("--lane", painter.lane + "px");
    root.style.setProperty("--curve", painter.high + "px");
    root.dataset.lane = painter.lane;
  }
  addEventListener("resize", grow);
  function draw() {
    pending = 0;
    root.classList.toggle("is-empty", !attempts.lanes.size);
    drawnAt = performance.now();
    view.keepUp();
    const range = view.range;
    if (attempts.changed) layout();
    painter.draw(rows, range.left, range.shown, colourOf, attempts.lanes.size, now() + LATE_S);
    find("#most").textContent = `${Math.ceil(painter.most)} threads`;
    view.say();
    const query = new URLSearchParams();
    view.place(query);
    find("#other").href = String(query) ? "history?" + query : "history";
    if (attempts.total && !root.dataset.drawn) {
      root.dataset.drawn = "1";
      performance.mark("drawn");
    }
    if (view.follows && !still.matches && !document.hidden) wish();
  }
  // At most 30 frames per second, and none where nothing changes.
  function wish() {
    if (!pending && view.range) pending = requestAnimationFrame(frame);
  }
  function frame() {
    if (view.follows && performance.now() - drawnAt < 30) pending = requestAnimationFrame(frame);
    else draw();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    painter.mix();
    wish();
  });

  // -- pointing at an attempt
  function found(event) {
    const top = painter.canvas.getBoundingClientRect().top;
    const lane = rows[Math.floor((event.clientY - top) / painter.lane)];
    if (!lane) return null;
    const range = view.range, instant = range.at(event), near = 3 * range.shown / plot.clientWidth;
    let best = -1, least = near;
    for (let i = lane.after(instant - near); i < lane.to && lane.start[i] <= instant + near; i++) {
      const away = Math.max(lane.start[i] - instant, instant - lane.stop[i], 0);
      if (away < least) { best = i; least = away; }
      if (away === 0) break;
    }
    const isOpen = best < 0 && lane.open && instant >= lane.open.start - near;
    return isOpen ? [lane, -1] : best < 0 ? null : [lane, best];
  }
  const about = (lane, i) => i < 0 ? lane.open : attempts.about(lane, i);
  function describe(lane, i) {
    const {key, raised, name} = about(lane, i), isOpen = i < 0;
    const start = isOpen ? lane.open.start : lane.start[i];
    const stop = isOpen ? now() + LATE_S : lane.stop[i];
    const lines = [["b", key || name]];
    const step = Math.min(1, (stop - start) / 100 || 1e-6), since = dated(start, now(), step);
    lines.push(["span", `${name} on ${lane.worker} · ${lane.thread}, ${lane.host}`]);
    lines.push(["span", isOpen ? `runs since ${since}: ${lasting(Math.max(stop - start, 0))}` :
      `${since} – ${clock(stop, step)}: ${lasting(stop - start)}`]);
    if (lane.waited[i]) lines.push(["span", `of that it waited ${lasting(lane.waited[i])}`]);
    if (lane.got[i])
      lines.push(["span", `inputs were fetched in ${lasting(lane.got[i] - lane.came[i])}`]);
    const moved = [0, 0];
    for (const one of lane.disk)
      if (one.start < stop && one.stop > start) moved[one.isRead] += one.nbytes;
    const ways = [["spilled", moved[0]], ["read back", moved[1]]].filter(([, n]) => n);
    if (ways.length) lines.push(["span", "meanwhile its worker " +
      ways.map(([way, n]) => `${way} ${sized(n)}`).join(" and ")]);
    if (lane.failed[i]) lines.push(["em", `raised ${raised || "an exception"}`]);
    tip.replaceChildren(...lines.map(([kind, text]) => {
      const line = document.createElement(kind);
      line.textContent = text;
      return line;
    }));
  }
  plot.addEventListener("pointermove", (event) => {
    const hit = view.range && !(event.buttons & 1) && found(event);
    tip.hidden = !hit;
    plot.classList.toggle("on-bar", Boolean(hit));
    if (!hit) return;
    describe(...hit);
    const box = plot.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = Math.max(0, Math.min(x + 12, box.width - tip.offsetWidth)) + "px";
    tip.style.top = y + 18 + "px";
  });
  let pressed = null;
  plot.addEventListener("pointerdown", (event) => { pressed = event.clientX; });
  plot.addEventListener("click", (event) => {
    const hit = view.range && Math.abs(event.clientX - pressed) < 3 && found(event);
    const key = hit && about(...hit).key;
    if (!key) return;
    const address = "task?key=" + encodeURIComponent(key);
    if (event.ctrlKey || event.metaKey) window.open(address);
    else location.assign(address);
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
    attempts.run(head.running || []);
    if (view.follows) attempts.trim(MAX_ROWS);
    recolour();
    return head.is_all;
  }
  function say() {
    const n = attempts.total;
    const parts = [n ? `${spaced(n)} attempts since ${dated(attempts.oldest, now())}` :
      "No task has ended since a page like this was opened"];
    if (missed) parts.push(`${spaced(missed)} are missing: no page was visible, or too many came`);
    if (!view.follows && n >= MAX_ROWS)
      parts.push("no more are read until this page is live again");
    find("#count").textContent = parts.join("; ");
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) wish(); });
  readOn("stream/data", {
    // What is looked at stays: a view that does not follow takes no more than there is room for.
    wants: () => view.follows || attempts.total < MAX_ROWS,
    next: () => next,
    async take(answer) {
      const isAll = take(await answer.arrayBuffer());
      if (!view.range) view.begin();
      drawLegend();
      say();
      wish();
      return !isAll;
    },
  });
})();
"""

#: Numbers of the page.
_NUMBERS: Final = {
    "SHOWN_S": 60,  # at first
    "LATE_S": 0.7,  # the right edge is so long ago: what has ended by then has been read
    "PAUSE_MS": 500,  # between two questions
    "MAX_ROWS": 100_000,
    "MAX_LANES": 256,
    "BELOW": 112,  # pixels of what is below the lanes
}

SCRIPT: Final = "\n".join(
    [
        '"use strict";',
        *(f"const {name} = {number};" for name, number in _NUMBERS.items()),
        live_script.SCRIPT,
        stream_drawing.SCRIPT,
        _PAGE,
    ]
)
