"""docs/journal.md says what the contract says."""

from pathlib import Path

from waystation.journal.document import render_contract

DOCUMENT = Path(__file__).parents[2] / "docs" / "journal.md"


def test_document_holds_the_contract() -> None:
    """The generated part of the document is what the contract renders today."""
    text = DOCUMENT.read_text()
    generated = text.partition("<!-- contract -->\n")[2].partition("<!-- end of contract -->")[0]

    assert generated == render_contract()
