"""Line numbers of the keys of a TOML text, which the standard library's parser does not report.

The readers of the node's and the pipeline's configuration ask it, so that an error names file and line. The text must
be valid TOML. The scanner only follows table headers, keys, strings and brackets.
"""

import re
from typing import Final

__all__ = ["find_line"]

_HEADER: Final = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?")
_KEY: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
# What may hide brackets or end a value: comments, the four kinds of strings, and the brackets themselves.
_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]', re.DOTALL
)

Dotted = tuple[str, ...]


def find_line(text: str, *path: str) -> int | None:
    """Return the 1-based line on which the key ``path`` is given.

    For a key inside an inline table it is the line of that table; None when nothing of the path is in the text.
    """
    places = _places(text)
    for length in range(len(path), 0, -1):
        if path[:length] in places:
            return places[path[:length]]
    return None


def _places(text: str) -> dict[Dotted, int]:
    places: dict[Dotted, int] = {}
    table: Dotted = ()
    for line, statement in _statements(text):
        if header := _HEADER.fullmatch(statement):
            table = _split(header[1])
            places.setdefault(table, line)
        elif key := _KEY.match(statement):
            places.setdefault(table + _split(key[1]), line)
    return places


def _statements(text: str) -> list[tuple[int, str]]:
    """Cut the text at the line ends outside strings and brackets; each piece with its first line."""
    pieces: list[tuple[int, str]] = []
    start, depth = 0, 0
    for token in _TOKEN.finditer(text + "\n"):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            pieces.append((text.count("\n", 0, start) + 1, text[start : token.start()]))
            start = token.end()
    return pieces


def _split(dotted: str) -> Dotted:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
