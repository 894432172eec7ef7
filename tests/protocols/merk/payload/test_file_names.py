"""Laws of file names that others have chosen."""

import pytest

from waystation.protocols.merk.payload.file_names import safe_name


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a.txt", "a.txt"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("/", "file"),
        (".bashrc", "bashrc"),
        ("a\x00b\n\x1b[2J", "a_b__[2J"),
        ("gr\u00fc\u00df \u202etxt.exe", "gr\u00fc\u00df _txt.exe"),
        ("a:b*c?.txt", "a_b_c_.txt"),
        ("trailing. ", "trailing"),
        ("CON.txt", "_CON.txt"),
        ("nul", "_nul"),
    ],
)
def test_names_lead_nowhere_else(name, safe):
    """No separators, no hidden files, no characters that steer a terminal or a system."""
    assert safe_name(name) == safe


@pytest.mark.parametrize("name", ["x" * 300 + ".txt", "\u00fc" * 250 + ".txt", "a." + "y" * 300, "z" * 255])
def test_long_names_fit_a_file_system(name):
    """The name is cut to what every file system takes, and its ending is kept where it is short."""
    cut = safe_name(name)

    assert len(cut.encode()) <= 200
    assert cut.endswith(".txt") == name.endswith(".txt")
