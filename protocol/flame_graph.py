"""The flame graph that pages and reports share: its elements, style and script. Pure.

The script draws what `as_data` returns. A bar is a call, the calls that were made in it are below
it, and its width is the part of the samples in which it was under way. Bars narrower than two
pixels are not drawn, so the work is bounded by the pixels, not by the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .markup import Markup, element, embedded
from .stack_tree import StackTree
from .timelines import COLOURS, OTHER_COLOUR

STYLE: Final = (
    ".flame { "
    + " ".join(f"--c{i}: {colour};" for i, colour in enumerate(COLOURS))
    + f" --cx: {OTHER_COLOUR}; position: relative; }}\n"
    + "".join(
        f".flame .c{name} {{ --c: var(--c{name}); }}\n" for name in [*range(len(COLOURS)), "x"]
    )
    + """\
.flame-tools { display: flex; flex-wrap: wrap; gap: .5rem .9rem; align-items: center;
  margin: 0 0 .7rem; }
.flame-tools .flame-search { display: inline-block; width: 17rem; max-width: 100%; margin: 0;
  padding: .3rem .6rem; }
.flame-tools .found, .flame-tools .about { color: var(--soft); font-size: .85rem;
  font-variant-numeric: tabular-nums; }
.flame-tools .about { margin-left: auto; }
.flame button:disabled { opacity: .5; cursor: default; }
.bars { position: relative; overflow: hidden; min-height: 3rem; border-radius: .3rem; }
.bars div { position: absolute; height: 19px; line-height: 19px; font-size: .74rem;
  padding: 0 .35rem; overflow: hidden; white-space: nowrap; text-overflow: ellipsis;
  border-radius: .15rem; cursor: pointer; user-select: none;
  background: color-mix(in srgb, var(--c) 34%, var(--card));
  box-shadow: inset 0 0 0 1px color-mix(in srgb, var(--c) 30%, var(--card)); }
.bars div.thin { padding: 0; }
.bars div.outer { background: color-mix(in srgb, var(--c) 12%, var(--card)); color: var(--soft); }
.bars div.dim { background: var(--track); box-shadow: none; color: var(--soft); }
.bars div.match { background: color-mix(in srgb, var(--c) 62%, var(--card)); font-weight: 600; }
.bars div:hover { background: color-mix(in srgb, var(--c) 55%, var(--card)); color: var(--text); }
.bars div:focus-visible { outline: 2px solid var(--link); outline-offset: -2px; }
.flame .nothing { position: static; color: var(--soft); }
.flame-tip { position: absolute; z-index: 2; pointer-events: none; max-width: min(34rem, 92%);
  background: var(--card); border: 1px solid var(--line); border-radius: .35rem;
  box-shadow: 0 .2rem .8rem rgb(0 0 0 / .18); padding: .4rem .6rem; font-size: .8rem;
  overflow-wrap: anywhere; }
.flame-tip b, .flame-tip span { display: block; }
.flame-tip[hidden] { display: none; }
.flame-legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none;
  margin: .7rem 0 0; padding: 0; font-size: .82rem; color: var(--soft); }
.flame-legend li { display: inline-flex; gap: .4rem; align-items: center; }
.flame-legend i { width: .8rem; height: .8rem; border-radius: .15rem;
  background: color-mix(in srgb, var(--c) 60%, var(--card)); }
.flame table { margin-top: 1rem; font-size: .9rem; }
.flame th button { border: 0; background: none; padding: 0; color: inherit; font: inherit; }
.flame thead th[aria-sort] button { color: var(--text); text-decoration: underline; }
.flame tbody th button { text-align: left; font-weight: 500; overflow-wrap: anywhere; }
.flame tbody th button:hover { text-decoration: underline; }
.flame td.place { color: var(--soft); overflow-wrap: anywhere; }
.flame .share { display: block; width: 8rem; height: .55rem; border-radius: .3rem;
  background: var(--track); overflow: hidden; }
.flame .share i { display: block; height: 100%; background: var(--run); }
@media (max-width: 40rem) {
  .flame td.place, .flame th.place, .flame .shares { display: none; }
  .flame-tools .about { margin-left: 0; } .flame-tools .flame-search { width: 100%; }
}
"""
)


def flame_graph(data: dict[str, Any] | None = None) -> Markup:
    """Return the elements, which the script fills.

    Args:
        data: what is drawn, see `as_data`; None = the script of the page shows something.
    """
    content = None if data is None else embedded("flame-data", data)
    return element(
        "div",
        element("noscript", element("p", "The flame graph is drawn by a script.", class_="silent")),
        element(
            "div",
            element(
                "label",
                element("span", "Search functions and files", class_="sr"),
                element(
                    "input",
                    type="search",
                    class_="field flame-search",
                    placeholder="Search functions and files",
                ),
            ),
            element("button", "Show all", type="button", class_="whole", disabled=True),
            element("span", class_="found", role="status"),
            element("span", class_="about"),
            class_="flame-tools",
        ),
        element(
            "div",
            class_="bars",
            role="tree",
            aria_label="Calls, outermost first; Enter shows one alone, Escape more",
        ),
        element("div", class_="flame-tip", hidden=True),
        element("ul", class_="flame-legend", aria_label="Colours of packages"),
        element(
            "div",
            element("table", class_="top", aria_label="Functions"),
            class_="scroll",
            tabindex=0,
        ),
        content,
        class_="flame",
    )


def as_data(
    tree: StackTree, interval_s: float, seconds: float, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the script draws, as plain data.

    Args:
        tree: the samples.
        interval_s: between two of them.
        seconds: in which they were made.
        notes: what is to be said about them.
    """
    found: dict[str, Any] = tree.to_plain()
    found.update(interval=interval_s, seconds=seconds, notes=list(notes))
    return found


#: `flameGraph(root, {changed})` returns an object:
#:
#:     show(data)        draws other data; what is shown alone, found and focused stays so
#:     zoom(names)       shows the call alone that has these names, outermost first
#:     find(text)        searches
#:     path(), text()    what is shown alone, and searched
#:
#: `changed(how)` is called when the user has shown a call alone ("zoomed") or searched ("found").
SCRIPT: Final = """\
"use strict";
function flameGraph(root, {changed = () => {}} = {}) {
  const ROW = 20, LEAST = 2, N_TOP = 25, N_COLOURS = @N_COLOURS@;
  const find = (name) => root.querySelector(name);
  const bars = find(".bars"), tip = find(".flame-tip"), search = find(".flame-search");
  const whole = find(".whole"), top = find(".top"), legend = find(".flame-legend");
  let data = {names: [""], frames: [[0, 0, 0]], parents: [0], frame_of: [0], counts: [0],
              n_cut: 0, interval: 0.01, seconds: 0, notes: []};
  let frames = [], children = [], totals = [], shown = [], zoomed = 0, byTotal = false;
  let zoomNames = [], focused = null, drawn = new Map(), belowOf = -1, below = null;

  const make = (kind, text = "", name = "") => {
    const found = document.createElement(kind);
    found.textContent = text;
    if (name) found.className = name;
    return found;
  };
  const percent = (part) => {
    const n = 100 * part;
    return `${n >= 99.95 ? "100" : n > 0 && n < 0.05 ? "< 0.1" : n.toFixed(1)} %`;
  };
  const lasting = (s) => s >= 120 ? `${Math.floor(s / 60)} min ${Math.round(s % 60)} s` :
    s >= 1 ? `${Number(s.toPrecision(3))} s` : `${Math.round(s * 1e3)} ms`;
  const spaced = (n) => String(n).replace(/\\B(?=(\\d{3})+$)/g, "\\u202f");
  // The package of a file: the folder below the place where packages are, else the file itself.
  function packageOf(file) {
    const parts = file.replaceAll("\\\\", "/").split("/");
    const at = parts.lastIndexOf("site-packages");
    if (at >= 0 && parts.length > at + 1) return parts[at + 1].replace(/\\.py$/, "");
    const lib = parts.findLastIndex((part) => /^python\\d/.test(part));
    if (lib >= 0 && parts.length > lib + 1) return parts[lib + 1].replace(/\\.py$/, "");
    return parts[parts.length - 1].replace(/\\.py$/, "");
  }
  // A package keeps its colour; those with most samples come first.
  const colours = new Map();
  function colourAll() {
    const sums = new Map();
    data.counts.forEach((n, i) => {
      const name = frameOf(i).package;
      if (name) sums.set(name, (sums.get(name) || 0) + n);
    });
    for (const [name] of [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)))
      if (!colours.has(name)) colours.set(name, colours.size % N_COLOURS);
    for (const frame of frames) frame.colour = frame.file ? colours.get(frame.package) : "x";
  }
  const placeOf = (frame) => frame.file ? `${frame.file}:${frame.line}` : "function of tasks";
  const shortPlaceOf = (frame) =>
    frame.file ? `${frame.file.split(/[\\\\/]/).pop()}:${frame.line}` : "tasks";
  const frameOf = (i) => frames[data.frame_of[i]];
  const pathOf = (i) => {
    const path = [];
    for (let at = i; at; at = data.parents[at]) path.unshift(frameOf(at).key);
    return path;
  };
  const namesOf = (i) => {
    const path = [];
    for (let at = i; at; at = data.parents[at]) path.unshift(frameOf(at).name);
    return path;
  };
  function nodeOf(names) {
    let at = 0;
    for (const name of names) {
      const found = children[at].filter((i) => frameOf(i).name === name);
      if (!found.length) return at;
      at = found.reduce((a, b) => totals[a] >= totals[b] ? a : b);
    }
    return at;
  }

  function show(given) {
    data = given;
    frames = data.frames.map(([name, file, line]) => {
      const frame = {name: data.names[name], file: data.names[file], line};
      frame.key = `${frame.name}\\n${frame.file}\\n${line}`;
      frame.package = frame.file ? packageOf(frame.file) : "";
      frame.lower = `${frame.name} ${frame.file}`.toLowerCase();
      return frame;
    });
    colourAll();
    const n = data.counts.length;
    totals = data.counts.slice();
    children = Array.from({length: n}, () => []);
    for (let i = n - 1; i > 0; i--) {
      totals[data.parents[i]] += totals[i];
      children[data.parents[i]].push(i);
    }
    // By name, not by width: bars stay where they are while the numbers grow.
    for (const some of children)
      some.sort((a, b) => frameOf(a).key < frameOf(b).key ? -1 : 1);
    draw();
  }

  const words = () => search.value.trim().toLowerCase();
  const matches = (frame) => words() !== "" && frame.lower.includes(words());

  function draw() {
    zoomed = nodeOf(zoomNames);
    belowOf = -1;
    const isFocused = bars.contains(document.activeElement);
    const width = bars.clientWidth || 800, all = totals[zoomed];
    const parts = [], outer = [];
    for (let at = zoomed; at;) outer.unshift(at = data.parents[at]);
    shown = [];
    outer.forEach((i, depth) => shown.push({i, depth, left: 0, part: 1, isOuter: true}));
    const open = all ? [{i: zoomed, depth: outer.length, left: 0}] : [];
    let deepest = outer.length;
    while (open.length) {
      const {i, depth, left} = open.pop();
      const part = totals[i] / all;
      if (part * width < LEAST) continue;
      shown.push({i, depth, left, part, isOuter: false});
      deepest = Math.max(deepest, depth);
      let at = left;
      for (const child of children[i]) {
        open.push({i: child, depth: depth + 1, left: at});
        at += totals[child] / all;
      }
    }
    drawn = new Map();
    for (const one of shown) {
      const {i, depth, left, part, isOuter} = one, frame = frameOf(i);
      const name = i ? frame.name : "all tasks";
      const bar = make("div", part * width > 24 ? name : "");
      const kinds = [i ? `c${frame.colour}` : "cx"];
      if (isOuter) kinds.push("outer");
      if (part * width < 14) kinds.push("thin");
      if (words()) kinds.push(i && matches(frame) ? "match" : "dim");
      bar.className = kinds.join(" ");
      bar.style.top = depth * ROW + "px";
      bar.style.left = left * 100 + "%";
      bar.style.width = `max(1px, calc(${part * 100}% - 1px))`;
      bar.setAttribute("role", "treeitem");
      bar.setAttribute("aria-level", String(depth + 1));
      bar.setAttribute("aria-label", `${name}, ${placeOf(frame)}, ${percent(totals[i] / all)}`);
      bar.tabIndex = -1;
      one.bar = bar;
      drawn.set(bar, one);
      parts.push(bar);
    }
    if (!all) parts.push(make("p", data.empty || "No task has been seen to run yet.", "nothing"));
    bars.style.height = all ? (deepest + 1) * ROW + "px" : "";
    bars.replaceChildren(...parts);
    const key = focused && focused.join("\\0");
    const same = key !== null && shown.find((one) => pathOf(one.i).join("\\0") === key);
    const first = same || shown.find((one) => one.i === zoomed);
    if (first) {
      first.bar.tabIndex = 0;
      if (isFocused) first.bar.focus({preventScroll: true});
    }
    whole.disabled = !zoomed;
    say(all);
    drawLegend();
    drawTop(all);
    root.dataset.drawn = String(all);
  }
  function say(all) {
    const time = lasting(all * data.interval);
    find(".about").textContent = all ?
      `${spaced(all)} samples ≈ ${time} of threads, in ${lasting(data.seconds)}` : "";
    let n = 0;
    if (words()) {
      const within = new Uint8Array(data.counts.length);
      for (let i = 1; i < data.counts.length; i++) {
        within[i] = within[data.parents[i]] || (matches(frameOf(i)) ? 1 : 0);
        if (within[i] && isBelow(i)) n += data.counts[i];
      }
    }
    find(".found").textContent = words() && all ? `${percent(n / all)} in what was found` : "";
  }
  function isBelow(i) {
    if (!zoomed) return true;
    if (belowOf !== zoomed || below.length !== data.counts.length) {
      below = new Uint8Array(data.counts.length);
      below[zoomed] = 1;
      for (let at = zoomed + 1; at < below.length; at++) below[at] = below[data.parents[at]];
      belowOf = zoomed;
    }
    return below[i] === 1;
  }
  function drawLegend() {
    const sums = new Map();
    for (const {i, isOuter} of shown) {
      const frame = frameOf(i);
      if (isOuter || !frame.file) continue;
      sums.set(frame.package, (sums.get(frame.package) || 0) + data.counts[i]);
    }
    const rows = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 8);
    legend.replaceChildren(...rows.map(([name]) => {
      const entry = make("li");
      entry.append(make("i", "", `c${colours.get(name)}`), name);
      return entry;
    }));
  }
  function drawTop(all) {
    const sums = new Map();
    for (let i = zoomed || 1; i < data.counts.length; i++) {
      const frame = frameOf(i);
      if (!isBelow(i) || !frame.file) continue;
      const sum = sums.get(frame) || {frame, self: 0, total: 0};
      sum.self += data.counts[i];
      let at = i, isInside = false;  // a call that the function has made of itself
      while (at && at !== zoomed && !isInside) {
        at = data.parents[at];
        isInside = frameOf(at) === frame;
      }
      if (!isInside) sum.total += totals[i];
      sums.set(frame, sum);
    }
    const of = byTotal ? "total" : "self", other = byTotal ? "self" : "total";
    const rows = [...sums.values()].sort((a, b) => b[of] - a[of] || b[other] - a[other]);
    const isFocused = top.contains(document.activeElement) && document.activeElement.dataset.of;
    const head = make("tr");
    const column = (text, kind, sorts = null) => {
      const cell = make("th", sorts === null ? text : "", kind);
      cell.scope = "col";
      if (sorts !== null) {
        const button = make("button", text);
        button.type = "button";
        button.dataset.of = text;
        button.addEventListener("click", () => { byTotal = sorts; drawTop(totals[zoomed]); });
        if (byTotal === sorts) cell.setAttribute("aria-sort", "descending");
        cell.append(button);
      }
      head.append(cell);
    };
    column("function", "name");
    column("itself", "n", false);
    column("with calls", "n", true);
    head.append(make("td", "", "shares"));
    column("where", "place");
    const body = make("tbody");
    for (const {frame, self, total} of rows.slice(0, N_TOP)) {
      const row = make("tr"), name = make("th"), button = make("button", frame.name);
      name.scope = "row";
      button.type = "button";
      button.dataset.of = frame.key;
      button.title = "search it in the graph";
      button.addEventListener("click", () => {
        find_(search.value === frame.name ? "" : frame.name);
        changed("found");
      });
      name.append(button);
      const share = make("span", "", "share"), part = make("i");
      part.style.width = 100 * (byTotal ? total : self) / all + "%";
      share.append(part);
      const bar = make("td", "", "shares");
      bar.append(share);
      const place = make("td", shortPlaceOf(frame), "place");
      place.title = placeOf(frame);
      const number = (n) => make("td", n ? percent(n / all) : "", "n");
      row.append(name, number(self), number(total),
                 bar, place);
      body.append(row);
    }
    const title = make("thead");
    title.append(head);
    top.replaceChildren(...(rows.length ? [title, body] : []));
    if (isFocused)
      [...top.querySelectorAll("button")].find((e) => e.dataset.of === isFocused)?.focus();
  }

  // -- what the user does
  function zoomTo(i) {
    zoomNames = namesOf(i);
    focused = pathOf(i);
    tip.hidden = true;
    draw();
    changed("zoomed");
  }
  function find_(text) {
    search.value = text;
    draw();
  }
  const oneOf = (event) => drawn.get(event.target.closest(".bars > div"));
  function describe({i, isOuter}, x, y) {
    const frame = frameOf(i), all = totals[zoomed];
    const lines = [make("b", i ? frame.name : "all tasks")];
    if (i) lines.push(make("span", placeOf(frame)));
    const of = isOuter ? "" : `${percent(totals[i] / all)}${zoomed ? " of what is shown" : ""}, `;
    lines.push(make("span", `${of}${percent(totals[i] / (totals[0] || 1))} of all, ` +
      `≈ ${lasting(totals[i] * data.interval)}`));
    if (data.counts[i] && i)
      lines.push(make("span", `itself ${percent(data.counts[i] / all)}, ` +
        `≈ ${lasting(data.counts[i] * data.interval)}`));
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const box = root.getBoundingClientRect();
    tip.style.left = Math.max(0, Math.min(x - box.left + 12, box.width - tip.offsetWidth)) + "px";
    tip.style.top = y - box.top + 18 + "px";
  }
  bars.addEventListener("pointermove", (event) => {
    const one = oneOf(event);
    if (one) describe(one, event.clientX, event.clientY);
    else tip.hidden = true;
  });
  bars.addEventListener("pointerleave", () => { tip.hidden = true; });
  bars.addEventListener("click", (event) => {
    const one = oneOf(event);
    if (one) zoomTo(one.i);
  });
  bars.addEventListener("focusin", (event) => {
    const one = drawn.get(event.target);
    if (!one) return;
    for (const other of shown) other.bar.tabIndex = other === one ? 0 : -1;
    focused = pathOf(one.i);
    const box = event.target.getBoundingClientRect();
    if (event.target.matches(":focus-visible")) describe(one, box.left, box.top + 4);
  });
  bars.addEventListener("focusout", () => { tip.hidden = true; });
  bars.addEventListener("keydown", (event) => {
    const one = drawn.get(event.target);
    if (!one || event.ctrlKey || event.altKey || event.metaKey) return;
    const row = (depth) => shown.filter((other) => other.depth === depth)
      .sort((a, b) => a.left - b.left);
    const beside = (step) => {
      const all = row(one.depth);
      return all[all.indexOf(one) + step];
    };
    const inside = () => row(one.depth + 1)
      .filter((other) => data.parents[other.i] === one.i)
      .reduce((a, b) => a && a.part >= b.part ? a : b, undefined);
    const above = () => one.i ? shown.find((other) => other.i === data.parents[one.i]) : undefined;
    const moves = {ArrowUp: above, ArrowDown: inside, ArrowLeft: () => beside(-1),
                   ArrowRight: () => beside(1)};
    if (moves[event.key]) moves[event.key]()?.bar.focus();
    else if (event.key === "Enter" || event.key === " ") zoomTo(one.i);
    else if (event.key === "Escape" && zoomed) zoomTo(data.parents[zoomed]);
    else if (event.key === "Home") zoomTo(0);
    else return;
    event.preventDefault();
  });
  whole.addEventListener("click", () => zoomTo(0));
  search.addEventListener("input", () => { draw(); changed("found"); });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    search.focus();
  });
  let pending = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(draw);
  });
  show(data);
  return {
    show,
    zoom(names) { zoomNames = names; draw(); },
    find: find_,
    path: () => zoomNames,
    text: () => search.value,
  };
}
for (const content of document.querySelectorAll(".flame-data"))
  flameGraph(content.closest(".flame")).show(JSON.parse(content.textContent));
""".replace("@N_COLOURS@", str(len(COLOURS)))
