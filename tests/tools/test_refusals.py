"""Laws of tools.refusals; that every reason is explained stands in tests/test_tidy.py."""

from tools.refusals import refusals, table


def test_table_is_markdown():
    """A head, a line between, and one line per row."""
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_silence_and_commands_are_told_apart():
    """What LPRP drops shows nothing, what it refuses shows the command of the specification."""
    rows = [line.split(" | ") for line in refusals().split("## lprp\n")[1].split("\n## ")[0].splitlines()]
    seen = {row[0].strip("| `"): row[-1].strip(" |") for row in rows if row[0].startswith("| `")}

    assert seen["bad_signature"] == "Nothing."
    assert seen["too_few_bits"] == "Command 401."
    assert seen["overtaken"] == "Command 408."


def test_details_of_strata_have_a_table():
    """A word that stands in ``detail`` is set as code, a description of one is not."""
    page = refusals()

    assert "| `invalid_schema` | `bad_json` | no JSON object, or data behind it |" in page
    assert "| `invalid_schema` | a field's name | " in page
