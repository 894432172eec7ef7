"""Laws of server.registry: the protocols by their names, and what it takes to delete one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from waystation.server.config.parts import PARTS
from waystation.server.registry import PROTOCOLS, protocol_table, protocol_tables

SOURCE = Path(__file__).parents[2] / "src" / "waystation"

ROOMS = ("protocols", "sdk", "sim", "server", "cli")
"""Rooms with a folder for each protocol."""

BESIDE = {
    "bhumi": ("sdk/bridges/bhumi.py", "cli/mcu", "simsdk"),
    "bsp": ("sdk/bridges", "bridges.py", "examples/chat"),
    "lprp": ("sdk/bridges/lprp.py",),
    "merk": ("sdk/bridges/merk.py",),
    "strata": (),
}
"""What else is of one protocol, with ``waystation/<protocol>.py``: its bridges, and Bhumi's device for MicroPython
and the simulator of its SDK."""

OF_ALL = ("examples/demo", "cli/demo.py")
"""A walk through all five protocols: it cannot do without any."""

REGISTRIES = ("server/registry.py", "cli/__init__.py", "sim/run.py", "sdk/bridges/__init__.py")
"""Files in which each protocol has lines of its own: an entry under its name, or the import that the entry needs."""

IMPORT_ALL = """
import importlib, pkgutil, waystation
for found in pkgutil.walk_packages(waystation.__path__, "waystation."):
    room = found.name.split(".")[1]
    if room not in ("pipeline", "console", "__main__"):  # they know no protocol, and Spark is slow to load
        importlib.import_module(found.name)
print("imported", waystation.__file__)
"""


def test_every_protocol_has_its_table():
    """Each folder declares the table of its own name."""
    assert [table.name for table in protocol_tables()] == list(PROTOCOLS)
    assert all(protocol_table(name) is protocol_table(name) for name in PROTOCOLS)


def test_reading_a_configuration_loads_no_relay():
    """Commands that only look at settings start without the machines of five protocols."""
    code = "import sys, waystation.server.config.load as load; load.load_config(None, {}, {}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "waystation.server.bhumi.tables" in loaded
    assert not [name for name in loaded if name.startswith("waystation.protocols.") and name.endswith(".relay.machine")]


def without(protocol, folder):
    """Copy the package without one protocol, and return how many lines of registries went with it."""
    package = folder / "waystation"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__", "web", "pipeline"))
    for place in (f"{protocol}.py", *(f"{room}/{protocol}" for room in ROOMS), *BESIDE[protocol], *OF_ALL):
        path = package / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    entry, imported = rf'    "(bspover)?{protocol}["_-]', rf"from waystation\.(sim|sdk\.bridges)\.{protocol}\b"
    line = re.compile(rf"^({entry}|{imported}).*\n", re.MULTILINE | re.IGNORECASE)
    count = 0
    for path in filter(Path.exists, map(package.joinpath, REGISTRIES)):
        text, times = line.subn("", path.read_text())
        path.write_text(text)
        count += times
    return count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rest_imports_without_one_protocol(tmp_path, protocol):
    """A protocol that is deleted takes its folders and a line in each registry; every other module still imports."""
    lines = without(protocol, tmp_path)
    done = subprocess.run(
        [sys.executable, "-B", "-c", IMPORT_ALL], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout == f"imported {tmp_path / 'waystation' / '__init__.py'}\n", done.stderr[-2_000:]
    assert 0 < lines < 10


def test_configuration_does_without_a_protocol(tmp_path):
    """The tables that are left are read and documented as ever."""
    without("merk", tmp_path)
    code = (
        "from waystation.server.config.load import load_config\n"
        "from waystation.server.config.reference import render_sample\n"
        "tables = [line for line in render_sample().splitlines() if line.startswith('[')]\n"
        "print(*tables, len(load_config(None, {}, {}).parts))"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    left = [part for part in PARTS if "merk" not in part.table.split(".")]
    tables = " ".join(dict.fromkeys(f"[{part.table}]" for part in left))
    assert done.stdout == f"{tables} {len(left)}\n"
