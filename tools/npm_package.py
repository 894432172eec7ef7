"""Builds the npm package of the browser SDK: ``python -m tools.npm_package [FOLDER]`` (``make npm``).

The package has the SDK's modules as they are, type declarations that TypeScript makes of their JSDoc, the licence, and
``docs/merk_browser.md`` as its README. TypeScript comes from npm, pinned with its integrity hash in
``tools/npm/package-lock.json``, into ``build/npm-tools``. Neither it nor the declarations are in the repository.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from waystation.version import __version__

__all__ = ["build", "main", "tools"]

ROOT: Final = Path(__file__).parent.parent
SDK: Final = ROOT / "src/waystation/console/web/sdk"
PINNED: Final = ROOT / "tools/npm"
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?://|#)[^)]*\)")


def main(arguments: list[str] | None = None) -> int:
    """Build the package and print the path of its archive."""
    folder, *_ = [*(sys.argv[1:] if arguments is None else arguments), "dist"]
    print(build(ROOT / "build", ROOT / folder))
    return 0


def build(work: Path, to: Path) -> Path:
    """Assemble and pack.

    Args:
        work: Folder for what is needed on the way.
        to: Folder for the archive.

    Returns:
        The archive, as ``npm publish`` takes it.
    """
    compiler = tools(work / "npm-tools")
    package = work / "npm"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(SDK, package)
    about = json.loads((SDK / "package.json").read_text())
    (package / "package.json").write_text(json.dumps(about | {"version": __version__}, indent=2) + "\n")
    shutil.copy(ROOT / "LICENSE", package / "LICENSE")
    (package / "README.md").write_text(_LINK.sub(r"\1", (ROOT / "docs/merk_browser.md").read_text()))
    modules = [str(package / name) for name in ("merk.js", "node.js")]
    _run(compiler, str(compiler / "node_modules/.bin/tsc"), *_options(compiler), "--outDir", str(package), *modules)
    to.mkdir(parents=True, exist_ok=True)
    return to / _run(package, "npm", "pack", "--silent", "--pack-destination", str(to)).strip()


def tools(folder: Path) -> Path:
    """Install what is pinned, unless it is there, and return its folder."""
    lock = PINNED / "package-lock.json"
    installed = folder / "package-lock.json"
    if not (installed.is_file() and installed.read_bytes() == lock.read_bytes() and (folder / "node_modules").is_dir()):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(PINNED / "package.json", folder)
        shutil.copy(lock, folder)
        _run(folder, "npm", "ci", "--silent", "--ignore-scripts")
    return folder


def _options(compiler: Path) -> list[str]:
    """Return the compiler's options on its command line, since files are named there, too."""
    options = json.loads((PINNED / "tsconfig.json").read_text())["compilerOptions"]
    flags = [
        part
        for name, value in options.items()
        for part in (f"--{name}", ",".join(value) if isinstance(value, list) else str(value).lower())
    ]
    return [*flags, "--typeRoots", str(compiler / "node_modules/@types")]


def _run(folder: Path, *command: str) -> str:
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        sys.exit(f"{' '.join(command[:3])} failed:\n{finished.stdout}{finished.stderr}")
    return finished.stdout


if __name__ == "__main__":
    sys.exit(main())
