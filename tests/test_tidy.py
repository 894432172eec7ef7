"""What must hold for every file of the repository, whoever writes it."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.docs import commands, drifted
from tools.refusals import REFUSALS, refusals
from tools.shape import mirror_of
from tools.words import metaphors_in
from waystation.version import __version__

ROOT = Path(__file__).parents[1]

FILE_LINES_MAX = 500
BODY_LINES_MAX = 60

UNMIRRORED = {
    "cli/__init__.py": "tests/cli/test_main.py, named after the function",
    "cli/demo.py": "starts examples/demo/run.py, as `make demo` does",
    "examples/demo/bsp.py": "part of the demonstration, which tests/examples/demo/test_run.py runs",
    "examples/demo/lprp.py": "part of the demonstration, which tests/examples/demo/test_run.py runs",
    "examples/demo/mcu.py": "part of the demonstration, which tests/examples/demo/test_run.py runs",
    "examples/demo/merk.py": "part of the demonstration, which tests/examples/demo/test_run.py runs",
    "examples/demo/strata.py": "part of the demonstration, which tests/examples/demo/test_run.py runs",
    "core/answers.py": "declares a tuple; the tests of websocket and of strata/pages try it",
    "core/facts.py": "declares tuples; tests/engine/test_recorder.py tries what becomes of each",
    "core/node_facts.py": "declares tuples, as core/facts.py",
    "core/identity_access.py": "declares an interface; tests/protocols/strata/relay/test_membership.py asks it",
    "engine/relays.py": "declares interfaces; tests/engine/test_node.py and test_node_datagrams.py ask them",
    "core/packets.py": "declares tuples and a port; tests/store tries every implementation",
    "pipeline/tables/bronze.py": "declares datasets; tests/pipeline/tables/test_dataset.py tries all of them",
    "core/records.py": "declares a tuple and a port; tests/store tries every implementation",
}
"""Source files without a test file of their own, and what tries them instead."""

SIMULATED = re.compile(r"src/waystation/(sim/(bhumi|bsp|lprp|merk|strata)|simsdk/bhumi)/")

MAY_WAIT = {
    "tests/simsdk/test_loop.py": "waits on a virtual clock",
    "tests/simsdk/test_streams.py": "waits on a virtual clock",
    "tests/server/bhumi/test_originals.py": "is idle for ten minutes, which is what is tried",
    "tests/server/build.py": "polls with a deadline what another process does, where no event can be awaited",
    "tests/pipeline/worlds/test_cluster.py": "reads the logs of Spark's own servers with a deadline",
    "tests/pipeline/worlds/test_kills.py": "kills a run at random times, which is what is tried",
    "tests/soak/test_herd.py": "asks for an echo at a steady pace while others come",
    "tests/soak/test_silence.py": "cuts, loses and stops for as long as the law says, which is what is tried",
    "tests/test_tidy.py": "names the word",
}
"""Test files in which a wait by the clock is right."""

WORDS = {
    # pyproject.toml explains that lint leaves the search for these words to us.
    "unfinished work": re.compile(r"\b(TO[D]O(?! at all)|FIX[M]E|XX[X]|NotImplemente[d]Error|HAC[K])\b"),
    "a bare except": re.compile(r"^\s*except\s*:", re.MULTILINE),
    "a machine's path": re.compile(r"/(work|root)/|/t[m]p/[\w.-]+/|file:[/]/"),
    "a registry": re.compile(r"(extra-)?index-ur[l]|files\.pythonhoste[d]|pypi\.or[g]/simple"),
}
NOT_IN_TESTS = {
    "a skipped test": re.compile(r"pytest\.(ski[p]|importorski[p]|xfai[l])|mark\.(ski[p]|xfai[l])"),
    "a mock": re.compile(r"unittest\.moc[k]|Magic[M]ock|mocke[r]\b"),
    "a folder changed for everybody behind it": re.compile(r"os\.chdi[r]\("),
    "a sleep": re.compile(r"\bsleep\((?!0\))"),
}
FILES_EVERYWHERE = re.compile(r"\.(py|md|toml|lock|json|sh)$|Makefile$|/run$")

DECISION = re.compile(r"\b((?:BHUMI|BSP|LPRP|MERK|NODE|STRATA)-(?!BREP\b)(?:[A-Z]+\d*|\d+))\b")


def tracked():
    """Return every text file of the repository that people write."""
    folders = ("src", "micropython", "tests", "tools", "bench", "fuzz", "soak", "examples", "docs", "specs", ".ci")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths += [path for path in ROOT.iterdir() if path.is_file()]
    return sorted(path for path in paths if "__pycache__" not in path.parts and FILES_EVERYWHERE.search(str(path)))


TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in tracked()}
PYTHON = {name: text for name, text in TEXTS.items() if name.endswith(".py")}
TESTS = [name for name in PYTHON if name.startswith("tests/")]


class Read(NamedTuple):
    """What the laws ask of one parsed file; its tree is dropped, since two million nodes slow down every collection."""

    functions: tuple[tuple[str, bool, int], ...]
    """Of every function, methods and inner ones included: name, whether it has a docstring, lines of its body."""
    declares: bool
    """Whether it has code of its own; a package's docstring needs no test."""
    silent_catches: tuple[int, ...]
    """Lines that catch everything, and neither raise again nor explain why."""


def read(text):
    """Parse one file."""
    nodes = list(ast.walk(ast.parse(text)))
    found = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = text.splitlines()
    return Read(
        tuple((each.name, ast.get_docstring(each, clean=False) is not None, body_lines(each)) for each in found),
        bool(found) or any(isinstance(node, ast.ClassDef) for node in nodes),
        tuple(
            node.lineno
            for node in nodes
            if isinstance(node, ast.ExceptHandler) and catches_all(node) and EXPLAINED not in lines[node.lineno - 1]
        ),
    )


def body_lines(function):
    """Return how many lines a body has without its docstring."""
    body = function.body[ast.get_docstring(function, clean=False) is not None :]
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def catches_all(handler):
    """Return whether a handler takes every exception and does not raise it again."""
    wide = isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    return wide and not isinstance(handler.body[-1], ast.Raise)


EXPLAINED = "noqa: BLE001 - "


@pytest.fixture(scope="module")
def modules():
    """Parse every file once, for this module alone: who only collects the tests need not."""
    return {name: read(text) for name, text in PYTHON.items()}


def offences(patterns, texts):
    """Return where a forbidden pattern stands, as file:line and what it is."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {what}"
        for name, text in texts.items()
        for what, pattern in patterns.items()
        for match in pattern.finditer(text)
    ]


def test_every_source_module_has_its_test_file(modules):
    """src/waystation/a/b.py is tried by tests/a/test_b.py.

    The actors of one protocol's simulation are themselves a test: its runs and its mutants try them.
    """
    sources = [
        name
        for name, module in modules.items()
        if name.startswith("src/waystation/") and module.declares and not SIMULATED.match(name)
    ]
    lone = {name.removeprefix("src/waystation/") for name in sources if not mirror_of(ROOT / name).exists()}

    assert not sorted(lone - set(UNMIRRORED))


def test_every_test_says_its_law(modules):
    """Each test function has a docstring, so that the suite reads as a specification."""
    silent = [
        f"{name}::{function}"
        for name in TESTS
        for function, has_docstring, _ in modules[name].functions
        if function.startswith("test_") and not has_docstring
    ]

    assert not silent


def test_every_test_file_holds_a_test(modules):
    """A file named like a test tries something."""
    empty = [
        name
        for name in TESTS
        if Path(name).name.startswith("test_")
        and not any(function.startswith("test_") for function, _, _ in modules[name].functions)
    ]

    assert not empty


def test_nothing_unfinished_or_local_is_written_down():
    """No marker of unfinished work, no bare except, and nothing of the machine it was written on."""
    assert not offences(WORDS, TEXTS)


def test_tests_neither_skip_nor_mock_nor_sleep():
    """A test runs, against the real code, and waits for events instead of time."""
    assert not offences(NOT_IN_TESTS, {name: TEXTS[name] for name in TESTS if name not in MAY_WAIT})


def test_catching_everything_is_explained(modules):
    """``except Exception`` raises again, or says on its line why it does not."""
    silent = [f"{name}:{line}" for name, module in modules.items() for line in module.silent_catches]

    assert not silent


def test_files_are_short():
    """No file is longer than 500 lines."""
    lengths = {name: text.count("\n") for name, text in PYTHON.items()}

    assert not {name: length for name, length in lengths.items() if length > FILE_LINES_MAX}


def test_functions_are_short(modules):
    """No function body is longer than 60 lines without its docstring."""
    long = [
        f"{name}::{function}"
        for name, module in modules.items()
        for function, _, lines in module.functions
        if lines > BODY_LINES_MAX
    ]

    assert not long


def decided():
    """Return the id of every decision that docs/decisions explains."""
    found = set()
    for path in (ROOT / "docs" / "decisions").glob("*.md"):
        family = ""
        for line in path.read_text().splitlines() if path.name != "README.md" else ():
            if line.startswith("## ") and (heading := DECISION.search(line)):
                family = heading[1]
                found.add(family)
            elif row := re.match(rf"\| {DECISION.pattern} \|", line):
                found.add(row[1])
            elif family and (item := re.match(r"(\d+)\. ", line)):
                found.add(f"{family}{item[1]}")
    return found


def test_every_decision_cited_exists():
    """An id in code, tests or docs leads to a line in docs/decisions."""
    known = decided()
    lost = {
        f"{name}: {cited}" for name, text in TEXTS.items() for cited in DECISION.findall(text) if cited not in known
    }

    assert len(known) > 60
    assert not lost


def test_decisions_overview_is_complete():
    """The overview links every file of decisions and names every family of ids in it."""
    folder = ROOT / "docs" / "decisions"
    overview = (folder / "README.md").read_text()
    families = {re.sub(r"\d+$", "", one) for one in decided() if not re.fullmatch(r"[A-Z]+-\d+", one)}

    assert {path.name for path in folder.glob("*.md")} - {"README.md"} == set(re.findall(r"\]\((\w+\.md)\)", overview))
    assert not [family for family in families if family not in overview]


def test_every_refusal_is_explained():
    """Each reason of each closed set stands in docs/refusals.md with what the other side sees."""
    page = refusals()

    for _, reasons, table in REFUSALS:
        assert list(table) == list(reasons)
        assert all(f"| `{reason.value}` | " in page for reason in reasons)


def test_every_protocol_is_on_the_page_of_refusals():
    """A protocol with reasons of its own has a section."""
    protocols = {path.parent.name for path in (ROOT / "src/waystation/protocols").glob("*/refusals.py")}

    assert protocols <= {heading for heading, _, _ in REFUSALS}


def test_generated_pages_have_not_drifted():
    """docs/ holds what ``make docs`` would write."""
    assert not drifted()


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_explains_itself(name, command):
    """A command says what it does, shows an example that begins with its own name, and explains every option."""
    assert command.help and len(command.help.split("\n")[0]) > 20
    assert f"Example: waystation {name}" in command.help
    assert not [part.name for part in command.params if not part.help]


def test_no_metaphor_where_the_field_has_a_term():
    """Code below src/ uses the words of docs/glossary.md."""
    found = [
        f"{name}:{line}: {word}"
        for name, text in TEXTS.items()
        if name.startswith("src/") and name.endswith(".py")
        for line, word in metaphors_in(text)
    ]

    assert not found


def test_changelog_names_the_version():
    """Whoever upgrades finds the version that runs."""
    assert f"## {__version__}\n" in TEXTS["CHANGELOG.md"]


def test_links_of_the_docs_lead_somewhere():
    """Every relative link of a Markdown page leads to a file of the repository."""
    broken = [
        f"{name}: {target}"
        for name, text in TEXTS.items()
        if name.endswith(".md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        if not ((ROOT / name).parent / target).exists()
    ]

    assert not broken


@pytest.mark.parametrize(
    ("patterns", "line"),
    [
        (WORDS, "x = 1  # TO" + "DO later"),
        (WORDS, "raise NotImplemented" + "Error"),
        (WORDS, "try:\n    pass\nexcept" + ":\n    pass"),
        (WORDS, "see /wo" + "rk/notes.md"),
        (WORDS, "--index" + "-url https://mirror"),
        (NOT_IN_TESTS, "@pytest.mark.sk" + "ip"),
        (NOT_IN_TESTS, "from unittest.mo" + "ck import Mock"),
        (NOT_IN_TESTS, "time.sle" + "ep(0.1)"),
    ],
)
def test_planted_offence_is_found(patterns, line):
    """Each forbidden pattern is seen."""
    assert offences(patterns, {"x.py": f"a = 1\n{line}\n"})[0].startswith("x.py:2: ") or line.startswith("try")
    assert len(offences(patterns, {"x.py": line})) == 1
