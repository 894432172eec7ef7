"""Measures the repository layout: file names, protocol folders, cited paths that do not exist, and import cycles."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

__all__ = [
    "CODE_SUFFIXES",
    "PROTOCOLS",
    "circles",
    "cited_in",
    "code_of",
    "crowded",
    "foreign_imports",
    "import_graph",
    "leaves_its_folder",
    "lost_paths",
    "prefixed",
    "repeats_folder",
    "tracked",
]

ROOT: Final = Path(__file__).parents[1]
PROTOCOLS: Final = ("bhumi", "bsp", "lprp", "merk", "strata")
CODE_SUFFIXES: Final = frozenset({".py", ".js", ".mjs"})
_BRIDGES: Final = "bridges"
_ROOTS: Final = ("src", "tests", "fuzz", "soak", "bench", "examples")
_CITING_SUFFIXES: Final = CODE_SUFFIXES | {".md", ".toml"}

_CITED: Final = re.compile(
    r"(?<![\w./{<*-])((?:src|tests|docs|specs|tools|fuzz|soak|bench|examples|core|crypto|rules|protocols|journal|engine"
    r"|store|transport|server|sdk|sim|pipeline|console|cli)/(?:[\w-]+/)*[\w-]+\.(?:py|md|toml|json|mjs|js)|design\.md)"
    r"(?![\w*])"
)
"""A path of the repository in prose, code or a comment, from its root or from the package's."""

_NO_FILES: Final = frozenset({"src/waystation/a/b.py", "tests/a/test_b.py", "sdk/merk.js", "sdk/new.js"})
"""Paths that a page makes up to explain something, and two that a node serves."""


def tracked(root: Path = ROOT) -> list[PurePosixPath]:
    """Return every file of the repository below ``root``, sorted; without git, every file of code."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n") if listed.returncode == 0 else []
    found = names or [path.relative_to(root).as_posix() for top in _ROOTS for path in (root / top).rglob("*.*")]
    return sorted({PurePosixPath(name) for name in found if name and (root / name).is_file()})


def code_of(files: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    """Return the files of code among ``files``: Python and JavaScript below src, tests, fuzz, soak, bench, examples."""
    return [path for path in files if path.suffix in CODE_SUFFIXES and path.parts[0] in _ROOTS]


def _stem(path: PurePosixPath) -> str:
    return path.name.partition(".")[0].removeprefix("test_")


def repeats_folder(path: PurePosixPath) -> bool:
    """Return whether a file's name, without ``test_``, begins with the name of its folder."""
    return re.match(rf"{re.escape(path.parent.name)}(_|$)", _stem(path)) is not None


def leaves_its_folder(path: PurePosixPath, folders: frozenset[PurePosixPath]) -> bool:
    """Return whether a file has a protocol's name as prefix beside the folder of that protocol."""
    prefix = re.match(rf"(?:build_)?({'|'.join(PROTOCOLS)})(?:_|$)", _stem(path))
    return prefix is not None and path.parent / prefix[1] in folders


def prefixed(files: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    """Return the files of code that carry their folder's or their protocol's name as prefix."""
    code = code_of(files)
    folders = frozenset(path.parent for path in code)
    return [path for path in code if repeats_folder(path) or leaves_its_folder(path, folders)]


def crowded(files: Iterable[PurePosixPath]) -> tuple[str, int]:
    """Return the folder with the most files of code, and how many it has."""
    (folder, size), *_ = Counter(path.parent for path in code_of(files)).most_common(1) or [(PurePosixPath(), 0)]
    return str(folder), size


def foreign_imports(path: PurePosixPath, source: str) -> list[str]:
    """Return the imports by which one protocol's folder knows another protocol's folder, bridges excepted."""
    own = _protocol_of(path.parts[:-1])
    if own is None or _BRIDGES in path.parts:
        return []
    found = {
        line: _protocol_of(parts)
        for line, name in _imported(ast.parse(source))
        if _BRIDGES not in (parts := tuple(name.split("."))) and _protocol_of(parts) not in (None, own)
    }
    return [f"{path}:{line}: {own} imports {other}" for line, other in sorted(found.items())]


def _protocol_of(parts: tuple[str, ...]) -> str | None:
    return next((part for part in parts if part in PROTOCOLS), None)


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and full dotted name of everything that is imported, wherever in a file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def cited_in(text: str) -> set[str]:
    """Return every path of the repository that a text names."""
    return set(_CITED.findall(text)) - _NO_FILES


def lost_paths(files: Iterable[PurePosixPath], root: Path = ROOT) -> list[str]:
    """Return every path that code or docs name and that does not exist, with the file that names it.

    The changelog speaks of the past, and this module's own test makes paths up; both are left out.
    """
    return [
        f"{path}: {cited}"
        for path in files
        if path.suffix in _CITING_SUFFIXES and path.name not in ("CHANGELOG.md", "layout.py", "test_layout.py")
        for cited in sorted(cited_in((root / path).read_text()))
        if not any((start / cited).is_file() for start in _starts(root, path))
    ]


def _starts(root: Path, path: PurePosixPath) -> tuple[Path, ...]:
    """Return the folders from which a file may name another: the root, the package, the browser SDK, its own two."""
    package = root / "src/waystation"
    return root, package, package / "console/web/sdk", root / path.parent, root / path.parent.parent


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which modules each module imports, imports for types included.

    Args:
        sources: Text of each module by its dotted name.
    """
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        named = {name if name in sources else name.rpartition(".")[0] for _, name in _imported(ast.parse(text))}
        graph[module] = {name for name in named if name in sources and name != module}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return every group of modules that import each other in a circle, each sorted.

    Cost: O(modules + imports), by Tarjan's strongly connected components without recursion.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in graph:
        if start in index:
            continue
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    group, stack[at:] = stack[at:], []
                    found += [sorted(group)] if len(group) > 1 else []
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                work.append((child, iter(sorted(graph[child]))))
            elif child in stack:
                low[node] = min(low[node], index[child])
    return found
