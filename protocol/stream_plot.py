"""The task stream as a plot: its elements, style and script, of pages and reports. Pure.

`stream_drawing.py` keeps the attempts and draws them, `timelines.py` has the axis, the wheel and
the keys. Reports and notebooks give `plot` the attempts. The page of a scheduler gives none, and
has a script that reads them and calls `taskStream`.
"""

from __future__ import annotations

import base64
import zlib
from typing import Final

from . import stream_drawing, timelines
from .attempt_columns import AttemptColumns
from .markup import Markup, element

#: Lanes that are drawn.
MAX_LANES: Final = 256
#: The height of what is below the lanes of a page.
BELOW_PX: Final = 112

STYLE: Final = (
    timelines.STYLE
    + """\
.legend button { border: 0; background: none; padding: 0 .2rem; text-align: left;
  overflow-wrap: anywhere; }
.legend button:hover { text-decoration: underline; }
.legend button[aria-pressed=true] { font-weight: 600; text-decoration: underline; }
.legend { min-height: 1.3rem; }
.labels { min-width: 5.5rem; } .labels #labels { display: contents; }
.labels .host { color: var(--text); font-weight: 600; }
.labels a { color: inherit; text-decoration: none; }
.labels a:hover { color: var(--link); text-decoration: underline; }
.timeline i.cr { border: 2px solid var(--soft); border-right: 0; border-radius: .15rem 0 0 .15rem; }
.timeline i.cd { background:
  repeating-linear-gradient(135deg, var(--full) 0 1px, transparent 0 4px); }
.plot { position: relative; min-height: 5.5rem; }
.plot.on-bar { cursor: pointer; }
.none { color: var(--soft); margin: 0; padding: 5rem 0; text-align: center; }
.timeline:not(.is-empty) .none, .is-empty .labels, .is-empty canvas, .is-empty .axis {
  display: none; }
.tip { position: absolute; z-index: 1; pointer-events: none; max-width: min(30rem, 90%);
  background: var(--card); border: 1px solid var(--line); border-radius: .35rem;
  box-shadow: 0 .2rem .8rem rgb(0 0 0 / .18); padding: .4rem .6rem; font-size: .8rem;
  overflow-wrap: anywhere; }
.tip b, .tip span, .tip em { display: block; }
.tip em { color: var(--error-text); font-style: normal; }
.tip[hidden] { display: none; }
@media (max-width: 40rem) {
  .lanes { gap: .3rem; } .labels { min-width: 3.2rem; }
}
"""
)


def plot(
    columns: AttemptColumns | None = None,
    seconds: float = 0.0,
    n_threads: int = 0,
    keys: str = "",
) -> Markup:
    """Return the elements of a task stream.

    Args:
        columns: the attempts, with times from 0 on; None = a script of the page brings them.
        seconds: the right edge.
        n_threads: of the whole cluster; 0 = not known.
        keys: what further keys do.
    """
    scale = element("div", element("div", "", id="most"), element("div", "0"), class_="of-curve")
    drawing = element(
        "div",
        element("canvas", id="curve", role="img", aria_label="How many threads computed"),
        element(
            "canvas", id="lanes", role="img", aria_label="The attempts of each thread, over time"
        ),
        element("div", class_="axis"),
        element("p", "no data yet", class_="none"),
        element("div", class_="tip", hidden=True),
        class_="plot",
        tabindex=0,
        role="group",
        aria_label=f"Plot: + and - zoom, arrow keys move, 0 shows everything{keys}",
    )
    return element(
        "div",
        element("noscript", element("p", "This is drawn by a script.", class_="silent")),
        element("ul", class_="legend"),
        element(
            "div",
            element("div", scale, element("div", id="labels"), class_="labels"),
            drawing,
            class_="lanes",
        ),
        element("p", class_="soft more", id="more"),
        None if columns is None else _data(columns, seconds, n_threads),
        class_="timeline",
    )


def _data(columns: AttemptColumns, seconds: float, n_threads: int) -> Markup:
    text = base64.b64encode(zlib.compress(columns.to_bytes(), 6)).decode()
    return element(
        "script",
        Markup(text),
        type="application/octet-stream",
        class_="stream-data",
        data_seconds=f"{seconds:.6f}",
        data_threads=n_threads,
    )


#: `taskStream` draws `Attempts`, has a legend, and says what is pointed at. A caller gives
#:
#:     range()               the part of time that is shown, see `timeRange`; null = there is none
#:     now()                 the present, at which bars end of what runs
#:     chosen                the function that is shown alone; null = all are
#:     nThreads()            how many threads there are
#:     isMoving()            whether it is to be drawn again and again
#:     instant(s, step, isFirst)   the text of an instant; of the first of two
#:     hrefOf(kind, name, value)   the address of the page about a task or a worker; null = none
#:     before(), after()     are called around each drawing
#:     choose(name)          a function was chosen
_PLOT: Final = r"""
function taskStream(attempts, {range, now, chosen = null, nThreads, isMoving = () => false, instant,
                               hrefOf = () => null, before = () => {}, after = () => {},
                               choose: noteChoice = () => {}}) {
  const find = (name) => document.querySelector(name);
  const root = find(".timeline"), plot = find(".plot"), tip = find(".tip");
  const labels = find("#labels"), legend = find(".legend");
  const painter = new Painter(find("#lanes"), find("#curve"), getComputedStyle(root),
                              (fn) => attempts.functions[fn].name);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let rows = [], colourOf = [], pending = 0, drawnAt = 0;

  const placeOf = (lane) => lane.host ? `, host ${lane.host}` : "";
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
      const title = `worker ${lane.worker}, thread ${lane.thread}${placeOf(lane)}`;
      parts.push([text, title, "", hrefOf("worker", "address", lane.address)]);
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
    noteChoice(name);
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
  addEventListener("resize", () => { grow(); wish(); });
  function draw() {
    pending = 0;
    root.classList.toggle("is-empty", !attempts.lanes.size);
    drawnAt = performance.now();
    before();
    const {left, shown} = range();
    if (attempts.changed) layout();
    painter.draw(rows, left, shown, colourOf, nThreads(), now());
    find("#most").textContent = `${Math.ceil(painter.most)} threads`;
    after();
    if (attempts.total && !root.dataset.drawn) {
      root.dataset.drawn = "1";
      performance.mark("drawn");
    }
    if (isMoving() && !still.matches && !document.hidden) wish();
  }
  // At most 30 frames per second, and none where nothing changes.
  function wish() {
    if (!pending && range()) pending = requestAnimationFrame(frame);
  }
  function frame() {
    if (isMoving() && performance.now() - drawnAt < 30) pending = requestAnimationFrame(frame);
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
    const at = range().at(event), near = 3 * range().shown / plot.clientWidth;
    let best = -1, least = near;
    for (let i = lane.after(at - near); i < lane.to && lane.start[i] <= at + near; i++) {
      const away = Math.max(lane.start[i] - at, at - lane.stop[i], 0);
      if (away < least) { best = i; least = away; }
      if (away === 0) break;
    }
    const isOpen = best < 0 && lane.open && at >= lane.open.start - near;
    return isOpen ? [lane, -1] : best < 0 ? null : [lane, best];
  }
  const about = (lane, i) => i < 0 ? lane.open : attempts.about(lane, i);
  function describe(lane, i) {
    const {key, raised, name, note} = about(lane, i), isOpen = i < 0;
    const start = isOpen ? lane.open.start : lane.start[i];
    const stop = isOpen ? now() : lane.stop[i];
    const lines = [["b", key || name]];
    const step = Math.min(1, (stop - start) / 100 || 1e-6), since = instant(start, step, true);
    lines.push(["span", `${name} on ${lane.worker} · ${lane.thread}${placeOf(lane)}`]);
    lines.push(["span", isOpen ? `runs since ${since}: ${lasting(Math.max(stop - start, 0))}` :
      `${since} – ${instant(stop, step, false)}: ${lasting(stop - start)}`]);
    if (lane.waited[i]) lines.push(["span", `of that it waited ${lasting(lane.waited[i])}`]);
    if (lane.got[i])
      lines.push(["span", `inputs were fetched in ${lasting(lane.got[i] - lane.came[i])}`]);
    const moved = [0, 0];
    for (const one of lane.disk)
      if (one.start < stop && one.stop > start) moved[one.isRead] += one.nbytes;
    const ways = [["spilled", moved[0]], ["read back", moved[1]]].filter(([, n]) => n);
    if (ways.length) lines.push(["span", "meanwhile its worker " +
      ways.map(([way, n]) => `${way} ${sized(n)}`).join(" and ")]);
    if (note) lines.push(["span", note]);
    if (lane.failed[i]) lines.push(["em", `raised ${raised || "an exception"}`]);
    tip.replaceChildren(...lines.map(([kind, text]) => {
      const line = document.createElement(kind);
      line.textContent = text;
      return line;
    }));
  }
  plot.addEventListener("pointermove", (event) => {
    const hit = range() && !(event.buttons & 1) && found(event);
    tip.hidden = !hit;
    plot.classList.toggle("on-bar", Boolean(hit && hrefOf("task", "key", "")));
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
    const hit = range() && Math.abs(event.clientX - pressed) < 3 && found(event);
    const key = hit && about(...hit).key, address = key && hrefOf("task", "key", key);
    if (!address) return;
    if (event.ctrlKey || event.metaKey) window.open(address);
    else location.assign(address);
  });
  plot.addEventListener("pointerleave", () => { tip.hidden = true; });

  return {
    get chosen() { return chosen; },
    wish,
    // Other attempts are there than before.
    take() {
      recolour();
      drawLegend();
      wish();
    },
    // Another part of time is shown.
    move() {
      tip.hidden = true;
      wish();
    },
  };
}
"""

#: Shows the attempts that a page has in it, of the times from 0 on.
_ALONE: Final = r"""
async function showStream(content) {
  const end = Number(content.dataset.seconds), attempts = new Attempts();
  const packed = Uint8Array.from(atob(content.textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  attempts.add(await new Response(unpacked).arrayBuffer());
  const digits = (step) => Math.max(0, Math.min(7, -Math.floor(Math.log10(step) + 1e-9)));
  const instant = (s, step) => end < 1e-3 ? (s * 1e6).toFixed(digits(step * 1e6)) + " µs" :
    end < 1 ? (s * 1e3).toFixed(digits(step * 1e3)) + " ms" :
    end < 120 || step < 1 ? s.toFixed(digits(step)) + " s" :
    Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
  let range = null;
  const stream = taskStream(attempts, {
    range: () => range,
    now: () => end,
    nThreads: () => Number(content.dataset.threads) || attempts.lanes.size,
    instant,
  });
  range = timeRange(document.querySelector(".plot"), {
    whole: () => [0, end],
    least: () => end / 1e5,
    tick: instant,
    changed: () => stream.move(),
  });
  range.all();
  stream.take();
}
for (const content of document.querySelectorAll(".stream-data")) showStream(content);
"""

#: The whole script but that of the axis, `timelines.SCRIPT`, which other pages load as well.
SCRIPT: Final = "\n".join(
    [
        f"const MAX_LANES = {MAX_LANES}, BELOW = {BELOW_PX};",
        stream_drawing.SCRIPT,
        _PLOT,
        _ALONE,
    ]
)
