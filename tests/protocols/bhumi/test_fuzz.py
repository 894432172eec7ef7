"""The fuzz targets: a short run of each, the long one marked slow, and every find ever made."""

import random

import pytest

from fuzz.run import CASES, TARGETS, fuzz, main

SEED = 20_260
INPUTS = 2_000
FEWER = {
    "bhumi_extensions": 500,
    "bsp_machine": 500,
    "lprp_client": 250,
    "lprp_host": 750,
    "merk_relay": 1_000,
    "session": 750,
    "strata_relay": 1_000,
}
"""Targets of whole machines, of which a million inputs are tried in ``make soak``."""


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_mutated_input_is_accepted_or_refused(name):
    """Hundreds of almost valid inputs, two thousand of a parser, lead to a documented outcome within the budget."""
    outcomes, found = fuzz(TARGETS[name], FEWER.get(name, INPUTS), SEED)

    assert found is None, f"find in {name}: {found.hex()}"
    assert len(outcomes) >= 2


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_noise_is_accepted_or_refused(name):
    """Bytes without any structure lead nowhere else either."""
    rng = random.Random(name)
    for _ in range(300):
        TARGETS[name].run(rng.randbytes(rng.randrange(120)))


def test_finds_stay_fixed():
    """Every input that once led astray leads to a documented outcome for ever."""
    for path in sorted(CASES.glob("*.bin")):
        assert TARGETS[path.stem.partition("-")[0]].run(path.read_bytes()), path.name


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_same_seed_same_inputs(name):
    """A find can be reproduced from the seed that is printed."""
    makers = [random.Random(5), random.Random(5)]

    assert [TARGETS[name].make(makers[0]) for _ in range(20)] == [TARGETS[name].make(makers[1]) for _ in range(20)]


class Careless:
    """A target with a bug: it trusts its input."""

    name = "careless"

    def make(self, rng):
        return rng.randbytes(2)

    def run(self, data):
        return str(1 // data[0])


def test_a_bug_is_found_and_its_input_returned():
    """The runner notices whatever escapes a target."""
    _, found = fuzz(Careless(), 10_000, 1)

    assert found[0] == 0


def test_command_prints_rate_seed_and_outcomes(capsys):
    """Who runs it sees what happened."""
    code = main(["--inputs", "50", "--seed", "3", "--target", "wire"])
    said = capsys.readouterr().out

    assert code == 0
    assert "wire: 50 inputs, seed 3" in said
    assert "no find" in said


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_million_inputs(name):
    """A million inputs a target, as the done-list asks."""
    _, found = fuzz(TARGETS[name], 1_000_000, SEED)

    assert found is None, f"find in {name}: {found.hex()}"
