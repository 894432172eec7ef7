import pytest

from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.lan_datagrams import (
    ANSWER_BYTES_MAX,
    NONCE_BYTES,
    QUERY_BYTES,
    LanResponder,
    encode_answer,
    encode_query,
    read_answer,
    read_query,
)
from waystation.protocols.bhumi.signed_records import sign_advert

NOW = 1_800_000_000
NONCE = bytes(range(NONCE_BYTES))
RELAY = KeyPair.from_seed(bytes([0x0E]) * 32)
OTHER = KeyPair.from_seed(bytes([0x0F]) * 32)
HERE = "192.168.1.7"
ADVERT = sign_advert(RELAY, f"tls://{HERE}:8443", NOW, 300)


def desk(key_pair=RELAY, nonce=NONCE):
    return LanResponder(key_pair, "tls", 8443, nonce)


def test_query_has_its_layout():
    """Mark, version, nonce, zeros; 512 bytes."""
    query = encode_query(NONCE)

    assert query == b"bhumi?\x01" + NONCE + bytes(QUERY_BYTES - 15)
    assert read_query(query) == NONCE


def test_every_answer_is_shorter_than_its_query():
    """Nobody gains by asking in another's name, not even with the longest address."""
    longest = sign_advert(RELAY, f"tls://{'a' * 241}:65535"[:255], NOW, 300)

    assert len(encode_answer(NONCE, longest)) <= ANSWER_BYTES_MAX < QUERY_BYTES


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        encode_query(NONCE)[:-1],
        encode_query(NONCE) + b"\0",
        encode_query(NONCE)[:15],
        encode_query(NONCE)[:-1] + b"\x01",
        b"bhumi?\x02" + encode_query(NONCE)[7:],
        b"bhumi!\x01" + encode_query(NONCE)[7:],
        bytes(QUERY_BYTES),
    ],
)
def test_what_is_no_query_is_not_answered(datagram):
    """A short, long, unpadded or foreign datagram gets nothing."""
    assert read_query(datagram) is None
    assert desk().receive(datagram, HERE, HERE, NOW) is None


def test_answer_is_believed_from_its_own_address():
    """What the relay signed for the address it answers from is its advert."""
    assert read_answer(encode_answer(NONCE, ADVERT), NONCE, HERE, NOW) == ADVERT


def test_answer_cut_anywhere_or_prolonged_is_nothing():
    """Each truncation and one byte more are refused without raising."""
    answer = encode_answer(NONCE, ADVERT)

    assert [read_answer(answer[:size], NONCE, HERE, NOW) for size in range(len(answer))] == [None] * len(answer)
    assert read_answer(answer + b"\0", NONCE, HERE, NOW) is None


def test_answer_with_any_byte_changed_is_nothing():
    """The mark, the nonce, and everything signed."""
    answer = encode_answer(NONCE, ADVERT)
    changed = [answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :] for at in range(len(answer))]

    assert [read_answer(each, NONCE, HERE, NOW) for each in changed] == [None] * len(answer)


def test_longer_answer_than_any_is_not_looked_at():
    """A datagram of 64 KiB that begins like an answer."""
    assert read_answer((b"bhumi!\x01" + NONCE).ljust(65_507, b"\x01"), NONCE, HERE, NOW) is None


@pytest.mark.parametrize(
    ("advert", "host"),
    [
        (ADVERT, "192.168.1.8"),
        (sign_advert(RELAY, "tls://127.0.0.1:8443", NOW, 300), HERE),
        (sign_advert(RELAY, "tls://relay.example:8443", NOW, 300), HERE),
        (sign_advert(RELAY, f"tls://{HERE}:8443", NOW - 300, 300), HERE),
        (sign_advert(RELAY, f"tls://{HERE}:8443", NOW + 121, 300), HERE),
        (sign_advert(RELAY, f"tls://{HERE}:8443", NOW, 3_601), HERE),
    ],
)
def test_answer_that_points_elsewhere_or_is_untimely_is_nothing(advert, host):
    """Whoever answers speaks of the address it answers from, and of now."""
    assert read_answer(encode_answer(NONCE, advert), NONCE, host, NOW) is None


def test_relay_answers_with_its_address_in_the_network_of_the_asker():
    """The answer is an advert signed for that address, live and for the listener's port."""
    answer = desk().receive(encode_query(b"8 bytes!"), "192.168.1.9", HERE, NOW)
    advert = read_answer(answer, b"8 bytes!", HERE, NOW)

    assert (advert.relay_id, advert.address) == (RELAY.public, f"tls://{HERE}:8443")


def test_relay_signs_once_a_minute():
    """Many queries get the same advert, one for each network; after a minute, or a clock set back, it is a new one."""
    relay = desk()
    answers = [relay.receive(encode_query(b"8 bytes!"), HERE, HERE, NOW + second) for second in (0, 59, 60, 30)]

    assert answers[0] == answers[1] != answers[2] != answers[3]
    assert read_answer(
        relay.receive(encode_query(NONCE[::-1]), "10.0.0.9", "10.0.0.1", NOW), NONCE[::-1], "10.0.0.1", NOW
    )


def test_relay_hears_others_and_not_itself():
    """Its own query and its own answer tell it nothing; an answer of another relay to its query does."""
    asking = desk(nonce=NONCE)
    theirs = desk(OTHER, b"8 bytes!").receive(asking.query(), HERE, "192.168.1.8", NOW)
    ours = encode_answer(NONCE, ADVERT)

    assert asking.receive(asking.query(), HERE, HERE, NOW) is None
    assert asking.receive(ours, HERE, HERE, NOW) is None
    assert asking.receive(theirs, "192.168.1.8", HERE, NOW).address == "tls://192.168.1.8:8443"
    assert desk(nonce=b"another!").receive(theirs, "192.168.1.8", HERE, NOW) is None
