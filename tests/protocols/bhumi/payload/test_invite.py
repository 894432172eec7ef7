import json
import random
from pathlib import Path

import pytest

from waystation.core.errors import LocalError
from waystation.core.ids import decode_id52
from waystation.protocols.bhumi.payload.invite import TOKEN_CHARS, Invite, decode_invite, encode_invite

FACTS = json.loads(Path("tests/vectors/bhumi.json").read_text())["facts"]
TOKEN = FACTS["invite token"]
INVITE = Invite(decode_id52(FACTS["id52 A"]), bytes([0x10]) * 32)


def test_token_is_the_vector():
    """Identity A and a preimage of 0x10 bytes give the token of the vectors, and back."""
    assert encode_invite(INVITE) == TOKEN
    assert decode_invite(TOKEN) == INVITE


def test_round_trip():
    """Every invite survives its token, which always has 86 characters."""
    rng = random.Random(1)
    for _ in range(50):
        invite = Invite(rng.randbytes(32), rng.randbytes(32))

        assert len(encode_invite(invite)) == TOKEN_CHARS
        assert decode_invite(encode_invite(invite)) == invite


@pytest.mark.parametrize(
    "token",
    [
        "",
        TOKEN[:-1],
        TOKEN + "A",
        TOKEN + "==",
        TOKEN[:-2] + "==",
        TOKEN[:-1] + "B",
        "+" + TOKEN[1:],
        "/" + TOKEN[1:],
        " " + TOKEN[1:],
        "é" + TOKEN[1:],
        "=" + TOKEN[1:],
        TOKEN[:40] + "=" + TOKEN[41:],
    ],
)
def test_anything_else_is_refused(token):
    """Wrong length, alphabet, padding or trailing bits are refused with a sentence."""
    with pytest.raises(LocalError, match="invite token"):
        decode_invite(token)


def test_preimage_is_not_shown():
    """An invite in a log or a traceback does not give its preimage away."""
    assert "\\x10" not in repr(INVITE)
