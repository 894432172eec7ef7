"""The report of a run names faults, protocols and failures."""

from collections import Counter

from soak.faults.report import Report, Seen, Trial
from soak.ledger import Window


def report():
    """Return the report of one fault."""
    seen = Seen(acknowledged=3, words=Counter({"refused": 2}), disconnected=True, back_s=1.25)
    late = Seen(acknowledged=0, words=Counter(), disconnected=False, back_s=None)
    trials = [Trial("kill", Window(1.0, 3.5), {"bsp": seen, "merk": late})]
    return Report(("bsp", "merk"), trials, {"bsp": {"sent": 5}}, ["it fell"], "flat")


def test_text_has_a_line_for_each_protocol():
    """A fault's lines say how much was acknowledged meanwhile, what else became of messages, and when it went on."""
    assert str(report()).splitlines() == [
        "kill: 1 times",
        "    bsp      3 acknowledged meanwhile, 2 refused; again after 1.2 s",
        "    merk     0 acknowledged meanwhile; again after not at all",
        "bsp: sent 5",
        "flat",
        "FAILED: it fell",
    ]


def test_json_has_all_of_it():
    """The same in types that JSON has."""
    said = report().as_json()

    assert said["trials"][0]["bsp"] == {
        "acknowledged": 3,
        "words": {"refused": 2},
        "disconnected": True,
        "back_s": 1.25,
    }
    assert said["failures"] == ["it fell"]
