"""Requests and answers of the simulated town."""

from dataclasses import replace

import pytest

from tests.sim.build import QUIET, Street
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.envelope import hint_of, open_envelope

PAIR = KeyPair.from_seed(b"k" * 32)
PREIMAGE = b"p" * 32


@pytest.mark.parametrize("envelope", [False, True])
def test_answer_is_read_back_by_its_sender(envelope):
    """What a device writes for a sender the sender reads, sealed or not."""
    commons = Street(replace(QUIET, envelope=envelope)).commons

    written = commons.write_answer(b"d" * 32, PREIMAGE, PAIR.public)

    assert commons.read_answer(PAIR, written) == commons.answer_of(b"d" * 32, PREIMAGE)
    assert (written == commons.answer_of(b"d" * 32, PREIMAGE)) is not envelope


@pytest.mark.parametrize("envelope", [False, True])
def test_request_begins_with_the_hint(envelope):
    """A device finds the preimage whatever the layout of DELIVER."""
    commons = Street(replace(QUIET, envelope=envelope)).commons

    request = commons.write_request(PAIR.public, PREIMAGE)

    assert request.startswith(hint_of(PREIMAGE))
    assert (open_envelope(PAIR, request) is not None) is envelope


def test_answers_differ_by_recipient_and_preimage():
    """No two exchanges have the same answer."""
    commons = Street().commons

    answers = {commons.answer_of(device, preimage) for device in (b"a" * 32, b"b" * 32) for preimage in (b"p", b"q")}

    assert len(answers) == 4


def test_numbers_are_never_used_twice_and_strangers_are_new():
    """Connections and strangers are unique."""
    commons = Street().commons

    assert commons.next_connection() < commons.next_connection()
    assert commons.stranger() != commons.stranger()
