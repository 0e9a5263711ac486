"""The script of the page of the live task stream: it reads, and follows the present.

Pure. `protocol/stream_plot.py` draws them, and `protocol/timelines.py` has the axis, the wheel and
the keys.
"""

from __future__ import annotations

from typing import Final

from ...protocol import stream_plot
from . import live_script

_PAGE: Final = r"""
(() => {
  const find = (name) => document.querySelector(name);
  const attempts = new Attempts();
  let next = "", ahead = 0, missed = 0, before = null;

  // -- what is shown
  // The present, a little late: what has ended by then has been read.
  const now = () => performance.now() / 1000 + ahead - LATE_S;
  const view = liveRange(find(".plot"), {
    now,
    oldest: () => attempts.oldest,
    firstS: SHOWN_S,
    startS: START_S,
    least: 1e-4,
    changed: () => stream.move(),
    note(query) {
      if (stream.chosen !== null) query.set("function", stream.chosen);
    },
  });
  const stream = taskStream(attempts, {
    range: () => view.range,
    now: () => now() + LATE_S,
    chosen: asked.get("function"),
    nThreads: () => attempts.lanes.size,
    isMoving: () => view.follows,
    instant: (s, step, isFirst) => isFirst ? dated(s, now(), step) : clock(s, step),
    hrefOf: (kind, name, value) => `${kind}?${name}=${encodeURIComponent(value)}`,
    before: () => view.keepUp(),
    after() {
      view.say();
      const query = new URLSearchParams();
      view.place(query);
      find("#other").href = String(query) ? "history?" + query : "history";
    },
    choose: () => view.remember(),
  });

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
    attempts.run(head.running || [], head.disk || []);
    if (view.follows) attempts.trim(MAX_ROWS);
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
  document.addEventListener("visibilitychange", () => { if (!document.hidden) stream.wish(); });
  readOn("stream/data", {
    // What is looked at stays: a view that does not follow takes no more than there is room for.
    wants: () => view.follows || attempts.total < MAX_ROWS,
    next: () => next,
    async take(answer) {
      const isAll = take(await answer.arrayBuffer());
      if (!view.range) view.begin();
      stream.take();
      say();
      return !isAll;
    },
  });
})();
"""

#: Numbers of the page.
_NUMBERS: Final = {
    "SHOWN_S": 60,  # at first, if there is so much
    "START_S": 10,  # if there is less
    "LATE_S": 0.7,  # the right edge is so long ago: what has ended by then has been read
    "PAUSE_MS": 500,  # between two questions
    "MAX_ROWS": 100_000,
}

SCRIPT: Final = "\n".join(
    [
        '"use strict";',
        *(f"const {name} = {number};" for name, number in _NUMBERS.items()),
        live_script.SCRIPT,
        stream_plot.SCRIPT,
        _PAGE,
    ]
)
