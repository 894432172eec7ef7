"""Returns the name by which this program was started, for the commands that it prints.

Commands that print a next step (``waystation bhumi accept ...``) begin it with this, so that it can be pasted.
"""

import shutil
import sys
from pathlib import Path

__all__ = ["own_program"]


def own_program() -> list[str]:
    """Return the words that start this program, as far as they follow from how it was called."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py" and called.parent.name == "waystation":
        return [sys.executable, "-m", "waystation"]
    if called.name != "waystation" or len(called.parts) == 1:
        return ["waystation"]
    found = shutil.which("waystation")
    return ["waystation"] if found is not None and Path(found).absolute() == called.absolute() else [sys.argv[0]]
