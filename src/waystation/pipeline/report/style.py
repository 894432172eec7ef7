"""CSS of the report: light and dark, wide and narrow screens, and print.

``report.page`` puts the text into the page, which must work without any other file.
"""

from typing import Final

__all__ = ["PAGE", "STYLE"]

STYLE: Final = """
:root { color-scheme: light dark; --ink: #22262b; --soft: #59636d; --ground: #f4f5f7; --paper: #fefefe; --line: #e4e6ea;
        --axis: #8b939c; --link: #1f5fa8; --good: #1f7a53; --watch: #8a5a00; --bad: #b3242f; --calm: #59636d; }
@media (prefers-color-scheme: dark) {
:root { --ink: #e6e9ec; --soft: #a4adb6; --ground: #14171a; --paper: #1d2125; --line: #343a41; --axis: #7b848d;
        --link: #8bbcf5; --good: #63cfa0; --watch: #e8b75a; --bad: #ff8e8e; --calm: #a4adb6; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
       max-width: 74rem; padding: 1.2rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 0; }
a { color: var(--link); } code { font-size: .88em; overflow-wrap: anywhere; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: .6rem 0 1rem; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.2rem;
          margin: 0 0 1rem; }
.means { color: var(--soft); margin: .1rem 0 .8rem; } .none { margin: 0; }
figure { margin: 0 0 .8rem; } svg { width: 100%; height: auto; display: block; overflow: visible; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg.wide { max-width: 62rem; } svg.narrow { display: none; }
summary { cursor: pointer; color: var(--link); padding: .3rem 0; }
.scroll { overflow-x: auto; max-height: 32rem; margin: .4rem 0; }
table { border-collapse: collapse; min-width: 60%; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; } th.n, td.n { text-align: right; white-space: nowrap; }
td { max-width: 24rem; min-width: 4rem; overflow-wrap: break-word; }
td code, td:first-child, time { white-space: nowrap; }
td.long { min-width: 13rem; }
.badge { display: inline-block; padding: 0 .5em; border: 1px solid; border-radius: 1em; font-size: .82rem;
         white-space: nowrap; }
.good { color: var(--good); } .watch { color: var(--watch); } .bad { color: var(--bad); font-weight: 600; }
.calm { color: var(--calm); }
.attention { list-style: none; margin: 0; padding: 0; }
.attention li { display: grid; grid-template-columns: 5.2rem 1fr; gap: .4rem; padding: .3rem 0;
                border-bottom: 1px solid var(--line); align-items: baseline; }
.attention li:last-child { border: 0; } .attention .badge { justify-self: start; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .7rem; margin: 0 0 1rem; }
.tiles div { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .9rem; }
.tiles b { display: block; font-size: 1.25rem; } .tiles span, .note { color: var(--soft); font-size: .87rem; }
.note { margin: .3rem 0; }
.empty { background: var(--paper); border-left: 4px solid #e0a030; padding: .8rem 1rem; }
@media (max-width: 44rem) { body { padding: .6rem; } section { padding: .8rem; }
                            svg.wide { display: none; } svg.narrow { display: block; } }
@media print { body { background: none; max-width: none; } section { break-inside: avoid; }
               .scroll { max-height: none; } }
"""

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>waystation report</title>
<style>{style}</style>
</head>
<body>
<header><h1>waystation report</h1>
{as_of}
<nav aria-label="sections"><ul>{links}</ul></nav></header>
<main>
{head}
{body}
</main>
</body>
</html>
"""
