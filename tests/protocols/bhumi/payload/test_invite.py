import json
import random
from pathlib import Path

import pytest

from tests.protocols.bhumi import pairing_reference as reference
from waystation.core.errors import LocalError
from waystation.core.ids import decode_id52
from waystation.protocols.bhumi.payload.invite import TOKEN_CHARS, Invite, decode_invite, encode_invite
from waystation.protocols.bhumi.payload.pairing import PairedSuite

FACTS = json.loads(Path("tests/vectors/bhumi.json").read_text())["facts"]
TOKEN = FACTS["invite token"]
PAIRING = json.loads(reference.FILE.read_text())
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


def invitation(case):
    """Return the content of an invitation of the vectors."""
    return Invite(
        *(bytes.fromhex(case[name]) for name in ("identity", "preimage", "secret")),
        suite=PairedSuite(case["suite"]),
        expires_s=case["expires"],
        authority=bytes.fromhex(case["authority"]),
        relays=tuple(case["relays"]),
    )


@pytest.mark.parametrize("case", PAIRING["invitations"], ids=[each["name"] for each in PAIRING["invitations"]])
def test_invitations_of_the_vectors(case):
    """Key, permission, secret, suite, end, authority and relays are in one text; it is that of the vectors."""
    assert encode_invite(invitation(case)) == case["token"]
    assert decode_invite(case["token"]) == invitation(case)
    assert decode_invite(case["token"]).is_legacy is False


@pytest.mark.parametrize(
    "case", PAIRING["refused_invitations"], ids=[each["name"] for each in PAIRING["refused_invitations"]]
)
def test_invitations_that_are_refused(case):
    """A byte more or less, an unknown version, suite or address: a sentence that names the token, and no pairing."""
    with pytest.raises(LocalError, match="invite token"):
        decode_invite(case["token"])


def test_a_newer_version_is_named():
    """Whoever holds an invitation of a later format learns that the program is too old."""
    with pytest.raises(LocalError, match="newer version"):
        decode_invite(reference.token_of(version=3))
    with pytest.raises(LocalError, match="newer version"):
        decode_invite(reference.token_of(suite=9))


def test_every_cut_and_every_changed_character_is_noticed():
    """No part of an invitation, and no invitation with a wrong character, is taken for one."""
    token = reference.token_of()
    wrongs = [token[:length] for length in range(len(token))]
    wrongs += [token[:at] + ("x" if token[at] != "x" else "y") + token[at + 1 :] for at in range(6, len(token))]
    for wrong in wrongs:
        with pytest.raises(LocalError):
            decode_invite(wrong)


def test_a_long_text_is_not_decoded():
    """A text far above the longest invitation is refused by its length."""
    with pytest.raises(LocalError, match="at most 4096"):
        decode_invite("bhumi:" + "A" * 5_000)


def test_an_old_token_says_that_it_is_legacy():
    """A token of 86 characters has no secret, suite, end or relay."""
    old = decode_invite(TOKEN)

    assert old.is_legacy
    assert (old.secret, old.suite, old.expires_s, old.authority, old.relays) == (b"", None, 0, b"", ())


@pytest.mark.parametrize(("relays", "words"), [(["tls://a:1"] * 9, "at most 8"), (["a:1"], "no relay's address")])
def test_what_cannot_be_invited_with(relays, words):
    """Nine relays, or one without a scheme, make no invitation."""
    with pytest.raises(LocalError, match=words):
        encode_invite(Invite(INVITE.identity, INVITE.preimage, bytes(32), PairedSuite.CHACHA, relays=tuple(relays)))


def test_a_secret_is_not_shown():
    """The pairing secret stays out of logs, too."""
    assert "xa5\\xa5" not in repr(Invite(INVITE.identity, INVITE.preimage, bytes([0xA5]) * 32, PairedSuite.CHACHA))
