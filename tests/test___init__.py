"""What programs import: ``waystation`` and nothing below it, for no more than it is named."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import waystation

ROOT = Path(__file__).parents[1]
PROTOCOLS = ("bhumi", "bsp", "lprp", "merk", "strata")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def loaded_by(code):
    """Return the modules of the package that a program loads."""
    code = f"import sys\n{code}\nprint(*sorted(name for name in sys.modules if name.startswith('waystation.')))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_everything_promised_is_there():
    """Each public name of the root can be used, and each of ``dir``."""
    assert all(getattr(waystation, name) is not None for name in waystation.__all__)
    assert set(waystation.__all__) <= set(dir(waystation))


def test_name_that_is_not_there_is_an_attribute_error():
    """A slip of the pen is told as everywhere."""
    with pytest.raises(AttributeError, match="no attribute 'mqtt'"):
        _ = waystation.mqtt


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocol_at_the_root_is_that_of_the_sdk(name):
    """``waystation.<name>`` has all the names of ``waystation.sdk.<name>``, ``open`` and ``Outcome`` among them."""
    face, inside = getattr(waystation, name), import_module(f"waystation.sdk.{name}")

    assert all(getattr(face, each) is getattr(inside, each) for each in inside.__all__)
    assert {"open", "Outcome"} <= set(inside.__all__)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocol_loads_no_other(name):
    """A program that uses one protocol pays for one."""
    others = [f"waystation.sdk.{each}" for each in PROTOCOLS if each != name]

    assert not set(others) & set(loaded_by(f"import waystation; waystation.{name}.open"))


def test_shared_names_load_no_protocol():
    """Errors, keys and TLS come without a client."""
    loaded = loaded_by("import waystation; waystation.errors, waystation.PublicKey, waystation.tls, waystation.Outcome")

    assert not [name for name in loaded if name.startswith(("waystation.protocols", "waystation.crypto"))]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_imports_the_face_alone(path):
    """An example is what a program of somebody else looks like."""
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names} == {"waystation"}


def test_types_of_the_face_are_checked():
    """``tests/typing`` is part of what mypy reads in every check."""
    assert '"tests/typing"' in (ROOT / "pyproject.toml").read_text()
    assert "assert_type" in (ROOT / "tests/typing/face.py").read_text()
