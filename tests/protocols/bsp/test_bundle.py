"""Laws of protocols.bsp.bundle."""

import hashlib
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.bsp.build_streams import FRIEND, STRANGER, US, changed
from waystation.core.errors import LocalError
from waystation.crypto.agreement import WeakKeyError, public_of_secret
from waystation.crypto.signing import sign
from waystation.protocols.bsp.bundle import (
    BUNDLE_BYTES_MAX,
    BUNDLE_HEADER_BYTES,
    CHUNK_BYTES,
    bundle_overhead,
    bundle_room,
    open_bundle,
    seal_bundle,
)
from waystation.protocols.bsp.messages import Ack, Message
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.wire import encode

SECRET = b"\x0e" * 32
GROUP = b"g" * 32
RECORDS = [Ack((b"a" * 32, b"b" * 32)), Message(GROUP, 7, b"hello"), Message(GROUP, 8, b"")]
LAST = 64 + 16 + CHUNK_BYTES  # bytes of the last chunk and the signature, when the chunk is full


def encoded(records=RECORDS):
    return [encode(SEED, record) for record in records]


def sealed(records=None, *, sender=FRIEND, recipient=US, number=1, secret=SECRET):
    return seal_bundle(encoded() if records is None else records, sender, recipient.public, number, secret)


def opened(data, *, us=US, known=(FRIEND,), profile=SEED):
    return open_bundle(data, us, profile, [each.public for each in known].__contains__)


def refusal_of(data, **how):
    with pytest.raises(MalformedError) as caught:
        opened(data, **how)
    return caught.value.refusal


def signed_anew(data, signer=FRIEND):
    """Sign whatever stands before the signature, as a sender who bends its own bundle would."""
    header, chunks = data[:BUNDLE_HEADER_BYTES], data[BUNDLE_HEADER_BYTES:-64]
    parts = (b"waystation/bsp/file/1", header, hashlib.blake2b(chunks, digest_size=32).digest())
    joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return data[:-64] + sign(signer, hashlib.blake2b(joined, digest_size=32).digest())


def chunks_of(data):
    """Return header, chunks and signature."""
    body = data[BUNDLE_HEADER_BYTES:-64]
    cuts = [body[at : at + CHUNK_BYTES + 16] for at in range(0, len(body), CHUNK_BYTES + 16)]
    return data[:BUNDLE_HEADER_BYTES], cuts, data[-64:]


def big(size):
    """Return records of exactly ``size`` bytes, at least 44."""
    rng = random.Random(size)
    records = []
    while size:
        part = size if size <= 30_000 else min(20_000, size - 44)
        records.append(encode(SEED, Message(GROUP, 1, rng.randbytes(part - 44))))
        size -= part
    return records


def test_what_was_sealed_opens():
    """Sender, number and records come out as they went in."""
    found = opened(sealed(number=2**64 - 1))

    assert found == (FRIEND.public, 2**64 - 1, RECORDS)


def test_header_is_laid_out_as_described():
    """Magic and version, sender, recipient, number and fresh key stand where the module says."""
    header = sealed(number=0x0102)[:BUNDLE_HEADER_BYTES]

    expected = b"BSPF\x01" + FRIEND.public + US.public + bytes(6) + b"\x01\x02" + public_of_secret(SECRET)
    assert header == expected
    assert len(header) == 109


def test_signature_covers_label_header_and_hash_of_the_chunks():
    """A signature made by hand after the description is the one that stands there."""
    data = sealed()

    assert signed_anew(data) == data


def test_nobody_else_reads_it():
    """Nothing of the records can be seen."""
    assert b"hello" not in sealed()


def test_empty_bundle():
    """No records at all make a bundle, too: one chunk of a tag."""
    data = sealed([])

    assert len(data) == 109 + 16 + 64
    assert opened(data).records == []


@pytest.mark.parametrize("size", [44, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 100_000])
def test_any_size_round_trips(size):
    """Records of any size open again, around the border of a chunk above all; the overhead is as told."""
    records = big(size)

    data = sealed(records)

    assert len(data) == size + bundle_overhead(size)
    assert b"".join(encode(SEED, record) for record in opened(data).records) == b"".join(records)


def test_overhead_and_room_are_each_others_inverse():
    """The room of a bundle is the most that fits, for every size around the borders."""
    for size in [189, 190, 300, *range(16_540, 16_620), *range(32_940, 33_000), 1_048_576, BUNDLE_BYTES_MAX]:
        room = bundle_room(size)

        assert room + bundle_overhead(room) <= size
        assert room + 1 + bundle_overhead(room + 1) > size


@pytest.mark.parametrize("size", [0, 100, 173, 188])
def test_too_small_a_bundle_has_no_room(size):
    """What cannot even hold an empty bundle has negative room."""
    assert bundle_room(size) < 0


def test_cut_at_every_byte():
    """A bundle that lost its end is refused wherever it was cut."""
    data = sealed()

    found = {refusal_of(data[:size]) for size in range(len(data))}

    assert found == {Refusal.FILE_FORM, Refusal.FILE_SIGNATURE}


def test_every_byte_matters():
    """One changed byte anywhere, even in header and signature, and nothing of it is believed."""
    data = sealed()

    found = {at: refusal_of(changed(data, at)) for at in range(len(data))}

    assert {found[at] for at in range(5)} == {Refusal.FILE_FORM}
    assert {found[at] for at in range(5, 37)} == {Refusal.FILE_SENDER}
    assert {found[at] for at in range(37, 69)} == {Refusal.FILE_NOT_FOR_US}
    assert {found[at] for at in range(69, len(data))} == {Refusal.FILE_SIGNATURE}


def test_bytes_behind_it_are_refused():
    """A bundle is all of the file."""
    assert refusal_of(sealed() + b"\x00") is Refusal.FILE_SIGNATURE


def test_replayed_bundle_says_the_same():
    """Reading it again changes nothing about what it says."""
    data = sealed()

    assert opened(data) == opened(data)


def test_bundle_for_somebody_else():
    """What is sealed for another recipient is not even checked."""
    assert refusal_of(sealed(recipient=STRANGER)) is Refusal.FILE_NOT_FOR_US


def test_bundle_of_somebody_unknown():
    """A sender that we do not know is refused before its signature costs anything."""
    data = sealed(sender=STRANGER)

    assert refusal_of(changed(data, len(data) - 1)) is Refusal.FILE_SENDER


def test_bundle_signed_by_another():
    """A stranger cannot write in a friend's name."""
    assert refusal_of(signed_anew(sealed(), STRANGER)) is Refusal.FILE_SIGNATURE


def test_redirected_bundle_does_not_open():
    """A known peer that takes our friend's chunks as its own, or aims them elsewhere, has no key for them."""
    data = sealed(recipient=STRANGER)
    aimed = data[:37] + US.public + data[69:]
    taken = sealed()[:5] + STRANGER.public + sealed()[37:]

    assert refusal_of(signed_anew(aimed)) is Refusal.FILE_SEAL
    assert refusal_of(signed_anew(taken, STRANGER), known=[STRANGER]) is Refusal.FILE_SEAL


@pytest.mark.parametrize(
    "bend",
    [
        pytest.param(lambda cuts: [cuts[1], cuts[0], *cuts[2:]], id="swapped"),
        pytest.param(lambda cuts: cuts[1:], id="first dropped"),
        pytest.param(lambda cuts: cuts[:-1], id="last dropped"),
        pytest.param(lambda cuts: [cuts[0], *cuts], id="first twice"),
        pytest.param(lambda cuts: cuts[-1:], id="last alone"),
    ],
)
def test_chunks_stay_where_they_are(bend):
    """Even the sender's own signature does not help chunks that were moved, left out or repeated."""
    header, cuts, signature = chunks_of(sealed(big(3 * CHUNK_BYTES + 100)))

    assert len(cuts) == 4
    assert refusal_of(signed_anew(header + b"".join(bend(cuts)) + signature)) is Refusal.FILE_SEAL


def test_last_chunk_that_is_full_cannot_be_left_out():
    """Truncation at the border of a chunk is noticed, too."""
    data = sealed(big(2 * CHUNK_BYTES))

    assert refusal_of(signed_anew(data[:-LAST] + data[-64:])) is Refusal.FILE_SEAL


@pytest.mark.parametrize("extra", [1, 15, 16])
def test_last_chunk_without_text_is_no_form(extra):
    """Behind a full chunk stands one with at least a byte, or none."""
    data = sealed(big(CHUNK_BYTES))

    assert refusal_of(signed_anew(data[:-64] + bytes(extra) + data[-64:])) is Refusal.FILE_FORM


@pytest.mark.parametrize("record", [b"\x01\x00\x00\x00", b"\x01\x01\x00", b"\x02\x00\x00\x20" + bytes(32)])
def test_malformed_records_refuse_the_bundle(record):
    """A record that must not be ends the bundle with its own reason, and nothing of it is heard."""
    found = refusal_of(sealed([*encoded(), record]))

    assert found in {Refusal.EMPTY_LIST, Refusal.TRUNCATED, Refusal.VERSION}


def test_records_are_those_of_the_profile():
    """A bundle of the other profile is refused at its first record."""
    assert refusal_of(sealed(), profile=BRIAR) is Refusal.VERSION
    assert opened(sealed([BRIAR.first_record]), profile=BRIAR).records[0].versions == b"\x00"


def test_fresh_key_of_small_order_is_refused():
    """A sender cannot make the shared secret a constant."""
    data = sealed()
    weak = data[: BUNDLE_HEADER_BYTES - 32] + bytes(32) + data[BUNDLE_HEADER_BYTES:]

    assert refusal_of(signed_anew(weak)) is Refusal.FILE_SEAL


def test_recipient_that_is_no_key_is_refused_here():
    """A key that cannot agree on anything is found out before anything is sealed."""
    with pytest.raises(WeakKeyError):
        seal_bundle([], US, (1).to_bytes(32, "little"), 1, SECRET)


def test_largest_bundle_that_is_read():
    """The bound itself is read; a byte more is neither written nor read."""
    room = bundle_room(BUNDLE_BYTES_MAX)
    records = big(room)

    data = sealed(records)

    assert len(data) == BUNDLE_BYTES_MAX
    assert len(opened(data).records) == len(records)
    assert refusal_of(data + b"\x00") is Refusal.FILE_TOO_LARGE
    with pytest.raises(LocalError):
        sealed(big(room + 1))


def test_bound_of_what_is_read():
    """Four mebibytes are read, not a byte more, and that is found out without looking at any of it."""
    assert BUNDLE_BYTES_MAX == 4 * 1_048_576
    assert refusal_of(bytes(BUNDLE_BYTES_MAX + 1)) is Refusal.FILE_TOO_LARGE
    assert refusal_of(bytes(BUNDLE_BYTES_MAX)) is Refusal.FILE_FORM


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400), front=st.sampled_from([b"", b"BSPF\x01", b"BSPF\x01" + FRIEND.public + US.public]))
def test_junk_is_refused_for_a_documented_reason(data, front):
    """Whatever arrives opens or is malformed, nothing else."""
    assert refusal_of(front + data).value.startswith("file_")


def test_sealing_and_opening_a_mebibyte_is_quick():
    """A usual bundle costs milliseconds each way."""
    records = big(bundle_room(1_048_576))

    began = time.perf_counter()
    data = sealed(records)
    between = time.perf_counter()
    found = opened(data)
    ended = time.perf_counter()

    assert len(found.records) == len(records)
    assert between - began < 0.1
    assert ended - between < 0.1
