"""Laws of protocols.bsp.profile."""

import hashlib
import random

import pytest

from tests.protocols.bsp.build import (
    BRIAR_VECTORS,
    CLIENT_ID,
    CLIENT_NAME,
    EVERY_PROFILE,
    GROUPS,
    SEED_VECTORS,
    VECTORS,
    VECTORS_OF,
    pattern,
    spelled,
)
from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.messages import TIMESTAMP_MAX, RecordType, Versions
from waystation.protocols.bsp.profile import BRIAR, CLIENT_NAME_BYTES_MAX, MAJOR_MAX, PROFILES, SEED
from waystation.protocols.bsp.wire import read_all

HASHES = {"blake2s": SEED, "blake2b-256": BRIAR}
BY_NAME = pytest.mark.parametrize("profile", EVERY_PROFILE, ids=lambda profile: profile.name)
MESSAGES = [
    pytest.param(PROFILES[name], entry, id=f"{name} {entry['body']} {entry['timestamp']}")
    for name, vectors in VECTORS_OF.items()
    for entry in vectors["messages"]
]


def joined(*parts):
    """Return each part behind its length, as seed 1.3 says."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def plain_id(profile, group_id, timestamp, body):
    """Return a message's identifier, written down once more straight from section 7 of the digest."""
    time = timestamp.to_bytes(8, "big")
    if profile is SEED:
        return hashlib.blake2s(joined(b"MESSAGE_ID", group_id, time, body)).digest()
    label = b"org.briarproject.bramble/"
    root = hashlib.blake2b(joined(label + b"MESSAGE_BLOCK", b"\1", body), digest_size=32).digest()
    return hashlib.blake2b(joined(label + b"MESSAGE_ID", b"\1", group_id, time, root), digest_size=32).digest()


# The vectors


@pytest.mark.parametrize("entry", VECTORS["hash"], ids=lambda entry: f"{entry['fn']} {entry['args']}")
def test_vector_of_the_hash(entry):
    """HASH puts a length of four bytes in front of every argument."""
    parts = [bytes.fromhex(part) for part in entry["args"]]

    assert HASHES[entry["fn"]].hash(*parts).hex() == entry["out"]


@pytest.mark.parametrize("entry", SEED_VECTORS["groups"], ids=lambda entry: entry["descriptor"])
def test_vector_of_a_group(entry):
    """A group is its client and its descriptor, up to 32 KiB."""
    group = SEED.group(CLIENT_ID, spelled(entry["descriptor"]), "opaque")

    assert group == Group(bytes.fromhex(entry["group_id"]), CLIENT_ID, spelled(entry["descriptor"]), "opaque", 0)


@pytest.mark.parametrize("entry", BRIAR_VECTORS["groups"], ids=lambda entry: f"{entry['client'][:9]} {entry['major']}")
def test_vector_of_a_group_of_briar(entry):
    """Name, major version and descriptor, up to 16 KiB."""
    client_id, descriptor = entry["client"].encode(), spelled(entry["descriptor"])

    group = BRIAR.group(client_id, descriptor, "deps_v1", entry["major"])

    assert group == Group(bytes.fromhex(entry["group_id"]), client_id, descriptor, "deps_v1", entry["major"])


@pytest.mark.parametrize("entry", SEED_VECTORS["groups_rejected"], ids=lambda entry: entry["descriptor"])
def test_vector_of_no_group(entry):
    """One byte of descriptor too many."""
    with pytest.raises(LocalError, match="descriptor"):
        SEED.group(CLIENT_ID, spelled(entry["descriptor"]), "opaque")


@pytest.mark.parametrize(("profile", "entry"), MESSAGES)
def test_vector_of_a_message(profile, entry):
    """An identifier is group, time and body, from nothing to 32 KiB and from 1970 to the end of the number."""
    group_id, body = bytes.fromhex(entry["group_id"]), spelled(entry["body"])

    assert profile.message_id(group_id, entry["timestamp"], body).hex() == entry["message_id"]


@pytest.mark.parametrize("entry", SEED_VECTORS["deps_v1"], ids=lambda entry: entry["body"][:12])
def test_vector_of_a_message_with_dependencies(entry):
    """A body with dependencies is hashed as any other."""
    found = SEED.message_id(GROUPS["seed"].group_id, entry["timestamp"], bytes.fromhex(entry["body"]))

    assert found.hex() == entry["message_id"]


def test_client_of_the_vectors_is_what_they_say():
    """A plain hash, without any length in front."""
    assert hashlib.blake2s(b"waystation test client").digest() == CLIENT_ID


# Identifiers


@BY_NAME
def test_hasher_makes_the_same_identifiers_as_the_whole_formula(profile):
    """What is hashed once for a group changes nothing, in whatever order messages and groups come."""
    rng = random.Random(7)
    hashers = {group_id: profile.hasher(group_id) for group_id in (rng.randbytes(32) for _ in range(4))}
    for _ in range(200):
        group_id = rng.choice(list(hashers))
        timestamp, body = rng.randrange(TIMESTAMP_MAX + 1), rng.randbytes(rng.randrange(200))

        assert hashers[group_id](timestamp, body) == plain_id(profile, group_id, timestamp, body)


@BY_NAME
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 1_024, 32_768])
def test_hasher_at_the_borders_of_its_blocks(profile, size):
    """Bodies that fill a block of the hash, or all but."""
    group_id, body = GROUPS[profile.name].group_id, pattern(size)

    assert profile.message_id(group_id, 1, body) == plain_id(profile, group_id, 1, body)


@BY_NAME
def test_every_part_of_a_message_counts(profile):
    """Another group, another millisecond, another byte: another message."""
    group_id = GROUPS[profile.name].group_id
    found = {
        profile.message_id(*parts)
        for parts in ((group_id, 1, b"a"), (group_id, 2, b"a"), (group_id, 1, b"b"), (bytes(32), 1, b"a"))
    }

    assert len(found) == 4


def test_major_version_makes_another_group():
    """Versions of one application do not meet."""
    assert BRIAR.group_id(CLIENT_NAME, b"d", 0) != BRIAR.group_id(CLIENT_NAME, b"d", 1)


def test_client_and_descriptor_do_not_run_into_each_other():
    """What moves from the one to the other makes another group."""
    assert BRIAR.group_id(b"ab", b"c") != BRIAR.group_id(b"a", b"bc")


def test_profiles_share_no_identifier():
    """The same group and the same message have other names on the other side."""
    name = b"n" * 32

    assert SEED.group_id(name, b"d") != BRIAR.group_id(name, b"d")
    assert SEED.message_id(name, 1, b"b") != BRIAR.message_id(name, 1, b"b")


def test_group_of_mutable_bytes_is_kept_as_bytes():
    """Who hands over a buffer may use it again."""
    descriptor = bytearray(b"d")
    group = SEED.group(bytearray(CLIENT_ID), descriptor, "opaque")
    descriptor[0] = 0

    assert group == SEED.group(CLIENT_ID, b"d", "opaque")


@BY_NAME
@pytest.mark.parametrize("size", [0, 31, 33])
def test_hasher_wants_a_group(profile, size):
    """A group's identifier has 32 bytes."""
    with pytest.raises(AssertionError):
        profile.hasher(bytes(size))


# Bounds


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_client_identifier_of_another_length_is_refused(size):
    """The seed's has 32 bytes, whatever they are."""
    with pytest.raises(LocalError, match="32 bytes"):
        SEED.group(bytes(size), b"", "opaque")


@pytest.mark.parametrize("major", [1, -1])
def test_seed_knows_no_major_version(major):
    """It would not be in the identifier, so two versions would be one group unawares."""
    with pytest.raises(LocalError, match="major version"):
        SEED.group(CLIENT_ID, b"", "opaque", major)


@pytest.mark.parametrize("client_id", [b"", b"x" * 101, "ü".encode() * 51], ids=["empty", "101", "102 in 51"])
def test_client_name_of_a_wrong_length_is_refused(client_id):
    """1 to 100 bytes, not characters."""
    with pytest.raises(LocalError, match="1 to 100 bytes"):
        BRIAR.group(client_id, b"", "opaque")


@pytest.mark.parametrize("client_id", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\x80"])
def test_client_name_that_is_no_utf_8_is_refused(client_id):
    """A name is text."""
    with pytest.raises(LocalError, match="UTF-8"):
        BRIAR.group(client_id, b"", "opaque")


@pytest.mark.parametrize("major", [-1, 2**31])
def test_major_version_outside_its_number_is_refused(major):
    """A signed integer of four bytes that is not negative."""
    with pytest.raises(LocalError, match="major version"):
        BRIAR.group(CLIENT_NAME, b"", "opaque", major)


def test_bounds_themselves_are_allowed():
    """100 bytes of name, the last major version, 16 KiB."""
    group = BRIAR.group(b"x" * CLIENT_NAME_BYTES_MAX, bytes(16_384), "opaque", MAJOR_MAX)

    assert (len(group.client_id), len(group.descriptor), group.major) == (100, 16_384, 2**31 - 1)


def test_descriptor_above_briars_bound_is_refused():
    """16 KiB, though the seed takes twice that."""
    SEED.group(CLIENT_ID, bytes(16_385), "opaque")
    with pytest.raises(LocalError, match="16384"):
        BRIAR.group(CLIENT_NAME, bytes(16_385), "opaque")


# The table of section 7


def test_seed_is_what_the_digest_says():
    """specs/bsp.md 7: version 1, bodies may be empty, 2,047 identifiers, the oldest offer goes, no greeting."""
    assert (SEED.name, SEED.version, SEED.body_bytes_min, SEED.ids_read_max) == ("seed", 1, 0, 2_047)
    assert (SEED.descriptor_bytes_max, SEED.drops_oldest_offer, SEED.serves_held) == (32_768, True, True)
    assert (SEED.first_record, SEED.extra_types) == (b"", frozenset())


def test_briar_is_what_the_digest_says():
    """specs/bsp.md 7: version 0, no empty body, 1,536 identifiers, a new offer is refused, VERSIONS first."""
    assert (BRIAR.name, BRIAR.version, BRIAR.body_bytes_min, BRIAR.ids_read_max) == ("briar", 0, 1, 1_536)
    assert (BRIAR.descriptor_bytes_max, BRIAR.drops_oldest_offer, BRIAR.serves_held) == (16_384, False, False)
    assert BRIAR.extra_types == {RecordType.VERSIONS, RecordType.PRIORITY}
    assert PROFILES == {"seed": SEED, "briar": BRIAR}


def test_greeting_is_a_record_of_its_profile():
    """Briar's says that we speak version 0 and no other."""
    assert read_all(BRIAR, BRIAR.first_record) == [Versions(b"\0")]
    assert read_all(SEED, SEED.first_record) == []


def test_labels_are_those_of_the_vectors():
    """The prefix stands before all three."""
    names = ("GROUP_ID", "MESSAGE_ID", "MESSAGE_BLOCK")

    assert [BRIAR.label_prefix.decode() + name for name in names] == BRIAR_VECTORS["labels"]
    assert SEED.label_prefix == b""
    assert [profile.version for profile in (SEED, BRIAR)] == [v["record_version"] for v in VECTORS_OF.values()]
