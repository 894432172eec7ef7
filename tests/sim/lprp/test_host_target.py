"""The fuzz target of the host finds mistakes, and knows the ways that an input can go."""

import random

import pytest

from fuzz.lprp import host as lprp_host
from fuzz.lprp.host import LprpHostTalk
from fuzz.run import fuzz
from tests.sim.lprp import mutants


def test_inputs_get_somewhere():
    """Good inputs get as far as leases and mail, others nowhere."""
    outcomes, found = fuzz(LprpHostTalk, 150, 7)

    assert found is None
    assert set(outcomes) == {"silence", "answers", "lease", "mail"}


@pytest.mark.parametrize(
    "kind",
    [
        mutants.AnswersTwice,
        mutants.AnswersElsewhere,
        mutants.GivesCredit,
        mutants.AsksForTooLittle,
        mutants.KeepsChallenges,
        mutants.AltersMail,
    ],
)
def test_mistakes_are_found(monkeypatch, kind):
    """A host with a mistake does not survive a few hundred inputs."""
    monkeypatch.setattr(lprp_host, "LprpRelay", kind)

    _, found = fuzz(LprpHostTalk, 1_000, 7)
    assert found is not None


def test_any_bytes_are_an_input():
    """An input may be cut anywhere, and may be noise."""
    target, rng = LprpHostTalk, random.Random(1)
    data = target.make(rng)
    for end in range(0, len(data), 97):
        target.run(data[:end])

    assert target.run(b"") == "silence"
