"""The script and the icon of the pages; their style sheet is in `protocol/page_style.py`."""

from __future__ import annotations

from typing import Final

#: The only script: it fetches the page it is on, and puts the new content in the place of the old.
#: Where scripts are off, the page is loaded again as a whole.
SCRIPT: Final = """\
"use strict";
(() => {
  const seconds = Number(document.documentElement.dataset.refresh);
  const live = document.getElementById("live");
  const box = live && live.closest("label");
  const silent = document.getElementById("silent");
  if (!seconds || !live) return;
  box.hidden = false;
  let failedSince = null;
  const show = (text) => { silent.textContent = text; silent.hidden = !text; };
  const name = (e) => e.getAttribute("href") || e.getAttribute("aria-label");
  // The box, the scrolled tables and the focus are as they were before.
  function replace(old, main) {
    const scrolled = new Map();
    for (const e of old.querySelectorAll(".scroll")) scrolled.set(name(e), e.scrollLeft);
    const active = document.activeElement;
    main.querySelector("#live").closest("label").replaceWith(box);
    old.replaceWith(main);
    for (const e of main.querySelectorAll(".scroll")) e.scrollLeft = scrolled.get(name(e)) || 0;
    if (active === live) live.focus({preventScroll: true});
    else if (old.contains(active)) {
      const same = [...main.querySelectorAll("a, .scroll")].find((e) => name(e) === name(active));
      if (same) same.focus({preventScroll: true});
    }
  }
  // A text that is selected to be copied stays selected.
  const isSelecting = () => {
    const selection = getSelection();
    return !selection.isCollapsed && document.querySelector("main").contains(selection.anchorNode);
  };
  const isWanted = () => live.checked && !document.hidden && !isSelecting();
  async function refresh() {
    try {
      const answer = await fetch(location.href, {
        headers: {Accept: "text/html"}, cache: "no-store", signal: AbortSignal.timeout(15000),
      });
      const type = answer.headers.get("Content-Type") || "";
      if (answer.redirected || answer.status === 401) { location.reload(); return; }
      if (!type.startsWith("text/html")) throw new Error("status " + answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = page.querySelector("main");
      if (!main) throw new Error("no content");
      replace(document.querySelector("main"), document.adoptNode(main));
      document.title = page.title;
      failedSince = null;
      show("");
    } catch (error) {
      failedSince = failedSince || new Date();
      show("No answer since " + failedSince.toLocaleTimeString() +
           ": what is shown is old. This page keeps trying.");
    }
  }
  async function loop() {
    const isHeld = live.checked && !document.hidden && isSelecting();
    if (isWanted()) await refresh();
    else if (!failedSince) show(isHeld ? "This page is not refreshed while text is selected." : "");
    setTimeout(loop, seconds * 1000);
  }
  document.addEventListener("visibilitychange", () => {
    if (isWanted()) refresh();
  });
  setTimeout(loop, seconds * 1000);
})();
"""

ICON: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" \
fill="#0b5cad"/><path d="M3 5h10M3 8h10M3 11h10M5 3v10M8 3v10M11 3v10" stroke="#fff" \
stroke-width="1.2" fill="none"/></svg>
"""
