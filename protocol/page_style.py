"""The style of the pages and of reports: one sheet, for light and dark, wide and narrow screens."""

from __future__ import annotations

from typing import Final

#: Pages have no styles of their own, so that a strict content policy holds; reports contain it.
SHEET: Final = """\
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #d9dee5; --text: #1b222c; --soft: #5a6675;
  --link: #0b5cad; --track: #e4e8ee; --done: #2b7a4b; --run: #3b82c4; --fail: #b42318;
  --full: #b25e09; --ok-back: #e5f4ea; --ok-text: #17603a; --warning-back: #fdf1dc;
  --warning-text: #7a4300; --error-back: #fde8e6; --error-text: #96180f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2028; --line: #303945; --text: #e6ebf2; --soft: #9aa7b7;
    --link: #77b5f2; --track: #2a333f; --done: #4fae76; --run: #4b93d6; --fail: #f0776c;
    --full: #e09a3e; --ok-back: #143021; --ok-text: #8fdcae; --warning-back: #38290f;
    --warning-text: #f3c87f; --error-back: #3d1714; --error-text: #ffb1a8;
  }
}
* { box-sizing: border-box; }
html { background: var(--page); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
body { margin: 0 auto; max-width: 120rem; padding: 0 1.25rem 2rem; }
a { color: var(--link); }
a:focus-visible, button:focus-visible, input:focus-visible, .scroll:focus-visible
  { outline: 2px solid var(--link); outline-offset: 2px; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .25rem 1.5rem;
  padding: .9rem 0; }
header h1 { font-size: 1.15rem; margin: 0; overflow-wrap: anywhere; }
header nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: center; }
header nav a { text-decoration: none; }
header nav a[aria-current] { color: inherit; font-weight: 600;
  border-bottom: 2px solid var(--link); }
header .search { margin-left: auto; flex: 0 1 19rem; }
header .search input { width: 100%; background: var(--card); border: 1px solid var(--line);
  border-radius: .35rem; color: inherit; font: inherit; font-size: .9rem; padding: .3rem .6rem; }
header .search input::placeholder { color: var(--soft); opacity: 1; }
header form span { margin-right: .6rem; font-size: .85rem; }
h2 { font-size: 1rem; margin: 0 0 .6rem; overflow-wrap: anywhere; }
.sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
h2 small { color: var(--soft); font-weight: 400; font-size: .85rem; margin-left: .4rem; }
p { margin: .4rem 0; }
.soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  margin: 0 0 1rem; padding: 1rem 1.1rem; }
section.bare { background: none; border: 0; padding: 0; }
.health { list-style: none; margin: 0; padding: 0; }
.health li { border-radius: .4rem; display: flex; gap: .75rem; margin: 0 0 .4rem;
  padding: .5rem .8rem; overflow-wrap: anywhere; }
.health b { flex: none; margin-right: .4em; min-width: 4.6em; }
.health .ok { background: var(--ok-back); color: var(--ok-text); }
.health .warning { background: var(--warning-back); color: var(--warning-text); }
.health .error { background: var(--error-back); color: var(--error-text); }
.tiles { display: grid; gap: 1rem; grid-template-columns: repeat(4, 1fr); margin: 0 0 1rem; }
.tiles > div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .8rem 1rem; min-width: 0; display: flex; flex-direction: column; }
.tiles .big { margin-bottom: auto; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; }
.tiles .big { font-size: 1.45rem; font-weight: 600; letter-spacing: -.01em; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.tiles .big small { font-size: .85rem; font-weight: 400; color: var(--soft); letter-spacing: 0; }
.tiles svg { margin: .4rem 0 .1rem; }
.tiles .note { color: var(--soft); font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-size: .8rem; font-weight: 600; text-align: left;
  vertical-align: bottom; white-space: nowrap; }
th a { color: inherit; }
tbody th a, td a { color: var(--link); text-decoration: none; }
tbody th a:hover, td a:hover { text-decoration: underline; }
td.bad a { color: inherit; }
th[aria-sort] a { color: var(--text); }
th[aria-sort] a::after { content: " \\25be"; }
th, td { border-bottom: 1px solid var(--line); padding: .38rem .9rem .38rem 0; }
tbody tr:last-child th, tbody tr:last-child td { border-bottom: 0; }
tbody th { color: var(--text); font-size: inherit; font-weight: 500; white-space: normal;
  overflow-wrap: anywhere; }
tbody th.group { color: var(--soft); font-size: .8rem; font-weight: 600; padding-top: .9rem; }
th, td { vertical-align: middle; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; white-space: nowrap; }
.when { white-space: nowrap; }
.text { overflow-wrap: anywhere; min-width: 12rem; }
.name { min-width: 7rem; max-width: 26rem; }
.bad { color: var(--error-text); }
td .bar { width: 10rem; }
svg.bar { display: block; height: .55rem; width: 100%; border-radius: .3rem;
  background: var(--track); overflow: hidden; }
svg .done { fill: var(--done); } svg .run { fill: var(--run); } svg .fail { fill: var(--fail); }
svg .full { fill: var(--full); }
td .bar + span { color: var(--soft); font-size: .85rem; white-space: nowrap; }
svg.spark { display: block; width: 100%; height: 1.9rem; overflow: visible; }
.spark path { fill: none; stroke: none; }
.spark .line { stroke-width: 1.6px; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.spark .below { opacity: .2; }
.of-done .line { stroke: var(--done); } .of-done .below { fill: var(--done); }
.of-run .line { stroke: var(--run); } .of-run .below { fill: var(--run); }
.of-full .line { stroke: var(--full); } .of-full .below { fill: var(--full); }
.more { margin: .6rem 0 0; }
.more:empty { display: none; }
main > p.soft { font-size: .85rem; }
footer { color: var(--soft); font-size: .85rem; display: flex; flex-wrap: wrap; gap: .2rem 1.5rem;
  align-items: center; }
footer label { display: inline-flex; gap: .4rem; align-items: center; }
footer label input { margin: 0; }
footer span:empty { display: none; }
button, .field { background: var(--card); border: 1px solid var(--line); border-radius: .35rem;
  color: inherit; font: inherit; padding: .3rem .75rem; }
button { cursor: pointer; }
button.main { background: var(--link); border-color: var(--link); color: var(--card);
  font-weight: 600; }
.field { display: block; width: 100%; margin: .35rem 0 .8rem; padding: .5rem .6rem;
  background: var(--page); }
.scale { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: .8rem 0 0; }
.number { width: 6rem; display: inline-block; margin: 0; padding: .3rem .5rem; }
.gate { margin: 10vh auto 0; max-width: 30rem; }
.gate h1 { font-size: 1.2rem; margin: 0 0 .6rem; }
code { background: var(--track); border-radius: .25rem; padding: .08rem .3rem;
  font: .88em ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.silent { background: var(--error-back); color: var(--error-text); border-radius: .4rem;
  margin: 0 0 1rem; padding: .5rem .8rem; }
.silent[hidden] { display: none; }
@media (min-width: 90rem) {
  .pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1rem; }
  .pair > * { min-width: 0; }
}
@media (max-width: 52rem) { .tiles { grid-template-columns: repeat(2, 1fr); } }
@media (max-width: 40rem) {
  body { padding: 0 .75rem 1.5rem; }
  header { row-gap: .5rem; }
  header h1 { flex: 1; min-width: 40%; }
  header nav { order: 8; }
  header .search { order: 9; flex: 1 0 100%; }
  section { padding: .8rem .8rem; }
  .tiles { gap: .6rem; } .tiles > div { padding: .6rem .7rem; }
  .tiles .big { font-size: 1.2rem; }
  .wide { display: none; }
  .name { min-width: 6rem; }
  td .bar { width: 5.5rem; }
  th, td { padding-right: .6rem; }
  .health li { display: block; }
  .text { min-width: 9rem; }
}
@media (prefers-reduced-motion: no-preference) { svg rect { transition: width .4s; } }
"""
