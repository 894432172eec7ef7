import re

from waystation.core.errors import HostError, LocalError, RemoteError
from waystation.sdk import errors


def test_tree_is_the_one_in_the_docstring():
    """Each error stands under the root that the module's drawing shows, and no error is missing there."""
    drawn, root = {}, None
    for line in errors.__doc__.splitlines():
        name = re.search(r"[A-Z][A-Za-z]+Error", line)
        if name and ("├" in line or "└" in line):
            drawn[name.group()] = root
        elif name:
            root = name.group()
    roots = (LocalError, RemoteError, HostError)
    actual = {}
    for name in errors.__all__:
        actual[name] = next(each.__name__ for each in roots if issubclass(getattr(errors, name), each))

    assert drawn == actual
