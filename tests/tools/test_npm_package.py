"""The npm package: what is in it, that its types are those of the program, and that Node.js runs it."""

import json
import subprocess
import tarfile

import pytest

from tests.console.build import merk_node
from tools import npm_package
from waystation.version import __version__

pytestmark = pytest.mark.slow

TYPES = npm_package.ROOT / "tests/console/web/types.ts"
TALK = """
import { MerkClient } from "waystation-merk";
import { nodeEnvironment } from "waystation-merk/node";
const [address, command] = process.argv.slice(2);
const environment = await nodeEnvironment("./" + command);
const client = await MerkClient.open({ environment });
await client.connect(address);
await client.whenReady(20_000);
const { outcome } = await client.sendText(client.id, "to myself", { mode: "signed" });
const { id, isPersistent, warnings } = client;
console.log(JSON.stringify({ id, isPersistent, warnings, outcome: (await outcome).name }));
await client.close();
await environment.storage.close();
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The package, as ``make npm`` builds it."""
    return npm_package.build(tmp_path_factory.mktemp("npm"), tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def project(archive, tmp_path_factory):
    """A program's folder with the package in it, beside the pinned compiler and ``ws``."""
    folder = npm_package.tools(tmp_path_factory.mktemp("project"))
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (folder / "unpacked/package").rename(folder / "node_modules/waystation-merk")
    return folder


def run(folder, *command):
    """Run a command and return the finished process."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_package_has_every_module_with_its_types_and_nothing_else(archive):
    """Modules, declarations, licence and README; no test, no tool, no source of others."""
    modules = {str(path.relative_to(npm_package.SDK)) for path in npm_package.SDK.rglob("*.js")}
    types = {name.removesuffix(".js") + ".d.ts" for name in modules}
    with tarfile.open(archive) as packed:
        names = {name.removeprefix("package/") for name in packed.getnames()}
        about = json.load(packed.extractfile("package/package.json"))

    assert names == modules | types | {"package.json", "LICENSE", "README.md"}
    assert (about["name"], about["version"]) == ("waystation-merk", __version__)
    assert "private" not in about
    assert "dependencies" not in about


def test_types_are_those_of_the_program(project):
    """A program in TypeScript compiles against the declarations, and its mistakes do not."""
    (project / "program.ts").write_text(TYPES.read_text())
    (project / "package.json").write_text('{"type": "module"}')
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,dom,dom.iterable")
    finished = run(project, "node_modules/.bin/tsc", *options, "--types", "node", "program.ts")

    assert (finished.returncode, finished.stdout) == (0, "")


def test_node_runs_the_package_with_the_package_ws(project, tmp_path):
    """A program keeps its identity in a folder and talks to a node; a second run is the same person."""
    (project / "talk.mjs").write_text(TALK)
    node = merk_node(tmp_path / "node").start()
    try:
        first, second = (run(project, "node", "talk.mjs", node.url("merk"), "me") for _ in range(2))
    finally:
        node.stop()

    told = [json.loads(finished.stdout) for finished in (first, second)]
    assert told[0]["id"] == told[1]["id"]
    assert told == [{"id": told[0]["id"], "isPersistent": True, "warnings": [], "outcome": "accepted"}] * 2
