"""Laws of protocols.lprp.sealing."""

import hashlib

import pytest

from tests.protocols.lprp.build_client import FRIEND, STRANGER, US
from waystation.core.errors import LocalError
from waystation.crypto import aead
from waystation.crypto.agreement import WeakKeyError, agreement_secret_of, public_of_secret
from waystation.protocols.lprp.messages import PAYLOAD_BYTES_MAX
from waystation.protocols.lprp.payload import sealing
from waystation.protocols.lprp.payload.sealing import (
    ONE_TIME_BUDGET,
    ONE_TIME_PLAINTEXT_MAX,
    REUSED_BUDGET,
    REUSED_PLAINTEXT_MAX,
    open_any,
    open_once,
    open_reused,
    seal_once,
    seal_reused,
)

SECRET, NONCE = b"\x0e" * 32, b"\x0c" * 24
LOW_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
]
"""X25519 keys that force the shared secret to zero: RFC 7748 section 6.1, and its references."""


def once(plaintext, *, sender=FRIEND, recipient=US):
    return seal_once(plaintext, sender.public, recipient.public, ephemeral_secret=SECRET)


def reused(plaintext, *, sender=FRIEND, recipient=US, nonce=NONCE):
    return seal_reused(plaintext, sender.public, recipient.public, secret=SECRET, nonce=nonce)


BOTH = [pytest.param(once, open_once, id="once"), pytest.param(reused, open_reused, id="reused")]


def test_budgets_are_those_of_the_text():
    """332 bytes behind a one-time key, 308 behind a reused one and its nonce; the tag takes 16 of them."""
    assert (ONE_TIME_BUDGET, REUSED_BUDGET) == (332, 308)
    assert (ONE_TIME_PLAINTEXT_MAX, REUSED_PLAINTEXT_MAX) == (316, 292)


@pytest.mark.parametrize(("seal", "open_", "size"), [(once, open_once, 316), (reused, open_reused, 292)])
def test_longest_text_fills_the_packet_exactly(seal, open_, size):
    """The largest text makes a payload of 364 bytes; one more is refused."""
    sealed = seal(b"x" * size)

    assert len(sealed) == PAYLOAD_BYTES_MAX
    assert open_(sealed, FRIEND.public, US) == b"x" * size
    with pytest.raises(LocalError):
        seal(b"x" * (size + 1))


@pytest.mark.parametrize(("seal", "open_"), BOTH)
def test_texts_of_every_length_come_back_as_they_were(seal, open_):
    """From nothing to the most, with any bytes at the end, and in payloads of at least 64 bytes."""
    for size in [*range(40), 150, 291, 292]:
        for end in (b"", b"\x80", b"\0", b"\x80\0", b"\x80" + bytes(15)):
            plaintext = (b"t" * size)[: max(0, size - len(end))] + end
            sealed = seal(plaintext[:292])

            assert open_(sealed, FRIEND.public, US) == plaintext[:292]
            assert len(sealed) >= 64


def test_layout_of_both_forms():
    """The public key comes first; the reused form has the nonce behind it; each text byte costs one byte."""
    assert once(b"x" * 20)[:32] == public_of_secret(SECRET)
    assert reused(b"x")[:56] == public_of_secret(SECRET) + NONCE
    assert [len(once(bytes(size))) for size in (0, 15, 16, 17)] == [64, 64, 64, 65]
    assert [len(reused(bytes(size))) for size in (0, 1)] == [72, 73]


@pytest.mark.parametrize("plaintext", [b"", b"short", b"a text that is long enough"])
@pytest.mark.parametrize(("seal", "open_"), BOTH)
def test_tampered_at_any_byte_does_not_open(seal, open_, plaintext):
    """Key, nonce, tag and text: every bit of every byte counts, the unused one of the key too."""
    sealed = seal(plaintext)
    for at in range(len(sealed)):
        for bit in (1, 0x80):
            bent = sealed[:at] + bytes([sealed[at] ^ bit]) + sealed[at + 1 :]

            assert open_(bent, FRIEND.public, US) is None


@pytest.mark.parametrize(("seal", "open_"), BOTH)
def test_cut_or_lengthened_does_not_open(seal, open_):
    """Every other length is refused without an error."""
    sealed = seal(b"a text")
    for size in range(len(sealed)):
        assert open_(sealed[:size], FRIEND.public, US) is None
    for more in (1, 16, 364):
        assert open_(sealed + bytes(more), FRIEND.public, US) is None


@pytest.mark.parametrize(("seal", "open_"), BOTH)
def test_only_the_recipient_opens_it(seal, open_):
    """Neither a third nor the sender himself can, and nobody can claim to have written it."""
    sealed = seal(b"a text")

    assert open_(sealed, FRIEND.public, STRANGER) is None
    assert open_(sealed, FRIEND.public, FRIEND) is None
    assert open_(sealed, STRANGER.public, US) is None
    assert open_(sealed, US.public, US) is None


def test_one_form_does_not_open_as_the_other():
    """The two forms derive different keys, even from the same secret."""
    assert open_reused(once(b"x" * 200), FRIEND.public, US) is None
    assert open_once(reused(b"x" * 200), FRIEND.public, US) is None


def test_short_text_and_its_filled_form_are_two_texts():
    """Sixteen bytes that look filled open to themselves, not to what they would be the filling of."""
    filled = b"short\x80" + bytes(10)

    assert open_once(once(filled), FRIEND.public, US) == filled
    assert open_once(once(b"short"), FRIEND.public, US) == b"short"
    assert once(filled) != once(b"short")


@pytest.mark.parametrize("filled", [bytes(16), b"x" * 16, b"x\x80" + bytes(13) + b"x"])
def test_bad_filling_does_not_open(filled):
    """A sender who fills a short text up in another way is refused: one text has one sealed form."""
    public, key = sealing._agree_with(SECRET, FRIEND.public, US.public, sealing._ONE_TIME)

    assert open_once(public + aead.seal(key, sealing._FILLED, filled), FRIEND.public, US) is None


def test_another_nonce_gives_another_payload():
    """A secret used again hides even that a text was sent twice."""
    assert reused(b"same")[56:] != reused(b"same", nonce=b"\x0d" * 24)[56:]


@pytest.mark.parametrize("public", LOW_ORDER)
@pytest.mark.parametrize(("seal", "open_"), BOTH)
def test_low_order_key_in_front_does_not_open(seal, open_, public):
    """A sender's key that would force the secret to zero is refused, not used."""
    bent = bytes.fromhex(public) + seal(b"x" * 20)[32:]

    assert open_(bent, FRIEND.public, US) is None


@pytest.mark.parametrize("key", ["00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f"])
def test_recipient_without_an_agreement_key_is_refused(key):
    """An identity of small order has no X25519 key to seal to."""
    with pytest.raises(WeakKeyError):
        seal_once(b"x", FRIEND.public, bytes.fromhex(key), ephemeral_secret=SECRET)
    with pytest.raises(WeakKeyError):
        seal_reused(b"x", FRIEND.public, bytes.fromhex(key), secret=SECRET, nonce=NONCE)


def test_bytes_of_both_forms_do_not_change():
    """Pinned: a change of layout or key derivation is a change of the wire."""
    assert hashlib.sha256(once(b"a text that is long enough")).hexdigest()[:16] == "8ef72e6264a0bed9"
    assert hashlib.sha256(reused(b"a text that is long enough")).hexdigest()[:16] == "4b5ec8db854e2fe0"


def test_payload_is_opened_in_either_way_and_only_by_its_recipient():
    """One-time and reused keys are both understood; a raw payload, or somebody else's, is not opened."""
    once = seal_once(b"hello", US.public, FRIEND.public, ephemeral_secret=SECRET)
    reused = seal_reused(b"hello", US.public, FRIEND.public, secret=agreement_secret_of(US), nonce=NONCE)

    assert [open_any(each, US.public, FRIEND) for each in (once, reused)] == [b"hello"] * 2
    assert [open_any(each, US.public, STRANGER) for each in (once, reused)] == [None] * 2
    assert [open_any(each, US.public, FRIEND) for each in (b"x" * 100, b"")] == [None] * 2
