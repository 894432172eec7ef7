"""Laws of protocols.merk.infos."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.merk.build import INFOS, KEY, KEY_2, SIGNATURE, infos, outcome_of
from waystation.core.errors import LocalError
from waystation.protocols.merk.infos import SERVERS_MAX, decode_forward, decode_info, encode_info, info_parts
from waystation.protocols.merk.messages import (
    AddServer,
    Deliveries,
    ForwardRun,
    Hello,
    InfoType,
    KeyQuery,
    MailTaken,
    RequestServers,
    Role,
    ServerEntry,
    Servers,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal

WHOLE = [(info, encode_info(info)) for info, _ in INFOS]
IDS = [type(info).__name__ for info, _ in INFOS]
ENTRIES = tuple(ServerEntry(bytes([number]) * 32, f"ws://{number}") for number in range(3))


def is_refused(payload):
    """Return whether a payload is malformed, and that it is nothing else."""
    with pytest.raises(MalformedError) as caught:
        decode_info(payload)
    return caught.value.refusal is Refusal.MALFORMED_INFO


@pytest.mark.parametrize(("info", "written"), INFOS, ids=IDS)
def test_layout_is_that_of_the_digest(info, written):
    """Every subtype has the bytes that specs/merk.md 4, 7 and 10 print, in both directions."""
    assert encode_info(info).hex() == written
    assert decode_info(bytes.fromhex(written)) == info


def test_every_subtype_is_written_by_hand():
    """No subtype is without a test."""
    assert {encode_info(info)[0] for info, _ in INFOS} == set(InfoType)


@given(infos)
def test_any_info_survives(info):
    """What is encoded decodes to itself."""
    assert decode_info(encode_info(info)) == info
    assert b"".join(info_parts(info)) == encode_info(info)


@pytest.mark.parametrize(("info", "payload"), WHOLE, ids=IDS)
def test_info_cut_anywhere_is_never_the_same(info, payload):
    """A payload that ends too early is refused; lists keep what was whole, KEY_UNKNOWN is a KEY_QUERY."""
    for count in range(1, len(payload)):
        if isinstance(info, Servers) and count >= 3:
            assert decode_info(payload[:count]) == Servers(())
        elif count == 33 and payload[0] == InfoType.KEY_QUERY:
            assert decode_info(payload[:count]) == KeyQuery(KEY)
        elif isinstance(info, MailTaken) and count == 2 + 16:
            assert decode_info(payload[:count]) == MailTaken(info.hashes[:1])
        elif isinstance(info, Deliveries) and count == 2 + 16:
            assert decode_info(payload[:count]) == Deliveries(info.code, info.message_ids[:1])
        else:
            assert is_refused(payload[:count])


@pytest.mark.parametrize(("info", "payload"), WHOLE, ids=IDS)
def test_junk_behind_an_info_is_refused(info, payload):
    """A payload ends where its layout does; a forwarded frame and the mark of KEY_UNKNOWN are what may follow."""
    longer = payload + b"\x07"

    if payload[0] == InfoType.FORWARD:
        assert decode_info(longer).frame == info.frame + b"\x07"
    else:
        assert is_refused(longer)


@pytest.mark.parametrize("subtype", [0, 1, 7, 0x7F, 0x8C, 0xFF])
def test_unknown_subtype_is_ignored(subtype):
    """Later extensions do not disturb: neither alone nor with anything behind."""
    assert decode_info(bytes([subtype])) is None
    assert decode_info(bytes([subtype]) + b"x" * 100) is None


def test_empty_info_is_ignored():
    """The original ignores an empty NODE_INFO, and so do we."""
    assert decode_info(b"") is None


@given(st.binary(max_size=200))
def test_any_bytes_are_an_info_or_refused(data):
    """Nothing but an info, nothing, or the one refusal comes of arbitrary bytes."""
    info = outcome_of(decode_info, data)

    if not isinstance(info, Servers) and info is not None:
        assert info is Refusal.MALFORMED_INFO or encode_info(info) == data


# Lists of servers


@pytest.mark.parametrize("whole", [0, 1, 2])
@pytest.mark.parametrize("more", [1, 32, 33, 36])
def test_broken_list_counts_up_to_the_break(whole, more):
    """A list that ends inside an entry is what came before that entry, as in the original."""
    payload = encode_info(Servers(ENTRIES))
    entry_bytes = 32 + 1 + len("ws://0")

    assert decode_info(payload[: 3 + whole * entry_bytes + more]) == Servers(ENTRIES[:whole])


def test_list_with_a_smaller_count_is_refused():
    """Entries that the count does not know of are junk."""
    payload = encode_info(Servers(ENTRIES))

    assert is_refused(payload[:1] + b"\x00\x02" + payload[3:])


def test_list_that_lies_about_its_count_allocates_nothing():
    """The count of a list is a promise, not a size: 65,535 servers in three bytes are none."""
    tracemalloc.start()
    info = decode_info(b"\x03\xff\xff")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert info == Servers(())
    assert peak < 10_000


def test_long_list_is_read_up_to_its_limit():
    """Of a list beyond every use only the first entries are read, and nothing after them is looked at."""
    entry = ServerEntry(KEY, "w")
    payload = encode_info(Servers((entry,) * 65_535))

    assert decode_info(payload) == Servers((entry,) * SERVERS_MAX)
    assert decode_info(payload[:-1] + b"\xff") == Servers((entry,) * SERVERS_MAX)


def test_list_beyond_its_count_is_the_callers_mistake():
    """A u16 counts the servers."""
    with pytest.raises(LocalError, match="65535"):
        encode_info(Servers((ServerEntry(KEY, "w"),) * 65_536))


# Notices of many frames


@pytest.mark.parametrize(("count", "is_whole"), [(0, False), (1, True), (240, True), (241, False)])
def test_a_notice_names_1_to_240_frames(count, is_whole):
    """Spec 7: fewer or more are malformed, and not ours to send."""
    ids = tuple(number.to_bytes(16, "big") for number in range(count))
    payload = b"\x8a\x00" + b"".join(ids)

    if is_whole:
        assert decode_info(payload) == Deliveries(0, ids)
        assert encode_info(Deliveries(0, ids)) == payload
    else:
        assert is_refused(payload)
        with pytest.raises(LocalError, match=str(count)):
            encode_info(Deliveries(0, ids))


# Runs of frames (MERK-RUNS)


def run_of(count, frame=b"f" * 120):
    """Return the payload of a FORWARDS, made without the code under test."""
    return b"\x8b\x01" + KEY + bytes([count]) + (b"i" * 16 + len(frame).to_bytes(4, "big") + frame) * count


@pytest.mark.parametrize(("count", "is_whole"), [(0, False), (1, True), (240, True), (241, False)])
def test_a_run_has_1_to_240_frames(count, is_whole):
    """Spec 7: fewer or more are malformed, and not ours to send."""
    info = ForwardRun(1, KEY, ((b"i" * 16, b"f" * 120),) * count)

    if is_whole:
        assert decode_info(run_of(count)) == info
        assert encode_info(info) == run_of(count)
    else:
        assert is_refused(run_of(count))
        with pytest.raises(LocalError, match=str(count)):
            encode_info(info)


@pytest.mark.parametrize("size", [0, 119, 121, 140, 256, 2**16, 2**31, 2**32 - 1])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_run_that_lies_about_a_length_is_refused(which, size):
    """Whichever of its frames it is of; a length is checked before it is used."""
    payload = bytearray(run_of(3))
    at = 35 + which * 140 + 16
    payload[at : at + 4] = size.to_bytes(4, "big")

    assert is_refused(bytes(payload))


@pytest.mark.parametrize("count", [0, 1, 2, 4, 240, 255])
def test_a_run_that_lies_about_its_number_is_refused(count):
    """Fewer leave bytes behind, more find none."""
    payload = bytearray(run_of(3))
    payload[34] = count

    assert is_refused(bytes(payload))


def test_a_run_has_no_frame_shorter_than_a_header():
    """As a FORWARD."""
    assert is_refused(run_of(2, b"f" * 119))


# Addresses


@pytest.mark.parametrize("length", [0, 5, 7, 255])
def test_lying_address_length_is_refused(length):
    """An address fills its payload exactly, and is not empty where one must be."""
    assert is_refused(b"\x04" + bytes([length]) + b"ws://a")


def test_empty_address_is_refused_where_one_must_be():
    """A server without an address is no server; a HELLO may have none."""
    assert is_refused(b"\x04\x00")
    assert is_refused(b"\x03\x00\x01" + KEY + b"\x00")
    assert decode_info(encode_info(Hello(0, Role.CLIENT, KEY, KEY_2, ""))).address == ""


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_address_that_is_no_utf8_is_refused(text):
    """Broken, overlong and surrogate UTF-8 is refused in every message that has an address."""
    address = bytes([len(text)]) + text

    assert is_refused(b"\x04" + address)
    assert is_refused(b"\x03\x00\x01" + KEY + address)
    assert is_refused(encode_info(Hello(0, Role.NODE, KEY, KEY_2, ""))[:-1] + address)


def test_address_of_255_bytes_is_the_longest():
    """A u8 tells the length in bytes, not in characters."""
    assert decode_info(encode_info(AddServer("\u00e9" * 127 + "x"))) == AddServer("\u00e9" * 127 + "x")
    with pytest.raises(LocalError, match="256"):
        encode_info(AddServer("\u00e9" * 128))


def test_address_with_a_lone_surrogate_is_the_callers_mistake():
    """What has no UTF-8 cannot be sent."""
    with pytest.raises(LocalError, match="surrogate"):
        encode_info(AddServer("\ud800"))


# Values


@pytest.mark.parametrize(("flag", "keys"), [(1, 1), (0, 2), (2, 1), (2, 2), (255, 2)])
def test_query_response_whose_flag_and_size_disagree_is_refused(flag, keys):
    """Found has two keys, not found has one, and there is no third answer."""
    assert is_refused(bytes((6, flag)) + KEY * keys)


@pytest.mark.parametrize("mark", [1, 255])
def test_key_query_with_another_mark_is_refused(mark):
    """Behind the key of a KEY_QUERY stands nothing, or a zero for not known."""
    assert is_refused(b"\x85" + KEY + bytes([mark]))


@pytest.mark.parametrize("role", [2, 255])
def test_hello_of_another_role_is_refused(role):
    """There are clients and nodes."""
    payload = encode_info(Hello(0, Role.NODE, KEY, KEY_2, ""))

    assert is_refused(payload[:6] + bytes([role]) + payload[7:])


@pytest.mark.parametrize("version", [0, 2, 255])
def test_hello_of_another_version_is_ignored(version):
    """Its layout is not ours to judge: the other side is treated as one that said nothing (MERK-HELLO)."""
    assert decode_info(bytes((0x80, version))) is None
    assert decode_info(bytes((0x80, version)) + b"x" * 200) is None


def test_hello_without_a_version_is_refused():
    """A HELLO that ends behind its subtype is of no version."""
    assert is_refused(b"\x80")


def test_forwarded_frame_has_a_header_at_least():
    """An envelope around less than a header is refused wherever it begins."""
    payload = next(payload for _, payload in WHOLE if payload[0] == InfoType.FORWARD)

    assert decode_forward(b"head" + payload, 4) == decode_forward(payload) == decode_info(payload)
    with pytest.raises(MalformedError):
        decode_forward(b"head" + payload[:-1], 4)


def test_request_has_no_body():
    """The question for servers is one byte."""
    assert decode_info(b"\x02") == RequestServers()
    assert is_refused(b"\x02\x00")


# Presence and mail


@pytest.mark.parametrize("kind", [2, 255])
def test_presence_of_another_kind_is_refused(kind):
    """A client is connected to a node or has its mail there; a third statement is none of version 1."""
    assert is_refused(b"\x88" + bytes([kind]) + KEY + KEY_2 + bytes(16) + SIGNATURE)


def test_mailbox_opens_with_the_presence_of_a_mailbox_only():
    """That a client is connected opens no mailbox."""
    body = KEY + KEY_2 + bytes(16) + SIGNATURE

    assert decode_info(b"\x89\x01\x01" + body).presence.node == KEY_2
    assert is_refused(b"\x89\x01\x00" + body)


@pytest.mark.parametrize("verb", [0, 6, 255])
def test_unknown_verb_of_mail_is_ignored(verb):
    """Later verbs do not disturb: neither alone nor with anything behind."""
    assert decode_info(bytes((0x89, verb))) is None
    assert decode_info(bytes((0x89, verb)) + b"x" * 100) is None


def test_mail_without_a_verb_is_refused():
    """A MAIL that ends behind its subtype says nothing."""
    assert is_refused(b"\x89")


@pytest.mark.parametrize("state", [3, 255])
def test_mailbox_of_another_state_is_refused(state):
    """A mailbox is closed, open, or refused."""
    assert is_refused(bytes((0x89, 3, state)) + bytes(16))


def test_taken_names_one_to_sixty_four_frames():
    """None is no message and a 65th is refused, both ways, before anything is cut out."""
    hashes = tuple(bytes([number]) * 16 for number in range(65))

    assert decode_info(encode_info(MailTaken(hashes[:64]))) == MailTaken(hashes[:64])
    assert is_refused(b"\x89\x04")
    assert is_refused(b"\x89\x04" + b"".join(hashes))
    for wrong in ((), hashes):
        with pytest.raises(LocalError, match="64"):
            encode_info(MailTaken(wrong))
