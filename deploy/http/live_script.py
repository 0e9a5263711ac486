"""The parts of scripts that pages over time share: reading on, and following the present.

Pure. `protocol/timelines.py` has the wheel, the keys and the texts.
"""

from __future__ import annotations

from typing import Final

#: `readOn` asks for what is new at an address, again and again, while the page is visible:
#:
#:     wants()               whether it is to be asked now
#:     take(answer)          takes it; returns whether more is there already
#:     next()                what names the place up to which it was read
_READING: Final = r"""
function readOn(address, {wants, take, next}) {
  const silent = document.querySelector("#silent");
  let failedSince = null, timer = 0, isReading = false;
  async function read() {
    if (isReading) return;
    isReading = true;
    clearTimeout(timer);
    let pause = PAUSE_MS;
    try {
      if (!document.hidden && wants()) {
        const answer = await fetch(address + "?after=" + next(), {
          cache: "no-store", signal: AbortSignal.timeout(15000),
        });
        if (answer.status === 401) { location.reload(); return; }
        if (!answer.ok) throw new Error("status " + answer.status);
        if (await take(answer)) pause = 0;
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
  document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
  read();
}
"""

#: `liveRange` is a `timeRange` that follows the present or stays where it is. Its address says
#: which: `last` seconds, or `from` and `to`. A caller gives
#:
#:     now()                 the present, seconds
#:     oldest()              the first instant that there is; Infinity = there is none
#:     firstS, least         the part that is shown at first, and the least, seconds
#:     startS                the part that is shown while there is less; it grows to `firstS`
#:     mostS                 the part that can be shown although less is there
#:     changed()             what is shown has changed, by the user or by time
#:     note(query)           adds to the address what else is chosen
#:     boxOf(event)          see `timeRange`
_FOLLOWING: Final = r"""
const asked = new URLSearchParams(location.search);
function liveRange(plot, {now, oldest, firstS, startS = firstS, mostS = 0, least, changed, note,
                          boxOf}) {
  const live = document.querySelector("#live-button");
  const self = {follows: !asked.has("from"), range: null};
  let writing = 0, range = null, grows = !asked.has("from") && !asked.has("last");
  function follow(does) {
    self.follows = does;
    live.setAttribute("aria-pressed", String(does));
  }
  self.remember = () => {
    clearTimeout(writing);
    writing = setTimeout(() => {
      const query = new URLSearchParams();
      self.place(query);
      note(query);
      const text = String(query);
      history.replaceState(null, "", text ? "?" + text : location.pathname);
    }, 300);
  };
  // Adds to an address which part of time is shown.
  self.place = (query) => {
    if (!self.follows) {
      query.set("from", range.left.toFixed(6));
      query.set("to", (range.left + range.shown).toFixed(6));
    } else if (!grows && Math.abs(range.shown - firstS) > 0.01)
      query.set("last", range.shown.toPrecision(4));
  };
  self.keepUp = () => {
    if (!self.follows) return;
    const shown = grows ? Math.max(startS, Math.min(now() - oldest(), firstS)) : range.shown;
    range.show(now() - shown, shown);
  };
  self.last = (seconds) => {
    follow(true);
    range.show(now() - seconds, seconds, "end");
  };
  self.say = () => {
    const step = Math.min(1, range.shown / 50), end = range.left + range.shown;
    document.querySelector("#shown").textContent =
      `${dated(range.left, now(), step)} – ${dated(end, now(), step)}`;
    document.querySelector("#seconds").textContent = lasting(range.shown);
  };
  self.begin = () => {
    const from = Number(asked.get("from")), to = Number(asked.get("to"));
    const last = Number(asked.get("last")) || firstS;
    const first = () => Math.min(oldest(), now() - Math.max(firstS, mostS));
    self.range = range = timeRange(plot, {
      whole: () => [first(), now()],
      least: () => least,
      tick: (s, step, isFirst) => isFirst || s === new Date(s * 1000).setHours(0, 0, 0, 0) / 1000 ?
        dated(s, now(), step) : clock(s, step),
      steps: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600],
      fixed: () => self.follows ? now() : null,
      all: () => [Number.isFinite(oldest()) ? oldest() : first(), now()],
      boxOf,
      changed(range, how) {
        if (how === "moved") follow(range.left + range.shown >= now() - range.shown / 1e4);
        if (how === "all") follow(false);  // else the oldest would leave it at once
        if (how === "end") follow(true);
        if (!how) return;
        grows = false;
        changed();
        self.remember();
      },
    });
    if (!self.follows && to > from) range.show(from, to - from);
    else { follow(true); range.show(now() - last, last); }
    follow(self.follows);
    live.addEventListener("click", () => {
      if (!self.follows) { range.end(); return; }
      follow(false);
      self.remember();
    });
    document.querySelector("#in")?.addEventListener("click", () => range.zoom(0.5));
    document.querySelector("#out")?.addEventListener("click", () => range.zoom(2));
    document.querySelector("#all")?.addEventListener("click", () => range.all());
    addEventListener("resize", changed);
  };
  return self;
}
"""

SCRIPT: Final = _READING + _FOLLOWING
