"""Laws of sdk.merk.sealer: every recipient gets the form that its client reads."""

import random

import pytest

from tests.protocols.merk.build import ALICE, BOB
from waystation.core.errors import LocalError
from waystation.protocols.merk.payload.contents import Answer, Extended, Raw, Receipt, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, open_frame
from waystation.sdk.merk.directory import Found
from waystation.sdk.merk.sealer import Sealer

NOW_S = 1_700_000_000.5
OURS, ORIGINAL = Found(BOB.agreement_public, is_ours=True), Found(BOB.agreement_public, is_ours=False)


@pytest.fixture
def seal():
    """Seals for Bob, and returns what he opens and the id."""
    sealer = Sealer(ALICE, random.Random(1), lambda: NOW_S)

    def sealed(mode, found, content):
        frame, message_id = sealer.seal(BOB.signing.public, mode, found, content)
        return open_frame(frame, BOB), message_id

    return sealed


@pytest.mark.parametrize("mode", [Mode.SIGNED, Mode.ENCRYPTED])
@pytest.mark.parametrize("content", [Text("x"), Raw(bytes(32)), Answer(b"q" * 16, Text("x")), Receipt((b"q" * 16,))])
def test_client_of_ours_gets_time_and_id(seal, mode, content):
    """Whatever it is, it goes bound, with the clock's time and an id of its own."""
    (opened, first), (_, second) = (seal(mode, OURS, content) for _ in range(2))

    assert (opened.mode, opened.auth) == (mode, Auth.BOUND)
    assert opened.content == Extended(1_700_000_000_500, first, content)
    assert opened.message_id == first != second


def test_original_client_gets_the_bare_content(seal):
    """It goes in the legacy form, and its id is made of the payload on both sides."""
    opened, message_id = seal(Mode.ENCRYPTED, ORIGINAL, Text("x"))

    assert (opened.auth, opened.content, opened.message_id) == (Auth.LEGACY, Text("x"), message_id)


def test_bytes_that_an_original_would_misread_are_refused(seal):
    """Signed bytes are not altered on their way; encrypted ones have a type of their own."""
    with pytest.raises(LocalError, match="signed bytes"):
        seal(Mode.SIGNED, ORIGINAL, Raw(bytes(32)))

    assert seal(Mode.ENCRYPTED, ORIGINAL, Raw(bytes(32)))[0].content == Raw(bytes(32))


def test_plain_message_is_its_bytes(seal):
    """Nothing is added to what everybody may read."""
    assert seal(Mode.PLAIN, Found(None, is_ours=False), Text("héllo"))[0].content == Raw("héllo".encode())
