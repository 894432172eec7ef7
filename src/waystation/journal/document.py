"""Renders the generated part of docs/journal.md from the contracts of journal and archive.

``tools.docs`` calls it and writes the result into the page, so that the page cannot differ from what is written to
disk.
"""

from collections.abc import Sequence

from waystation.journal.archive import ARCHIVE_COLUMNS, ARCHIVE_FORMAT
from waystation.journal.contract import ATTRIBUTES, COLUMNS, FORBIDDEN_NAMES, KINDS, Privacy

__all__ = ["render_contract"]


def render_contract() -> str:
    """Return the Markdown tables of columns, kinds, attributes, privacy classes and archive, ending in a newline."""
    columns = [
        (f"`{c.name}`", c.line_type, c.lake_type, "yes" if c.nullable else "no", c.privacy.value, c.meaning)
        for c in COLUMNS
    ]
    kinds = [(f"`{k.name}`", _names(k.columns_filled()), _names(k.attribute_names()), k.meaning) for k in KINDS]
    attributes = [(f"`{a.name}`", a.privacy.value, a.meaning) for a in ATTRIBUTES]
    archive = [
        (f"`{c.name}`", c.line_type, c.lake_type, "yes" if c.nullable else "no", c.privacy.value, c.meaning)
        for c in ARCHIVE_COLUMNS
    ]
    parts = (
        "### Columns\n",
        _table(("column", "in a line", "in the lake", "may be null", "privacy", "meaning"), columns),
        "### Kinds of event\n",
        _table(("kind", "columns it fills", "keys of `attrs`", "meaning"), kinds),
        "### Keys of `attrs`\n",
        _table(("key", "privacy", "meaning"), attributes),
        f"Class `{Privacy.FORBIDDEN.value}` covers what no column and no key may be named:",
        f"{_names(sorted(FORBIDDEN_NAMES))}.\n",
        "### Lines of the archive\n",
        f"Format `{ARCHIVE_FORMAT}`. A line of kind `packet` has `ts`, `seq`, `protocol`, `kind` as above, and:\n",
        _table(("column", "in a line", "in the lake", "may be null", "privacy", "meaning"), archive),
    )
    return "\n".join(parts)


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
