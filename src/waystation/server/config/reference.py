"""Generates the sample file and the reference page of the configuration from the settings classes.

``waystation config sample`` and ``config docs`` print what it returns, so neither differs from what the node accepts.
"""

import json
from dataclasses import Field
from typing import Any, Final

from waystation.server.config.parts import TABLES, Part, fields_of
from waystation.server.config.settings import allowed_values, plain_value

__all__ = ["render_docs", "render_sample"]

_SAMPLE_HEAD: Final = """\
# Every setting of waystation with its default. What you leave out keeps its default.
# A flag (--set bhumi.ack_timeout_ms=5000) wins over the environment (WAYSTATION_BHUMI__ACK_TIMEOUT_MS), which wins over
# this file. SIGHUP applies the settings marked "reloads"; the others need a restart.
"""

_DOCS_HEAD: Final = """\
# Configuration

`waystation serve --config node.toml` reads one TOML file. Every setting can also be given in the environment as
`WAYSTATION_TABLE__KEY` (two underscores between table and key) and on the command line as `--set table.key=value`.

Who wins: flag, then environment, then file, then default. A key that does not exist or a value that is not allowed
stops the node before it starts, with the file and line (or the variable, or the flag) and what is allowed; exit code 3.

An address is `host:port`, `[ipv6]:port` for IPv6; port 0 takes any free port, and the line that `serve` prints says
which; an empty address is off. A relative path counts from the working directory.

In the environment and on the command line a list is `a,b` or a TOML array: `--set merk.peers=ws://a:8080/merk,ws://b/merk`
and `--set 'merk.peers=["ws://a:8080/merk", "ws://b/merk"]'` are the same. A list of tables is a TOML array there too:
`--set 'bsp.peers=[{key = "...", url = "bsp+tls://a:7443"}]'`.

`SIGHUP` reads the file again. If any part of it is bad, the old configuration stays as a whole. Settings marked
*reloads* then take effect; a change of any other is logged as needing a restart. Certificate files are read again too.

A file with all defaults: [waystation.toml](waystation.toml), also printed by `waystation config sample`.
`waystation config show` prints each value in force and where it came from.

This page and the sample are written from the declarations in the code: `waystation config docs`.
"""


def render_sample() -> str:
    """Return a TOML file that holds every setting at its default, with its help."""
    return "\n".join([_SAMPLE_HEAD, *(_sample_table(table) for table in TABLES)])


def render_docs() -> str:
    """Return the reference page in Markdown."""
    return "\n".join([_DOCS_HEAD, *(_docs_table(table) for table in TABLES)])


def _default(part: Part, name: str) -> str:
    # JSON's texts, numbers, booleans and lists of text are TOML too.
    return json.dumps(plain_value(getattr(part.owner(), name)), ensure_ascii=False)


def _sample_table(table: str) -> str:
    lines = [f"[{table}]"]
    for part, field in fields_of(table):
        note = "; reloads" if field.metadata["reload"] else ""
        lines.append(f"# {field.metadata['help']}")
        lines.append(f"# Allowed: {allowed_values(part.owner, field.name)}{note}.")
        lines.append(f"{field.name} = {_default(part, field.name)}")
    return "\n".join(lines) + "\n"


def _docs_table(table: str) -> str:
    lines = [f"## [{table}]", "", "| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    lines += [_docs_row(part, field) for part, field in fields_of(table)]
    return "\n".join(lines) + "\n"


def _docs_row(part: Part, field: Field[Any]) -> str:
    allowed = allowed_values(part.owner, field.name)
    note = " *Reloads.*" if field.metadata["reload"] else ""
    return f"| `{field.name}` | `{_default(part, field.name)}` | {allowed} | {field.metadata['help']}{note} |"
