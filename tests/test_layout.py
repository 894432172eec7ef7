"""Where files stand: a folder per protocol in every room, names without their folder's, and paths that exist."""

from pathlib import Path

from tools.layout import code_of, crowded, foreign_imports, lost_paths, prefixed, tracked

ROOT = Path(__file__).parents[1]
FOLDER_FILES_MAX = 30

TRACKED = tracked()


def test_protocols_stay_apart():
    """In every room a protocol's folder imports no other protocol's folder; bridges may."""
    python = [path for path in code_of(TRACKED) if path.suffix == ".py" and path.parts[0] != "tests"]

    assert not [line for path in python for line in foreign_imports(path, (ROOT / path).read_text())]


def test_no_file_repeats_its_folder():
    """The folder says it once, and where a protocol has a folder nothing beside the folder carries its name."""
    assert not [str(path) for path in prefixed(TRACKED)]


def test_no_folder_is_crowded():
    """A folder of code has so few files that one reads them all."""
    assert crowded(TRACKED)[1] <= FOLDER_FILES_MAX


def test_every_cited_path_exists():
    """A file that code or docs name can be opened."""
    assert not lost_paths(TRACKED)
