"""The script of the page of the last hour: it keeps samples, and draws them as charts. Pure.

`history_page.py` declares the charts, `live_script.py` has what other pages do as well. Samples
that share a pixel are joined: a rate is what has grown between the two ends of a part, a level is
the highest in it. Parts are counted from the first sample there ever was, so a chart that moves
does not flicker.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from . import live_script
from .history_page import CHARTS

#: `Numbers` keeps columns and makes points of them.
MODEL: Final = r"""
class Numbers {
  constructor() { this.clear(); }
  clear() { Object.assign(this, {at: [], columns: {}, first: 0}); }
  get n() { return this.at.length; }
  add({columns, to_unix_s}) {
    const {at_ms, ...others} = columns;
    for (const ms of at_ms) this.at.push(ms / 1000 + to_unix_s);
    for (const [name, column] of Object.entries(others))
      (this.columns[name] ||= new Array(this.at.length - at_ms.length).fill(0)).push(...column);
    const n = this.n - MAX_SAMPLES;
    if (n < MAX_SAMPLES / 4) return;
    for (const column of [this.at, ...Object.values(this.columns)]) column.splice(0, n);
    this.first += n;
  }
  // The first sample after an instant.
  after(instant) {
    let low = 0, high = this.n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at[middle] > instant) high = middle; else low = middle + 1;
    }
    return low;
  }
  // The ends of parts between two instants, at most about `most`: places of their last samples.
  parts(left, right, most) {
    const from = Math.max(this.after(left) - 1, 0), to = Math.min(this.after(right) + 1, this.n);
    let size = 1;
    while ((to - from) / size > most) size *= 2;
    const ends = [];
    for (let i = from; i < to; i++)
      if (!((this.first + i) % size) || i === this.n - 1) ends.push(i);
    return ends;
  }
  // The value of a line at each of these ends; null = it is not known there.
  values({column, is_rate, per}, ends) {
    const {at, columns} = this, numbers = columns[column] || [];
    return ends.map((end, k) => {
      const before = k ? ends[k - 1] : end - 1;
      if (end > 0 && at[end] - at[Math.max(before, 0)] > GAP_S && before === end - 1) return null;
      if (is_rate) {
        if (before < 0) return null;
        const seconds = Math.max(at[end] - at[before], 1e-3);
        return Math.max(numbers[end] - numbers[before], 0) / per / seconds;
      }
      let most = numbers[end] || 0;
      for (let i = before + 1; i < end; i++) most = Math.max(most, numbers[i]);
      return most / per;
    });
  }
}
// A number at which an axis may end, and the marks below it.
function scaleOf(most, isBytes) {
  const base = isBytes ? 1024 : 10;
  const steps = isBytes ? [...Array(10).keys()].flatMap((i) => [2 ** i, 1.5 * 2 ** i]) :
    [1, 2, 3, 4, 5, 6, 8, 10];
  const least = Math.max(most, isBytes ? 1024 : 1);
  const power = base ** Math.floor(Math.log(least * 1.0001) / Math.log(base));
  const top = power * (steps.find((n) => n * power >= least * 0.9999) || base);
  return {top, marks: [top / 2, top].filter((n) => isBytes || n % 1 === 0)};
}
const short = (n) => n >= 1e6 ? `${Number((n / 1e6).toPrecision(3))} M` :
  n >= 1e5 ? `${Math.round(n / 1e3)} k` : n >= 100 ? spaced(Math.round(n)) :
  String(Number(n.toFixed(n < 1 ? 2 : 1)));
function worded(n, unit) {
  if (n === null || n === undefined) return "–";
  return unit === "" ? short(n) : sized(n) + unit.slice("bytes".length);
}
"""

_PAGE: Final = r"""
(() => {
  const find = (name) => document.querySelector(name);
  const plot = find(".charts"), samples = new Numbers();
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const figures = [...document.querySelectorAll(".chart")];
  const canvases = figures.map((one) => one.querySelector("canvas"));
  const hidden = new Set((asked.get("hide") || "").split(".").filter(Boolean));
  let next = "", ahead = 0, pending = 0, drawnAt = 0, pointed = null, style = null;

  const now = () => performance.now() / 1000 + ahead - LATE_S;
  const view = liveRange(plot, {
    now,
    oldest: () => samples.n ? samples.at[0] : Infinity,
    firstS: SHOWN_S,
    mostS: 3600,
    least: 10,
    changed: wish,
    note(query) {
      if (hidden.size) query.set("hide", [...hidden].join("."));
    },
    boxOf(event) {
      const over = canvases.find((one) => one === event?.target) || canvases[0];
      return over.getBoundingClientRect();
    },
  });

  // -- drawing
  const nameOf = (chart, one) => CHARTS.indexOf(chart) + one.name;
  function colours() {
    const of = getComputedStyle(find(".axes"));
    style = new Proxy({}, {get: (_, name) => of.getPropertyValue(`--${name}`).trim()});
  }
  function drawChart(chart, figure, canvas, ends, nearest) {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    const context = canvas.getContext("2d");
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio))
      Object.assign(canvas, {width: Math.round(width * ratio), height: Math.round(height * ratio)});
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const {left, shown} = view.range, foot = 18, head = 8, room = height - foot - head;
    const shownSeries = chart.series.filter((one) => !hidden.has(nameOf(chart, one)));
    const values = new Map(shownSeries.map((one) => [one, samples.values(one, ends)]));
    let below = null, most = 0;
    const lines = shownSeries.map((one) => {
      let tops = values.get(one), floor = null;
      if (one.form === "stack") {
        floor = below;
        if (below) tops = tops.map((n, i) => n === null ? null : n + (below[i] || 0));
        below = tops;
      }
      for (const n of tops) if (n > most) most = n;
      return {one, tops, floor, isNothing: !values.get(one).some(Boolean)};
    });
    const {top, marks} = scaleOf(most, chart.unit !== "");
    const isEmpty = lines.every((one) => one.isNothing);
    const xOf = (i) => (samples.at[ends[i]] - left) / shown * width;
    const yOf = (n) => head + room - n / top * room;
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    context.textBaseline = "alphabetic";
    context.strokeStyle = style.line;
    context.fillStyle = style.soft;
    if (isEmpty) {
      const text = samples.n > 1 ? "nothing in this time" : "no data yet";
      context.fillText(text, (width - context.measureText(text).width) / 2, head + room / 2);
    }
    context.beginPath();
    for (const n of isEmpty ? [0] : [0, ...marks]) {
      const y = Math.round(yOf(n)) + 0.5;
      context.moveTo(0, y);
      context.lineTo(width, y);
    }
    context.stroke();
    for (const [place, text] of view.range.ticks(width)) {
      const x = Math.round(place * width) + 0.5;
      context.beginPath();
      context.moveTo(x, height - foot);
      context.lineTo(x, height - foot + 4);
      context.stroke();
      const fits = x + context.measureText(text).width + 4 < width;
      if (fits) context.fillText(text, x + 4, height - 4);
    }
    const path = (tops, isBack) => {
      let isOn = false;
      for (let k = 0; k < tops.length; k++) {
        const i = isBack ? tops.length - 1 - k : k;
        if (tops[i] === null) { isOn = false; continue; }
        if (isOn || isBack) context.lineTo(xOf(i), yOf(tops[i]));
        else context.moveTo(xOf(i), yOf(tops[i]));
        isOn = true;
      }
    };
    // Runs of known points: an area is closed where something is not known.
    const runs = (tops) => {
      const found = [];
      let run = null;
      tops.forEach((n, i) => {
        if (n === null) { run = null; return; }
        if (!run) found.push(run = []);
        run.push(i);
      });
      return found;
    };
    for (const {one, tops, floor, isNothing} of lines) {
      if (isNothing) continue;
      const colour = style[one.colour];
      context.strokeStyle = context.fillStyle = colour;
      if (one.form === "area" || one.form === "stack") {
        context.globalAlpha = one.form === "stack" ? 0.45 : 0.22;
        for (const run of runs(tops)) {
          context.beginPath();
          for (const i of run) context.lineTo(xOf(i), yOf(tops[i]));
          for (const i of run.reverse()) context.lineTo(xOf(i), yOf(floor ? floor[i] || 0 : 0));
          context.fill();
        }
        context.globalAlpha = 1;
      }
      context.lineWidth = one.form === "limit" ? 1.25 : 1.75;
      context.lineJoin = "round";
      context.setLineDash(one.form === "limit" ? [5, 4] : []);
      context.beginPath();
      path(tops, false);
      context.stroke();
      context.setLineDash([]);
    }
    // What an axis ends with is written over the lines, on a background of its own.
    for (const n of isEmpty ? [] : marks) {
      const text = worded(n, chart.unit), wide = context.measureText(text).width;
      context.globalAlpha = 0.75;
      context.fillStyle = style.card;
      context.fillRect(0, yOf(n) + 2, wide + 6, 13);
      context.globalAlpha = 1;
      context.fillStyle = style.soft;
      context.fillText(text, 3, yOf(n) + 12);
    }
    if (nearest !== null) {
      const x = Math.round(xOf(nearest)) + 0.5;
      context.strokeStyle = style.text;
      context.globalAlpha = 0.6;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, head);
      context.lineTo(x, height - foot);
      context.stroke();
      context.globalAlpha = 1;
      for (const {one, tops, isNothing} of lines) {
        if (isNothing || tops[nearest] === null || one.form === "limit") continue;
        context.beginPath();
        context.arc(x, yOf(tops[nearest]), 3.5, 0, 7);
        context.fillStyle = style[one.colour];
        context.fill();
        context.strokeStyle = style.card;
        context.lineWidth = 1.5;
        context.stroke();
      }
    }
    const place = nearest === null ? ends.length - 1 : nearest;
    for (const button of figure.querySelectorAll("button")) {
      const one = chart.series.find(({name}) => name === button.dataset.name);
      const isShown = values.has(one);
      const text = isShown ? worded(values.get(one)[place], chart.unit) : "";
      const shown = button.querySelector("b");
      if (shown.textContent !== text) shown.textContent = text;
      button.setAttribute("aria-pressed", String(isShown));
    }
  }
  function draw() {
    pending = 0;
    drawnAt = performance.now();
    view.keepUp();
    if (!style) colours();
    const {left, shown} = view.range, width = canvases[0].clientWidth;
    const ends = samples.parts(left, left + shown, width / 2);
    let nearest = null;
    if (pointed !== null && ends.length) {
      const away = ends.map((i) => Math.abs(samples.at[i] - pointed));
      const least = Math.min(...away);
      if (least < Math.max(shown / 50, GAP_S / 2)) nearest = away.indexOf(least);
    }
    CHARTS.forEach((chart, i) => drawChart(chart, figures[i], canvases[i], ends, nearest));
    view.say();
    if (nearest !== null) find("#shown").textContent = dated(samples.at[ends[nearest]], now());
    find("#seconds").textContent = lasting(shown);
    for (const button of document.querySelectorAll("[data-seconds]")) {
      const isIt = Math.abs(shown - Number(button.dataset.seconds)) < shown / 100;
      button.setAttribute("aria-pressed", String(isIt));
    }
    const query = new URLSearchParams();
    view.place(query);
    find("#other").href = String(query) ? "stream?" + query : "stream";
    if (samples.n > 1) find(".axes").dataset.drawn = "1";
    if (view.follows && !still.matches && !document.hidden) wish();
  }
  // A chart that follows is drawn when it has moved by half a pixel, at most 30 times per second.
  function wish() {
    if (!pending && view.range) pending = requestAnimationFrame(frame);
  }
  function frame() {
    const pause = Math.max(30, view.range.shown / canvases[0].clientWidth * 500);
    if (view.follows && performance.now() - drawnAt < Math.min(pause, 500) && !isAsked)
      pending = requestAnimationFrame(frame);
    else { isAsked = false; draw(); }
  }
  let isAsked = false;
  function wishNow() { isAsked = true; wish(); }

  // -- pointing
  plot.addEventListener("pointermove", (event) => {
    if (!view.range || event.buttons & 1) return;
    pointed = canvases.includes(event.target) ? view.range.at(event) : null;
    wishNow();
  });
  plot.addEventListener("pointerleave", () => { pointed = null; wishNow(); });
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pointed = null;
    else if (event.key === "," || event.key === ".") {
      const {left, shown} = view.range, step = shown / 60 * (event.key === "," ? -1 : 1);
      const from = pointed === null ? left + shown : pointed + step;
      pointed = Math.min(Math.max(from, left), left + shown);
    } else return;
    event.preventDefault();
    wishNow();
  });
  figures.forEach((figure, i) => figure.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const name = i + button.dataset.name;
    if (!hidden.delete(name)) hidden.add(name);
    wishNow();
    view.remember();
  }));
  for (const button of document.querySelectorAll("[data-seconds]"))
    button.addEventListener("click", () => view.last(Number(button.dataset.seconds)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    style = null;
    wishNow();
  });
  document.addEventListener("visibilitychange", wishNow);

  readOn("history/data", {
    wants: () => true,
    next: () => next,
    async take(answer) {
      const found = await answer.json();
      if (next && !found.goes_on) samples.clear();
      next = found.next;
      ahead = found.now - performance.now() / 1000;
      samples.add(found);
      if (!view.range) view.begin();
      find("#count").textContent = samples.n > 1 ?
        `${spaced(samples.n)} samples since ${dated(samples.at[0], now())}` :
        "The first numbers come in a moment";
      wishNow();
      return false;
    },
  });
})();
"""

#: Numbers of the page.
_NUMBERS: Final = {
    "SHOWN_S": 300,  # at first
    "LATE_S": 2.5,  # the right edge is so long ago: what was sampled by then has been read
    "PAUSE_MS": 1000,  # between two questions
    "MAX_SAMPLES": 2400,
    "GAP_S": 30,  # a line ends where no sample was taken for longer
}

SCRIPT: Final = "\n".join(
    [
        '"use strict";',
        *(f"const {name} = {number};" for name, number in _NUMBERS.items()),
        f"const CHARTS = {json.dumps([asdict(chart) for chart in CHARTS])};",
        live_script.SCRIPT,
        MODEL,
        _PAGE,
    ]
)
