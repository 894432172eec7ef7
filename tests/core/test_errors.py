"""Laws of core.errors."""

import inspect
import re

import pytest

from waystation.core import errors
from waystation.core.errors import ConfigError, HostError, LocalError, RemoteError, WaystationError


def _drawn_tree():
    """Return the parent of each class in the drawing, told by how far its name is indented."""
    tree, above = {}, []
    for line in inspect.getdoc(errors).partition("::")[2].splitlines():
        name = re.match(r"[ │├└─]*(\w+(?:Error|Fault))\b", line)
        if name is None:
            continue
        above = [(depth, parent) for depth, parent in above if depth < name.start(1)]
        tree[name[1]] = above[-1][1] if above else "Exception"
        above.append((name.start(1), name[1]))
    return tree


def test_tree_is_the_one_drawn_in_the_docstring():
    """The tree in the module's docstring and the classes never drift apart."""
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, WaystationError)]

    assert _drawn_tree() == {cls.__name__: cls.__bases__[0].__name__ for cls in classes}


@pytest.mark.parametrize("branch", [LocalError, RemoteError, HostError])
def test_each_branch_stands_alone(branch):
    """Catching one branch never catches another."""
    others = {LocalError, RemoteError, HostError} - {branch}

    assert issubclass(branch, WaystationError)
    assert not any(issubclass(branch, other) for other in others)


def test_config_error_names_file_and_line():
    """The text begins with file and line, and both can be read as attributes."""
    error = ConfigError("unknown key", origin="node.toml", line=3)

    assert str(error) == "node.toml:3: unknown key"
    assert (error.origin, error.line) == ("node.toml", 3)


def test_config_error_without_line_names_its_origin_only():
    """A variable or a flag has no line."""
    assert str(ConfigError("bad", origin="environment X")) == "environment X: bad"


@pytest.mark.parametrize(("given", "expected"), [({}, 1), ({"exit_code": 5}, 5)])
def test_host_error_carries_its_exit_code(given, expected):
    """What the command line returns travels with the error; 1 when nobody said."""
    assert HostError("no", **given).exit_code == expected
