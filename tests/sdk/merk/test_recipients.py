"""Laws of sdk.merk_recipients."""

import pytest

from tests.protocols.merk.build import ALICE, BOB, CAROL
from waystation.core.errors import HostError, LocalError
from waystation.protocols.merk.messages import KeyAdvert
from waystation.sdk.merk import recipients as merk_recipients
from waystation.sdk.merk.recipients import Recipient, Recipients

KEY = BOB.signing.public


def advert(agreement_key=BOB.agreement_public, time_ms=100):
    """Return an advert; its signature is somebody else's to check."""
    return KeyAdvert(KEY, agreement_key, time_ms, b"s" * 64)


def test_first_advert_is_pinned():
    """Who was not known is known by the first advert."""
    recipients = Recipients()

    assert not recipients.learn(advert())
    assert recipients.get(KEY) == Recipient(BOB.agreement_public, 100, by_hand=False, able=True)


def test_same_key_confirms():
    """A newer advert of the same key changes nothing."""
    recipients = Recipients()
    recipients.learn(advert())

    assert not recipients.learn(advert(time_ms=200))
    assert recipients.get(KEY) == Recipient(BOB.agreement_public, 100, by_hand=False, able=True)


def test_newer_advert_with_another_key_does_not_replace_the_pin():
    """That is for a person to decide; trust takes it."""
    recipients, changed = Recipients(), advert(CAROL.agreement_public, 200)
    recipients.learn(advert())
    learned, kept = recipients.learn(changed), recipients.get(KEY).agreement_key
    recipients.trust(changed)

    assert (learned, kept) == (True, BOB.agreement_public)
    assert recipients.get(KEY).agreement_key == CAROL.agreement_public


def test_older_advert_counts_for_nothing():
    """A relay that hands out an old key gains nothing, not even a warning."""
    recipients = Recipients()
    recipients.learn(advert())

    assert not recipients.learn(advert(CAROL.agreement_public, 99))
    assert recipients.get(KEY).agreement_key == BOB.agreement_public


def test_key_given_by_hand_holds_and_an_advert_of_it_makes_it_one_of_ours():
    """By hand says nothing about the recipient's client; the same key in the directory does."""
    recipients = Recipients()
    recipients.set_by_hand(KEY, BOB.agreement_public)
    by_hand = recipients.get(KEY).by_hand
    recipients.learn(advert())
    recipients.set_by_hand(KEY, BOB.agreement_public)

    assert by_hand
    assert not recipients.get(KEY).by_hand


def test_pins_survive_and_are_shared(tmp_path):
    """What one object wrote another one reads, also what was written meanwhile; the file is private."""
    path = tmp_path / "pins.json"
    one, two = Recipients(path), Recipients(path)
    one.learn(advert())
    two.set_by_hand(ALICE.signing.public, ALICE.agreement_public)

    assert Recipients(path).known() == one.known() == two.known()
    assert len(one.known()) == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_forgotten_recipient_is_first_seen_again(tmp_path):
    """Forgetting tells whether there was anything to forget."""
    recipients = Recipients(tmp_path / "pins.json")
    recipients.learn(advert())

    assert [recipients.forget(KEY), recipients.forget(KEY)] == [True, False]
    assert not recipients.learn(advert(CAROL.agreement_public, 1))
    assert recipients.get(KEY).agreement_key == CAROL.agreement_public


def test_recipients_are_bounded(monkeypatch):
    """Beyond the limit nobody new is pinned; who is known may change."""
    monkeypatch.setattr(merk_recipients, "RECIPIENTS_MAX", 1)
    recipients = Recipients()
    recipients.learn(advert())
    recipients.set_by_hand(KEY, CAROL.agreement_public)

    with pytest.raises(LocalError, match="forget some"):
        recipients.set_by_hand(ALICE.signing.public, ALICE.agreement_public)


@pytest.mark.parametrize("content", ['{"abc": {}}', '{"' + "11" * 32 + '": {"agreement_key": 1}}', "[]"])
def test_damaged_file_is_named(tmp_path, content):
    """A file that was changed by hand is not half read."""
    path = tmp_path / "pins.json"
    path.write_text(content)

    with pytest.raises(HostError, match=r"pins\.json"):
        Recipients(path)


def test_who_was_once_able_stays_able(tmp_path):
    """No key given later, and no restart, talks a recipient's senders back to the legacy form; forgetting does."""
    path = tmp_path / "recipients.json"
    Recipients(path).learn(advert())
    Recipients(path).set_by_hand(KEY, CAROL.agreement_public)
    given = Recipients(path).get(KEY)
    Recipients(path).forget(KEY)
    Recipients(path).set_by_hand(KEY, CAROL.agreement_public)

    assert given == Recipient(CAROL.agreement_public, 0, by_hand=True, able=True)
    assert not Recipients(path).get(KEY).able
