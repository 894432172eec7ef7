"""Each breach of the layout is seen when it is planted."""

from pathlib import PurePosixPath

import pytest

from tools.layout import (
    circles,
    cited_in,
    crowded,
    foreign_imports,
    import_graph,
    leaves_its_folder,
    lost_paths,
    repeats_folder,
    tracked,
)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("src/waystation/sdk/merk/client.py", "from waystation.protocols.bhumi.wire import read"),
        ("src/waystation/sim/strata/plan.py", "import waystation.sim.bhumi.plan"),
        ("src/waystation/sdk/merk/client.py", "from waystation.sdk import bhumi"),
        ("fuzz/bsp/wire.py", "def late():\n    from fuzz.lprp.wire import x\n"),
    ],
)
def test_import_of_another_protocol_is_found(path, source):
    """An import from one protocol's folder into another's is seen, wherever in the file it stands."""
    assert foreign_imports(PurePosixPath(path), source)


def test_bridge_may_know_two():
    """Carriers that join two protocols live in the bridges, and BSP may open one."""
    two = "from waystation.sdk.merk.client import a\nfrom waystation.sdk.bsp.peer import b\n"

    assert not foreign_imports(PurePosixPath("src/waystation/sdk/bridges/merk.py"), two)
    assert not foreign_imports(
        PurePosixPath("src/waystation/cli/bsp/x.py"), "from waystation.sdk.bridges.merk import c"
    )


@pytest.mark.parametrize("name", ["sdk/merk/merk_client.py", "tests/sdk/merk/test_merk.py", "fuzz/fuzz_wire.py"])
def test_repeated_folder_is_found(name):
    """A file named after its folder is seen, and so is a test."""
    assert repeats_folder(PurePosixPath(name))


def test_prefix_is_found():
    """A protocol's name in front of a file is seen where that protocol has a folder, and only there."""
    folders = frozenset({PurePosixPath("sdk/merk")})

    assert leaves_its_folder(PurePosixPath("sdk/test_merk_mesh.py"), folders)
    assert leaves_its_folder(PurePosixPath("sdk/build_merk.py"), folders)
    assert not leaves_its_folder(PurePosixPath("pipeline/bsp_groups.py"), folders)


def test_crowded_folder_is_found():
    """The folder with the most files of code is named with their number; other files do not count."""
    files = [PurePosixPath(name) for name in ("src/a/x.py", "src/a/y.js", "src/b/z.py", "src/b/data.json")]

    assert crowded(files) == ("src/a", 2)


def test_lost_path_is_found(tmp_path):
    """A path in a sentence is seen when nothing stands there; a pattern is none."""
    assert cited_in("see specs/none.md 5, tests/*/x.py and `design.md`") == {"specs/none.md", "design.md"}

    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "one.md").write_text("")
    (tmp_path / "page.md").write_text("specs/one.md and specs/two.md")

    assert lost_paths(tracked(tmp_path) or [PurePosixPath("page.md")], tmp_path) == ["page.md: specs/two.md"]


def test_circle_is_found():
    """Modules that import each other are one group, also when one names the other for its types alone."""
    sources = {
        "a": "import b",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from c import C",
        "c": "def late():\n    import a\n",
        "d": "import a",
    }

    assert circles(import_graph(sources)) == [["a", "b", "c"]]
    assert circles(import_graph({"a": "import b", "b": ""})) == []
