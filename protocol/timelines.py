"""The parts that all timelines share: colours, style, and the script of their time axis. Pure.

A performance report contains them, and the live task stream of a scheduler loads them as files. So
a wheel, a finger or a key does the same in each, and a function has colours of one palette.
"""

from __future__ import annotations

from typing import Final

#: Colours of functions, of all others, and of failures; readable on light and dark pages.
COLOURS: Final = (
    *("#2b7fe0", "#12a45f", "#f09a0e", "#9150e0", "#e0479a"),
    *("#06a8c4", "#a87238", "#7ba30f", "#5560e6"),
)
OTHER_COLOUR: Final = "#8a94a2"
BAD_COLOUR: Final = "#d83b30"
N_COLOURS: Final = len(COLOURS)
#: Height of a lane, in pixels.
LANE: Final = 16

STYLE: Final = (
    ".timeline { "
    + " ".join(f"--c{i}: {colour};" for i, colour in enumerate(COLOURS))
    + f" --cx: {OTHER_COLOUR}; --bad: {BAD_COLOUR}; }}\n"
    + """\
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; list-style: none; margin: 0 0 .7rem;
  padding: 0; font-size: .85rem; }
.legend li { display: inline-flex; gap: .4rem; align-items: center; overflow-wrap: anywhere; }
.legend i { flex: none; width: .8rem; height: .8rem; border-radius: .15rem; }
.lanes { display: flex; gap: .6rem; }
.labels { flex: none; max-width: 30%; color: var(--soft); font-size: .7rem;
  line-height: var(--lane, 16px); }
.labels div { height: var(--lane, 16px); overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.labels .of-curve { height: calc(var(--curve, 48px) + 8px); line-height: 16px;
  padding-bottom: 8px; box-sizing: border-box; display: flex; flex-direction: column;
  justify-content: space-between; text-align: right; }
.labels .of-curve div { height: 16px; }
.plot { flex: 1; min-width: 0; cursor: grab; touch-action: pan-y; }
.plot:active { cursor: grabbing; }
.plot:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.plot canvas { display: block; width: 100%; background: var(--page); }
.plot > :first-child { margin-bottom: 8px; }
.axis { position: relative; height: 1.3rem; font-size: .7rem; color: var(--soft);
  font-variant-numeric: tabular-nums; overflow: hidden; }
.axis span { position: absolute; border-left: 1px solid var(--line); padding: .15rem .25rem 0;
  white-space: nowrap; }
"""
    + "".join(
        f".timeline .{name} {{ background: var(--{name}); }}\n"
        for name in [*(f"c{i}" for i in range(N_COLOURS)), "cx"]
    )
    + """\
.timeline .ct { background: var(--soft); }
.timeline i.cf { border: 2px solid var(--bad); }
"""
)

#: Numbers as texts, and instants, with their date if that is not of today.
_TEXTS: Final = r"""
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
function day(s) {
  const date = new Date(s * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}
// Today is not named.
const dated = (s, now, step = 1) => (day(s) === day(now) ? "" : day(s) + " ") + clock(s, step);
function lasting(s) {
  const [n, unit] = s < 1e-3 ? [s * 1e6, "µs"] : s < 1 ? [s * 1e3, "ms"] : [s, "s"];
  if (s >= 120) {
    const whole = Math.round(s), rest = whole % 60;
    return `${Math.floor(whole / 60)} min${rest ? ` ${rest} s` : ""}`;
  }
  return `${n < 100 ? Number(n.toPrecision(3)) : Math.round(n)} ${unit}`;
}
function sized(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1023.5 && i < 4; i++) n /= 1024;
  return `${n >= 99.95 ? Math.round(n) : Number(n.toPrecision(3))} ${units[i]}`;
}
"""

#: `timeRange` is the part of a time that a plot shows, and its axis. The wheel, dragging, a double
#: click and keys change it. A caller gives
#:
#:     whole()               the first and the last instant that can be shown, seconds
#:     least()               the shortest part that can be shown, seconds
#:     changed(range, how)   draws; `how` is "zoomed", "moved", "all" or "end" if the user did it
#:     tick(s, step, first)  the text of an instant on the axis, where there is one each `step`;
#:                           whether it is the first one there
#:     steps                 the steps from one second on; else 1, 2 and 5 times powers of ten
#:     fixed()               the instant that stays where it is if keys zoom; else the middle
#:     all()                 the first and the last instant of what there is; else those of `whole`
#:     boxOf(event)          the box of what an event points at, if the plot has several
#:
#: `ticks(width)` are the texts of an axis of so many pixels, and where they are, in parts of it. A
#: plot that has an element for its axis gets them there.
_RANGE: Final = """\
function timeRange(plot, {whole, least, changed, tick, steps = [], fixed = () => null,
                          all = whole, boxOf = () => plot.getBoundingClientRect()}) {
  const axis = plot.querySelector(".axis");
  const range = {left: whole()[0], shown: whole()[1] - whole()[0]};
  const stepOf = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return (rough >= 1 && steps.find((n) => n >= rough)) ||
      power * [1, 2, 5, 10].find((n) => n * power >= rough);
  };
  range.ticks = (width) => {
    const {left, shown} = range, step = stepOf(shown / Math.max(width / 110, 2)), ticks = [];
    for (let i = Math.ceil(left / step); i * step < left + shown; i++)
      ticks.push([(i * step - left) / shown, tick(i * step, step, !ticks.length)]);
    return ticks;
  };
  function drawAxis() {
    const width = plot.clientWidth;
    const fits = ([place, text]) => (1 - place) * width > 6.5 * text.length;
    axis?.replaceChildren(...range.ticks(width).filter(fits).map(([place, text]) => {
      const mark = document.createElement("span");
      mark.style.left = place * 100 + "%";
      mark.textContent = text;
      return mark;
    }));
  }
  range.show = (left, shown, how = "") => {
    const [first, last] = whole();
    range.shown = Math.min(Math.max(shown, least()), last - first);
    range.left = Math.min(Math.max(left, first), last - range.shown);
    drawAxis();
    changed(range, how);
  };
  range.zoom = (factor, at = fixed()) => {
    const point = at === null ? range.left + range.shown / 2 : at;
    const [first, last] = whole(), shown = Math.min(range.shown * factor, last - first);
    range.show(point - (point - range.left) * shown / range.shown, shown, "zoomed");
  };
  range.move = (part) => range.show(range.left + part * range.shown, range.shown, "moved");
  range.all = () => {
    const [first, last] = all();
    range.show(first, last - first, "all");
  };
  range.end = () => range.show(whole()[1] - range.shown, range.shown, "end");
  const isWhole = () => range.shown >= whole()[1] - whole()[0];
  const at = (event) => {
    const box = boxOf(event);
    return range.left + (event.clientX - box.left) / box.width * range.shown;
  };
  range.at = at;
  plot.addEventListener("wheel", (event) => {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      range.move(event.deltaX / boxOf(event).width);
      return;
    }
    // Where nothing more can be shown the wheel scrolls the page.
    if (!event.ctrlKey && !event.shiftKey && isWhole() && event.deltaY > 0) return;
    event.preventDefault();
    range.zoom(Math.exp(event.deltaY / 400), at(event));
  }, {passive: false});
  let held = null;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button === 0) held = {instant: at(event), x: event.clientX, moved: false};
  });
  for (const name of ["pointerup", "pointercancel"])
    addEventListener(name, () => { held = null; });
  plot.addEventListener("pointermove", (event) => {
    if (held === null || !event.buttons) return;
    if (!held.moved && Math.abs(event.clientX - held.x) < 3) return;  // a click
    held.moved = true;
    range.show(range.left + held.instant - at(event), range.shown, "moved");
  });
  plot.addEventListener("dblclick", () => range.all());
  const keys = {
    "ArrowLeft": () => range.move(-0.2), "ArrowRight": () => range.move(0.2),
    "PageUp": () => range.move(-0.9), "PageDown": () => range.move(0.9),
    "a": () => range.move(-0.2), "d": () => range.move(0.2),
    "+": () => range.zoom(0.5), "=": () => range.zoom(0.5), "-": () => range.zoom(2),
    "w": () => range.zoom(0.5), "s": () => range.zoom(2),
    "Home": () => range.all(), "0": () => range.all(), "End": () => range.end(),
  };
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  addEventListener("resize", () => range.show(range.left, range.shown));
  // A frame that a notebook has just put in its place may have no width yet.
  new ResizeObserver(drawAxis).observe(plot);
  return range;
}
"""

SCRIPT: Final = '"use strict";' + _TEXTS + _RANGE
