import pytest

from tests.sdk.strata.build import ALICE, BOB
from waystation.cli.strata.input import parse_authors, parse_content, parse_since, parse_until
from waystation.core.dids import encode_did
from waystation.core.errors import LocalError

DAY = 1_795_219_200  # 2026-11-21T00:00Z


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-11-21", DAY, DAY + 86_399),
        ("2026-11-21T10:00", DAY + 36_000, DAY + 36_000),
        ("2026-11-21 10:00:05", DAY + 36_005, DAY + 36_005),
        ("2026-11-21T10:00Z", DAY + 36_000, DAY + 36_000),
        ("2026-11-21T10:00+01:00", DAY + 32_400, DAY + 32_400),
        ("1795219200", DAY, DAY),
        (None, None, None),
    ],
)
def test_times_are_seconds_or_utc(text, first, last):
    """A day begins with its first second and ends with its last; without a zone it is UTC."""
    assert (parse_since(text), parse_until(text)) == (first, last)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-11-21T25:00", "1e9", "9" * 16])
def test_other_times_are_mistakes(text):
    """The sentence names the option and shows a time."""
    with pytest.raises(LocalError, match=r"--until takes .* 2026-11-21T10:00"):
        parse_until(text)


def test_authors_are_dids():
    """Sorted and each once, as relays want them; what is shortened is a mistake."""
    dids = [encode_did(key.public) for key in (ALICE, BOB)]

    assert parse_authors([*dids, dids[0]]) == tuple(sorted(dids))
    assert parse_authors(None) == ()
    with pytest.raises(LocalError, match="--author takes a DID"):
        parse_authors([dids[0][-12:]])


def test_content_is_a_post_or_json():
    """A text makes a POST, with what it answers; nothing at all is refused."""
    answered = "0x" + "11" * 32

    assert parse_content("x", None, answered) == {"type": "POST", "text": "x", "thread_ref": answered}
    assert parse_content(None, '{"type": "PROFILE"}', None) == {"type": "PROFILE"}
    for words in ((None, None, None), ("", None, None), ("x", "{}", None), (None, "{", None), ("x", None, "0x1")):
        with pytest.raises(LocalError):
            parse_content(*words)
