"""Laws of tools.build_version."""

import re
import shutil
from pathlib import Path

import pytest

from tools.build_version import RELEASE_VARIABLE, build_version
from waystation.version import __version__

ROOT = Path(__file__).parents[2]
SOURCES = "src/waystation"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small tree with a version."""
    monkeypatch.delenv(RELEASE_VARIABLE, raising=False)
    (tmp_path / "src/waystation").mkdir(parents=True)
    (tmp_path / "micropython/bhumi").mkdir(parents=True)
    shutil.copy(ROOT / "src/waystation/version.py", tmp_path / "src/waystation/version.py")
    (tmp_path / SOURCES / "code.py").write_text("x = 1\n")
    return tmp_path


def test_two_builds_between_releases_differ(tree):
    """One changed, added or renamed file is another version, which sorts after the release's."""
    versions = [build_version(tree)]
    (tree / SOURCES / "code.py").write_text("x = 2\n")
    versions.append(build_version(tree))
    (tree / SOURCES / "code.py").rename(tree / SOURCES / "other.py")
    versions.append(build_version(tree))
    (tree / "micropython/bhumi/device.py").write_text("")
    versions.append(build_version(tree))

    assert len(set(versions)) == 4
    assert all(re.fullmatch(re.escape(__version__) + r"\+t[0-9a-f]{10}", each) for each in versions)


def test_same_sources_are_the_same_build(tree, tmp_path):
    """Neither time, nor folder, nor what Python leaves beside the sources counts."""
    first = build_version(tree)
    copy = tmp_path / "copy"
    shutil.copytree(tree / "src", copy / "src")
    shutil.copytree(tree / "micropython", copy / "micropython")
    (copy / "src/waystation/__pycache__").mkdir()
    (copy / "src/waystation/__pycache__/code.pyc").write_bytes(b"x")
    (copy / "README.md").write_text("other")

    assert build_version(copy) == first


def test_release_is_bare(tree, monkeypatch):
    """A package index takes no local part."""
    monkeypatch.setenv(RELEASE_VARIABLE, "1")

    assert build_version(tree) == __version__


def test_this_tree_has_a_version():
    """What hatchling asks for."""
    assert build_version().startswith(__version__)
