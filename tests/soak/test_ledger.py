"""The ledger finds every promise that was not kept."""

import json

import pytest

from soak.ledger import Claim, Ledger, Window

EVER = Window(0.0, float("inf"))


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger with a file."""
    made = Ledger(tmp_path / "ledger.jsonl")
    yield made
    made.close()


def sent(ledger, claim, arrivals=0, protocol="merk"):
    """Return the serial of a message that ended so and arrived so often."""
    serial = ledger.begin(protocol)
    ledger.end(serial, claim, claim.value)
    for _ in range(arrivals):
        ledger.arrive(serial)
    return serial


def test_what_is_true_is_no_finding(ledger):
    """Acknowledged and arrived, not sent and absent, and anything of what is unknown, are as they should be."""
    sent(ledger, Claim.ACKNOWLEDGED, 1)
    sent(ledger, Claim.NOT_SENT)
    sent(ledger, Claim.UNKNOWN)
    sent(ledger, Claim.UNKNOWN, 1)

    assert ledger.owed() == []
    assert ledger.untrue() == []


def test_acknowledged_and_not_arrived_is_owed(ledger):
    """A message that was acknowledged and did not arrive is named."""
    serial = sent(ledger, Claim.ACKNOWLEDGED)

    assert [each.serial for each in ledger.owed()] == [serial]


@pytest.mark.parametrize(("claim", "arrivals"), [(Claim.NOT_SENT, 1), (Claim.ACKNOWLEDGED, 2), (Claim.UNKNOWN, 2)])
def test_false_and_double_arrivals_are_untrue(ledger, claim, arrivals):
    """What was not sent must not arrive, and nothing arrives twice."""
    serial = sent(ledger, claim, arrivals)

    assert [each.serial for each in ledger.untrue()] == [serial]


def test_windows_tell_meanwhile_from_afterwards(ledger):
    """A message counts for the window in which it was sent, and as acknowledged there only if that was there too."""
    serial = ledger.begin("lprp")
    early = Window(0.0, ledger.entries[serial].began_s)
    ledger.end(serial, Claim.ACKNOWLEDGED, "accepted")

    assert (ledger.acknowledged_in("lprp", early), ledger.acknowledged_after("lprp", early)) == (0, 1)
    assert (ledger.acknowledged_in("lprp", EVER), ledger.acknowledged_after("lprp", EVER)) == (1, 0)
    assert ledger.acknowledged_in("merk", EVER) == 0


def test_first_acknowledgement_is_of_a_later_message(ledger):
    """What was sent before a moment does not count as the first acknowledgement after it."""
    early = sent(ledger, Claim.ACKNOWLEDGED)
    since_s = ledger.entries[early].ended_s

    assert ledger.first_acknowledged_s("merk", since_s + 1) is None
    assert ledger.first_acknowledged_s("merk", 0.0) == since_s


def test_refusals_are_counted_by_their_word(ledger):
    """Messages that were not sent are counted, with the word that the SDK had for it."""
    sent(ledger, Claim.NOT_SENT)
    sent(ledger, Claim.UNKNOWN)

    assert ledger.not_sent_in("merk", EVER) == 1
    assert ledger.words_in("merk", EVER) == {"not sent": 1, "unknown": 1}


def test_every_line_is_in_the_file_at_once(ledger, tmp_path):
    """What is known is in the file before anything else happens."""
    sent(ledger, Claim.ACKNOWLEDGED, 1)
    ledger.note("begin", "kill")
    lines = [json.loads(line)[1:] for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]

    assert lines == [
        ["began", "merk-1"],
        ["ended", "merk-1", "acknowledged", "acknowledged"],
        ["arrived", "merk-1"],
        ["begin", "kill"],
    ]
