"""Laws of rules.policy: what rules say, when they end, and which lines are taken."""

import json
import random

import pytest

from waystation.core.errors import RemoteError
from waystation.rules.lines import encode_line
from waystation.rules.policy import (
    RULES_MAX,
    RULES_PER_SUBJECT_MAX,
    Action,
    Mode,
    PolicyRule,
    PolicyTable,
    RelayScore,
    decode_rules,
    decode_scores,
    encode_rule,
    encode_score,
)
from waystation.rules.relay_state import State

REF = bytes(range(16))
FROM, UNTIL = 1_000_000, 9_000_000
BLOCK = PolicyRule("source", REF, Action.BLOCK, 0, "burst", FROM, UNTIL, "1", Mode.ENFORCE)
RATE = BLOCK._replace(action=Action.RATE, amount=30, rule="replay")
POW = BLOCK._replace(action=Action.POW, amount=4, rule="work_farming", mode=Mode.SHADOW)
SCORE = RelayScore("0123456789abcdef", 0.123457, State.BLACKLISTED, FROM, "violations", UNTIL)


def lines(*rows):
    """Return rows as a file."""
    return b"".join(encode_rule(row) + b"\n" for row in rows)


def altered(row, **fields):
    """Return a row's line with other values in some fields."""
    encode = encode_rule if isinstance(row, PolicyRule) else encode_score
    return encode_line(json.loads(encode(row)) | fields) + b"\n"


def test_hardest_rule_comes_first():
    """Block goes before rate and rate before pow; the lowest rate and the most bits before others."""
    slower, harder = RATE._replace(amount=5, rule="burst2"), POW._replace(amount=9, rule="replay2")
    table = PolicyTable([POW, RATE, harder, BLOCK, slower], UNTIL)

    assert table.decide("source", REF, FROM) == (BLOCK, slower, RATE, harder, POW)
    assert len(table) == len(list(table)) == 5


def test_rule_is_about_its_subject_only():
    """Neither another reference nor the same one of another kind meets it."""
    table = PolicyTable([BLOCK], UNTIL)

    assert table.decide("source", REF, FROM) == (BLOCK,)
    assert table.decide("peer", REF, FROM) == table.decide("source", bytes(16), FROM) == ()


@pytest.mark.parametrize(("at", "holds"), [(FROM - 1, False), (FROM, True), (UNTIL - 1, True), (UNTIL, False)])
def test_rule_holds_between_its_moments(at, holds):
    """Before it begins and from its end on, a rule does nothing."""
    assert (PolicyTable([BLOCK], 2 * UNTIL).decide("source", REF, at) != ()) is holds


def test_table_is_neutral_from_its_end_on():
    """No rule outlives the snapshot that brought it."""
    table = PolicyTable([BLOCK._replace(valid_until_us=2 * UNTIL)], UNTIL)

    assert table.decide("source", REF, UNTIL - 1)
    assert table.decide("source", REF, UNTIL) == ()


def test_allowed_subject_is_left_alone():
    """The operator's list wins over every rule."""
    assert PolicyTable([BLOCK], UNTIL).decide("source", REF, FROM, allowed=True) == ()


def test_rules_and_scores_read_back():
    """A file is read as it was written."""
    assert decode_rules(lines(BLOCK, RATE, POW)) == [BLOCK, RATE, POW]
    assert decode_scores(encode_score(SCORE) + b"\n") == {SCORE.relay_id: SCORE}
    assert decode_scores(encode_score(SCORE._replace(reason=None, score=1)) + b"\n")[SCORE.relay_id].score == 1
    assert decode_rules(b"") == []
    assert decode_scores(b"") == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "expel"},
        {"action": ["block"]},
        {"mode": "maybe"},
        {"kind": "nobody"},
        {"amount": 1},
        {"amount": True},
        {"amount": 0.0},
        {"action": "rate"},
        {"action": "rate", "amount": 1_000_001},
        {"action": "pow", "amount": 27},
        {"ref": "00"},
        {"ref": 7},
        {"rule": "Burst\n"},
        {"rule": "x" * 41},
        {"version": ""},
        {"from": -1},
        {"until": FROM},
        {"until": FROM + 36 * 86_400 * 1_000_000},
        {"until": 2**53},
        {"more": 1},
    ],
)
def test_odd_rule_is_refused(fields):
    """A value outside what is known refuses the file, and the line is named."""
    with pytest.raises(RemoteError, match=r"^line 2: "):
        decode_rules(lines(RATE) + altered(BLOCK, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"score": 1.000001},
        {"score": -0.1},
        {"score": 1},
        {"score": "1"},
        {"score": 0.12345678},
        {"state": "good"},
        {"relay_id": "0123456789ABCDEF"},
        {"since": None},
        {"reason": ""},
        {"as_of": 1.5},
    ],
)
def test_odd_score_is_refused(fields):
    """Scores are as strict."""
    with pytest.raises(RemoteError, match=r"^line 1: "):
        decode_scores(altered(SCORE, **fields))


def test_cut_off_file_is_refused():
    """At every byte but the ends of lines, where the row count of the pointer tells."""
    data = lines(BLOCK, RATE)
    ends = {0, data.index(b"\n") + 1}

    for size in set(range(len(data))) - ends:
        with pytest.raises(RemoteError):
            decode_rules(data[:size])


def test_nothing_stands_twice():
    """One rule of one subject, or one relay, has one line."""
    with pytest.raises(RemoteError, match="line 2: the same rule"):
        decode_rules(lines(BLOCK, BLOCK))
    with pytest.raises(RemoteError, match="line 2: the relay 0123456789abcdef"):
        decode_scores(2 * (encode_score(SCORE) + b"\n"))


def test_files_are_bounded():
    """Too many lines, too many rules of one subject, and too long a line are refused."""
    with pytest.raises(RemoteError, match="more than 50000 lines"):
        decode_rules(b"\n" * (RULES_MAX + 1))
    crowd = [BLOCK._replace(rule=f"burst{number}") for number in range(RULES_PER_SUBJECT_MAX + 1)]
    assert len(decode_rules(lines(*crowd[:-1]))) == RULES_PER_SUBJECT_MAX
    with pytest.raises(RemoteError, match="line 17: a subject has at most 16"):
        decode_rules(lines(*crowd))
    with pytest.raises(RemoteError, match="at most 512"):
        decode_rules(b" " * 513 + b"\n")


def test_random_damage_is_refused_or_another_rule():
    """Whatever byte is changed, the answer is rows or a refusal."""
    rng, data = random.Random(7), lines(BLOCK, POW)
    for _ in range(500):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] = rng.randrange(256)
        try:
            rows = decode_rules(bytes(damaged))
        except RemoteError:
            continue
        assert lines(*rows) == damaged
