"""The room table of ARCHITECTURE.md, proved by reading every import, wherever in a file it stands."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "waystation"

ANYTHING = frozenset({"*"})
ROW = re.compile(r"^  (\w+)/ +\S.*? {2,}(\S.*)$", re.MULTILINE)
"""A room of the table: its folder, what it is for, and after two blanks what it may import."""


def rooms_of(page: str) -> dict[str, frozenset[str]]:
    """Return the room table of ARCHITECTURE.md: what each room may import."""
    table = {room: frozenset(names.split()) for room, names in ROW.findall(page)}
    return {room: ANYTHING if names == {"anything"} else names - {"stdlib"} for room, names in table.items()}


FACE = ("bhumi", "bridges", "bsp", "errors", "lprp", "merk", "strata")
"""What programs import: each is a module that hands out the names of ``waystation.sdk.<name>``."""
ROOMS = {
    **rooms_of((ROOT / "ARCHITECTURE.md").read_text()),
    "__main__": ANYTHING,
    **dict.fromkeys(FACE, frozenset({"sdk"})),
}
"""What each room may import besides itself and ``waystation.version``."""

PURE = ("core", "crypto", "rules", "protocols", "journal", "engine", "sim")

IMPURE_MODULES = frozenset(
    {
        *("socket", "socketserver", "ssl", "select", "selectors", "asyncio", "uvloop", "aiofastnet", "http", "urllib"),
        *("time", "sched", "signal"),
        *("threading", "multiprocessing", "concurrent", "queue", "subprocess"),
        *("sqlite3", "fcntl", "io", "os", "shutil", "tempfile"),
        *("secrets", "uuid", "importlib"),
    }
)
"""Sockets, clocks, threads, databases, files and entropy, by the module that brings them."""

PURE_PARTS = frozenset({"urllib.parse"})
"""Parts of such modules that work on text alone."""

OWNED_MODULES = {
    "nacl": ("crypto",),
    "cryptography": ("crypto",),
    "blake3": ("crypto",),
    "jiter": ("protocols",),
    "orjson": ("protocols",),
    "rfc8785": ("protocols",),
    "sqlite3": ("store",),
    "socket": ("transport", "server"),
    "ssl": ("transport", "server"),
    "aiofastnet": ("transport",),
    "picows": ("transport",),
    "websockets": (),
    "multidict": ("transport",),
    "zeroconf": ("transport",),
    "ifaddr": ("transport",),
    "uvicorn": ("server",),
    "starlette": ("server",),
    "prometheus_client": ("server",),
    "typer": ("cli", "examples"),
    "pyspark": ("pipeline",),
    "matplotlib": ("pipeline",),
    "pyarrow": ("pipeline",),
}
"""Libraries that only some rooms may know."""

EXCEPTIONS = {
    ("waystation.sim.disk", "waystation.store.memory"): "the store of simulated nodes and devices; memory has no I/O",
    (
        "waystation.sdk.bsp.home",
        "waystation.store.sqlite",
    ): "a device's home is a store like a node's, read by the same commands",
    ("waystation.sdk.private_database", "sqlite3"): "the one way in which clients open a file of their own",
    ("waystation.cli.doctor", "socket"): "tries whether the ports of the configuration are free",
    ("waystation.cli.doctor", "sqlite3"): "asks SQLite for its version",
}
"""(module, what it imports) and why that is right all the same."""

ENTROPY_CALLS = frozenset({"generate_private_key", "random_serial_number", "urandom", "token_bytes", "uuid4"})
ENTROPY_EXCEPTIONS = {
    "waystation.crypto.certificates": "X.509 keys and serial numbers; the library takes no entropy from outside",
}

ORDERLESS_EXCEPTIONS = {
    (
        "waystation.protocols.bhumi.relay.machine",
        "message.commits",
    ): "a tuple of messages.UpdateCommits; Session.commits is a set",
    ("waystation.protocols.bhumi.wire", "message.commits"): "a tuple of messages.IAm and UpdateCommits",
}

ORDER_KEEPS = ("protocols", "engine")
"""Rooms in which no iteration may follow the order of a set."""


class Import(NamedTuple):
    """One imported thing."""

    line: int
    module: str
    name: str | None


@functools.cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Return every node of a Python text; several laws ask for the same ones."""
    return tuple(ast.walk(ast.parse(source)))


@pytest.fixture(scope="module", autouse=True)
def _nodes_are_dropped() -> Iterator[None]:
    """Keep no nodes for the modules behind this one."""
    yield
    nodes_of.cache_clear()


def imports_of(module: str, source: str) -> Iterator[Import]:
    """Yield every import of a module: at its top, inside functions, and under TYPE_CHECKING."""
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (Import(node.lineno, source, alias.name) for alias in node.names)


def breaches(module: str, source: str, sets: frozenset[str] = frozenset()) -> list[str]:
    """Return every law that the source of a module breaks, with its line.

    Args:
        module: Dotted name; its second part is the room.
        source: Python text.
        sets: Attributes that hold sets anywhere in the package, each as ``.name``.
    """
    nodes = nodes_of(source)
    room = module.split(".")[1]
    imported = list(imports_of(module, source))
    found = [breach for item in imported for breach in _import_breaches(module, room, item)]
    found += _private_reaches(nodes, imported)
    if room in PURE:
        found += _impure_calls(module, nodes)
    if room in ORDER_KEEPS:
        found += _orderless_iterations(module, nodes, sets | set_names(source))
    return [f"{module}:{text}" for text in found]


def _import_breaches(module: str, room: str, item: Import) -> Iterator[str]:
    target, top = item.module, item.module.split(".")[0]
    if top == PACKAGE:
        if item.name is not None and _is_private(item.name):
            yield f"{item.line}: private name {target}.{item.name}"
        full = f"{target}.{item.name}" if target in (PACKAGE, f"{PACKAGE}.store") and item.name else target
        yield from _room_breaches(module, room, item.line, full)
        return
    if room in PURE and top in IMPURE_MODULES and target not in PURE_PARTS:
        yield f"{item.line}: a pure room imports {target}"
        return
    if room in PURE and top == "random" and item.name not in (None, "Random"):
        yield f"{item.line}: entropy from random.{item.name}"
    owners = OWNED_MODULES.get(top)
    if owners is not None and room not in owners and (module, top) not in EXCEPTIONS:
        yield f"{item.line}: {room} imports {top}, which belongs to {' and '.join(owners)}"


def _room_breaches(module: str, room: str, line: int, target: str) -> Iterator[str]:
    parts = [*target.split("."), ""]
    other, here = parts[1], module.split(".")
    allowed = ROOMS[room]
    if other in (room, "version") or (allowed is ANYTHING and other):
        if other == "protocols" == room and parts[2] and parts[2] != here[2]:
            yield f"{line}: protocol {here[2]} imports protocol {parts[2]}"
        return
    hosts_it = (
        room == "server" and other == "protocols" and parts[2] == here[2]
    )  # only server/<p>/ knows protocols/<p>/
    if other not in allowed and not hosts_it and (module, target) not in EXCEPTIONS:
        yield f"{line}: {room} imports {target}"


def _private_reaches(nodes: Sequence[ast.AST], imported: list[Import]) -> Iterator[str]:
    """Yield uses of ``module._name`` where the module is one of ours."""
    modules = {item.name for item in imported if item.module.startswith(PACKAGE) and item.name and item.name.islower()}
    for node in nodes:
        reach = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
        if reach and _is_private(node.attr):
            yield f"{node.lineno}: private name {node.value.id}.{node.attr}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _impure_calls(module: str, nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "random" and node.attr != "Random":
            yield f"{node.lineno}: entropy from random.{node.attr}"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        if name in ("random.Random", "Random") and not node.args:
            yield f"{node.lineno}: an unseeded random.Random"
        if last in ("now", "utcnow", "today") and name.split(".")[0] in ("datetime", "date"):
            yield f"{node.lineno}: a clock is read: {name}"
        if last in ("open", "read_text", "write_text", "read_bytes", "write_bytes") and _is_file_call(node, last):
            yield f"{node.lineno}: a file is touched: {name}"
        if last in ENTROPY_CALLS and module not in ENTROPY_EXCEPTIONS:
            yield f"{node.lineno}: entropy from {name}"
        if name in ("__import__", "eval", "exec"):
            yield f"{node.lineno}: {name} hides what is imported"


def _is_file_call(node: ast.Call, last: str) -> bool:
    # `open` as a method is also what opening a session is called; on paths nobody but a reader of files calls it.
    return last != "open" or isinstance(node.func, ast.Name) or "path" in ast.unparse(node.func).lower()


def set_names(source: str) -> frozenset[str]:
    """Return what holds a set somewhere in the source: variables as ``name``, attributes as ``.name``."""
    names = set()
    for node in nodes_of(source):
        if isinstance(node, ast.AnnAssign) and _says_set(node.annotation):
            names.add(_holder(node.target))
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            names.update(_holder(target) for target in node.targets)
        elif isinstance(node, ast.arg) and node.annotation is not None and _says_set(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.ClassDef):
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and _says_set(part.annotation)]
            names.update(f".{ast.unparse(field.target)}" for field in fields)
    return frozenset(names)


def _holder(target: ast.expr) -> str:
    return f".{target.attr}" if isinstance(target, ast.Attribute) else ast.unparse(target)


def _says_set(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).partition("[")[0] in ("set", "frozenset", "Set", "AbstractSet")


def _is_set(node: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        takes_part = called.rpartition(".")[2] in (
            "union",
            "difference",
            "intersection",
            "symmetric_difference",
            "copy",
        )
        return called in ("set", "frozenset") or (
            takes_part and isinstance(node.func, ast.Attribute) and _is_set(node.func.value, names)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitOr | ast.BitAnd | ast.BitXor):
        return _is_set(node.left, names) or _is_set(node.right, names)
    return isinstance(node, ast.Name | ast.Attribute) and _holder(node) in names


def _orderless_iterations(module: str, nodes: Sequence[ast.AST], sets: frozenset[str]) -> Iterator[str]:
    """Yield places where the order of a set decides the order of anything: loops, comprehensions, list(), pop()."""
    harmless = {id(part) for node in nodes for part in _order_forgotten(node)}
    for node in nodes:
        for expression in () if id(node) in harmless else _followed(node):
            text = ast.unparse(expression)
            if _is_set(expression, sets) and (module, text) not in ORDERLESS_EXCEPTIONS:
                yield f"{expression.lineno}: follows the order of the set {text}"


def _order_forgotten(node: ast.AST) -> list[ast.comprehension]:
    """Return comprehensions whose order cannot matter, because a set or a sum is made of them."""
    if isinstance(node, ast.SetComp):
        return node.generators
    if isinstance(node, ast.Call) and ast.unparse(node.func) in FORGET_ORDER:
        return [
            part for argument in node.args if isinstance(argument, ast.GeneratorExp) for part in argument.generators
        ]
    return []


def _followed(node: ast.AST) -> list[ast.expr]:
    """Return what is taken one by one at this node."""
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.Starred):
        return [node.value]
    if not isinstance(node, ast.Call):
        return []
    called = ast.unparse(node.func)
    if called.endswith(".pop") and not node.args and isinstance(node.func, ast.Attribute):
        return [node.func.value]
    return node.args if called in FOLLOW_ORDER or called.endswith(".join") else []


FORGET_ORDER = frozenset({"sorted", "any", "all", "sum", "min", "max", "set", "frozenset", "len"})
FOLLOW_ORDER = frozenset({"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "deque", "dict.fromkeys"})


def sources() -> dict[str, str]:
    """Return the text of every module by its dotted name."""
    found = {}
    for path in sorted((ROOT / "src" / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text()
    found.pop(PACKAGE)
    found.pop(f"{PACKAGE}.version")
    return found


SOURCES = sources()


@pytest.fixture(scope="module")
def set_attributes() -> frozenset[str]:
    """Return attributes that hold sets anywhere in the package; who only collects the tests need not know."""
    return frozenset(name for text in SOURCES.values() for name in set_names(text) if name.startswith("."))


def test_rooms_are_those_of_the_table():
    """Every folder of the package is a room of the table, and every room of the table is a folder."""
    assert {name.split(".")[1] for name in SOURCES} == set(ROOMS)


def test_table_is_read_as_it_stands():
    """A row names rooms; a planted one is understood."""
    page = "  core/   words    stdlib\n  engine/  the node, without I/O   core rules\n  cli/  root  anything\n"

    assert rooms_of(page) == {"core": frozenset(), "engine": frozenset({"core", "rules"}), "cli": ANYTHING}
    assert set().union(*ROOMS.values()) - {"*"} <= set(ROOMS)


@pytest.mark.parametrize("room", sorted({name.split(".")[1] for name in SOURCES}))
def test_room_keeps_to_the_table(room, set_attributes):
    """A room imports only what its row names; pure rooms see no socket, clock, thread, database or entropy."""
    here = {name: text for name, text in SOURCES.items() if name.split(".")[1] == room}

    assert not [breach for name, text in here.items() for breach in breaches(name, text, set_attributes)]


def test_package_root_loads_only_its_version():
    """``import waystation`` needs no crypto, no web and no Spark, and the face loads what is named."""
    code = "import sys; before = set(sys.modules); import waystation; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert loaded == [PACKAGE, f"{PACKAGE}.version"]


def test_no_exception_is_left_over():
    """An exception whose import is gone goes too."""
    used = set()
    for module, source in SOURCES.items():
        for item in imports_of(module, source):
            used |= {(module, item.module), (module, item.module.split(".")[0]), (module, f"{item.module}.{item.name}")}

    assert set(EXCEPTIONS) <= used
    assert set(ENTROPY_EXCEPTIONS) <= set(SOURCES)


def import_circles(sources: dict[str, str]) -> list[str]:
    """Return the modules that import themselves through others, whatever for: types count too."""
    reached: dict[str, set[str]] = {}
    for module, source in sources.items():
        items = imports_of(module, source)
        named = {full if (full := f"{item.module}.{item.name}") in sources else item.module for item in items}
        reached[module] = (named & sources.keys()) - {module}
    while True:
        imported = {target for targets in reached.values() for target in targets}
        left = {
            module: targets & reached.keys() for module, targets in reached.items() if targets and module in imported
        }
        if left == reached:
            return sorted(left)
        reached = left


def test_no_module_imports_itself_through_others():
    """Every module can be read after those that it imports."""
    assert import_circles(SOURCES) == []


def test_planted_circle_is_found():
    """An import for types alone closes a circle; a module beside it belongs to none."""
    sources = {
        "waystation.a": "from waystation.b import B",
        "waystation.b": "if TYPE_CHECKING:\n    from waystation import a",
        "waystation.c": "from waystation.b import B",
        "waystation.d": "import os",
    }

    assert import_circles(sources) == ["waystation.a", "waystation.b"]


def test_sim_import_of_the_store_stays_narrow():
    """The simulator's exception covers the memory store and no other."""
    source = "from waystation.store.sqlite import SqliteStore\nfrom waystation.store import sqlite\n"

    assert len(breaches("waystation.sim.disk", source)) == 2


PLANTED = {
    "core imports upwards": ("core.x", "from waystation.crypto.hashing import sha256"),
    "protocols import the engine": ("protocols.bhumi.x", "import waystation.engine.node"),
    "one protocol imports another": ("protocols.bhumi.x", "from waystation.protocols.lprp.wire import encode"),
    "relative import of another protocol": ("protocols.bhumi.x", "from ..lprp import wire"),
    "relative import of another room": ("engine.x", "from ..server.hub import Hub"),
    "import inside a function": ("engine.x", "def f():\n    from waystation.server.hub import Hub"),
    "import for types only": ("engine.x", "if TYPE_CHECKING:\n    from waystation.store.sqlite import SqliteStore"),
    "package as a whole": ("engine.x", "from waystation import server"),
    "server imports a protocol's machine": (
        "server.x",
        "from waystation.protocols.bhumi.relay.machine import BhumiRelay",
    ),
    "server folder of one protocol imports another": (
        "server.bhumi.host",
        "from waystation.protocols.lprp.relay.machine import LprpRelay",
    ),
    "socket in a pure room": ("core.x", "import socket"),
    "asyncio in a pure room": ("engine.x", "from asyncio import Event"),
    "clock in a pure room": ("protocols.bhumi.x", "from time import monotonic"),
    "datetime.now in a pure room": ("journal.x", "import datetime\nat = datetime.datetime.now(datetime.UTC)"),
    "date.today in a pure room": ("journal.x", "from datetime import date\nat = date.today()"),
    "thread in a pure room": ("sim.x", "import threading"),
    "executor in a pure room": ("sim.x", "import concurrent.futures"),
    "download in a pure room": ("core.x", "from urllib.request import urlopen"),
    "database in a pure room": ("engine.x", "import sqlite3"),
    "secrets in a pure room": ("crypto.x", "import secrets"),
    "os.urandom in a pure room": ("crypto.x", "from os import urandom"),
    "uuid in a pure room": ("journal.x", "import uuid"),
    "file in a pure room": ("journal.x", "with open('x') as file: pass"),
    "path read in a pure room": ("journal.x", "text = path.read_text()"),
    "module function of random": ("engine.x", "import random\nx = random.random()"),
    "SystemRandom": ("engine.x", "import random\nx = random.SystemRandom()"),
    "function from random": ("engine.x", "from random import randbytes"),
    "unseeded generator": ("sim.x", "import random\nrng = random.Random()"),
    "entropy of a library": ("crypto.x", "key = ec.generate_private_key(curve)"),
    "crypto library outside crypto": ("sdk.x", "from nacl import bindings"),
    "X.509 in the server": ("server.x", "from cryptography import x509"),
    "SQLite outside the store": ("server.x", "import sqlite3"),
    "socket in the SDK": ("sdk.x", "import socket"),
    "private name imported": ("sdk.x", "from waystation.core.settings import _Setting"),
    "private name reached": ("sdk.x", "from waystation.core import settings\nsettings._check(1)"),
    "loop over a set": ("protocols.bhumi.x", "waiting: set[int] = set()\nfor x in waiting: pass"),
    "loop over a set attribute": ("engine.x", "class A:\n def f(self):\n  self.a = set()\n  for x in self.a: pass"),
    "comprehension over a difference": ("protocols.bhumi.x", "a = {1}\nb = [x for x in a - c]"),
    "list of a set": ("engine.x", "a = frozenset(b)\nc = list(a)"),
    "star of a set": ("engine.x", "a: frozenset[int] = b\nc = (*a, 1)"),
    "pop from a set": ("engine.x", "a: set[int] = b\nc = a.pop()"),
    "import hidden in a text": ("core.x", "__import__('socket')"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_planted_breach_is_found(case):
    """Each kind of breach is seen in a source of two lines."""
    module, source = PLANTED[case]

    assert len(breaches(f"{PACKAGE}.{module}", source)) == 1


LEGAL = {
    "generator handed in": ("engine.x", "import random\ndef f(rng: random.Random): return rng.randbytes(4)"),
    "generator seeded by the caller": ("sim.x", "import random\nrng = random.Random(seed)"),
    "time handed in": ("journal.x", "import datetime\nat = datetime.datetime.fromtimestamp(1, datetime.UTC)"),
    "addresses taken apart": ("protocols.strata.x", "from urllib.parse import urlsplit"),
    "sorted set": ("protocols.bhumi.x", "a: set[int] = b\nfor x in sorted(a): pass"),
    "membership in a set": ("engine.x", "a: set[int] = b\nc = 1 in a"),
    "set out of a set": ("engine.x", "a: set[int] = b\nc = {x for x in a}"),
    "server folder of a protocol": (
        "server.bhumi.host",
        "from waystation.protocols.bhumi.relay.machine import BhumiRelay",
    ),
    "own room": ("server.x", "from waystation.server.hub import Hub"),
    "version": ("server.x", "from waystation.version import __version__"),
    "composition root": ("cli.x", "from waystation.server.node import run\nfrom waystation.pipeline import run"),
    "opening a session": ("sim.x", "node.open('bhumi', host)"),
}


@pytest.mark.parametrize("case", LEGAL)
def test_legal_source_passes(case):
    """The checker does not cry wolf."""
    module, source = LEGAL[case]

    assert not breaches(f"{PACKAGE}.{module}", source)
