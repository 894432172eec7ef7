"""The data's words as sentences."""

import pytest

from waystation.pipeline.report.words import reason_text, short_names
from waystation.rules.relay_state import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words(reason) -> None:
    """A relay's reason is told as a sentence, not as a code."""
    assert reason_text(reason.value) != reason.value


def test_unknown_reasons_stay() -> None:
    """A newer rule's reason is shown as it is, and none is told as never moved."""
    assert reason_text("brand_new") == "brand_new"
    assert reason_text(None) == "it was never moved"


def test_short_names_hide_nobody() -> None:
    """Two ids that begin alike keep all their digits, the others only eight."""
    ids = ["aabbccdd00000001", "aabbccdd00000002", "00112233aabbccdd"]

    assert short_names(ids) == {ids[0]: ids[0], ids[1]: ids[1], ids[2]: "00112233"}
