"""Laws of a Strata relay whose store refuses (STRATA-REFUSED): nothing is OK that is not stored, all may come again."""

import random

import pytest

from tests.protocols.refusing import RefusingStore
from tests.protocols.strata.build import ALICE, ALICE_KEY_2, BOB, packet, post, signed
from tests.protocols.strata.drive import Drive
from tests.protocols.strata.relay.test_authors import add
from tests.protocols.strata.relay.test_trust import edge

REFUSED = ("ERROR", "internal_error", "not_stored")


def answer_of(got):
    """Return an answer as its type, code and detail."""
    return got["type"], got.get("code"), got.get("detail")


def test_packet_that_the_store_refuses_is_refused_and_may_come_again():
    """Its publisher hears so, nobody reads it, and the same packet is new once the store takes it."""
    drive = Drive(store := RefusingStore())
    publisher, reader = drive.connect(), drive.connect()
    drive.subscribe(reader, limit=0)
    store.refuses = True
    refused = drive.publish(publisher, post())
    seen = drive.events(reader)
    settled = drive.relay.settled()
    store.refuses = False
    again = drive.publish(publisher, post())

    assert answer_of(refused) == REFUSED
    assert (seen, settled) == ([], True)
    assert (again["type"], again.get("duplicate", False)) == ("OK", False)
    assert len(drive.events(reader)) == len(drive.rows()) == 1


def test_copies_of_a_refused_packet_are_refused_with_it():
    """Neither one that waits for the same disk, nor one that came since, is called a duplicate of what is not there."""
    drive = Drive(store := RefusingStore())
    peers = [drive.connect() for _ in range(3)]
    drive.hold_commits = True
    for peer in peers:
        drive.send(peer, {"type": "PUBLISH", "packet": post().body})
    store.refuses = True
    drive.commit_held()

    assert [answer_of(drive.got[peer][-1]) for peer in peers] == [REFUSED] * 3
    assert drive.rows() == []


@pytest.mark.parametrize("kind", ["attestation", "post"])
def test_mark_of_a_refused_packet_is_free(kind):
    """An attestation that could not be stored keeps no other from coming."""
    content = {"type": "ATTESTATION", "target_packet": "0x" + "1" * 64, "attestation": {"attestation_id": "a"}}
    each = packet(content) if kind == "attestation" else post()
    drive = Drive(store := RefusingStore())
    peer = drive.connect()
    store.refuses = True
    drive.publish(peer, each)
    store.refuses = False

    assert drive.publish(peer, packet(content, nonce="2") if kind == "attestation" else each)["type"] == "OK"
    assert len(drive.rows()) == 1


def test_key_of_a_refused_key_event_signs_for_nobody():
    """The key event is undone, also for the packet right behind it; both are good once the store takes them."""
    drive = Drive(store := RefusingStore())
    peer = drive.connect()
    event, by_new_key = add("two", ALICE_KEY_2), signed(post().body, ALICE_KEY_2)
    drive.hold_commits = True
    for each in (event, by_new_key):
        drive.send(peer, {"type": "PUBLISH", "packet": each})
    store.refuses = True
    drive.commit_held()
    store.refuses = False
    unknown = drive.publish(peer, by_new_key)
    good = [drive.publish(peer, each)["type"] for each in (event, by_new_key)]

    assert [answer_of(got) for got in drive.got[peer][1:3]] == [REFUSED] * 2
    assert (unknown["code"], good) == ("invalid_signature", ["OK", "OK"])


def test_refused_edge_costs_no_allowance():
    """Twenty strong edges a day may be stored, however many were refused before."""
    drive = Drive(store := RefusingStore(), rate_limits=False)
    peer = drive.connect()
    edges = [edge(number) for number in range(21)]
    store.refuses = True
    for each in edges:
        drive.publish(peer, each)
    store.refuses = False
    types = [drive.publish(peer, each)["type"] for each in edges]

    assert types == ["OK"] * 20 + ["ERROR"]


def test_what_is_ok_is_stored_whatever_is_refused():
    """Over a store that refuses at random every OK is in it, every refused packet gets its OK when it comes again."""
    rng = random.Random(11)
    drive = Drive(RefusingStore(rng), rate_limits=False)
    peer = drive.connect()
    posts = [post(f"{number}", pair) for number in range(60) for pair in (ALICE, BOB)]
    told = {}
    for each in posts * 6:
        told.setdefault(each.packet_id, []).append(drive.publish(peer, each))
        accepted = {name for name, answers in told.items() if any(answer["type"] == "OK" for answer in answers)}
        assert {row.packet_id for row in drive.rows()} == accepted
    kept = {row.packet_id for row in drive.restarted().rows()}

    assert accepted == kept and len(accepted) > 100
    assert sorted(row.seq for row in drive.rows()) == [row.seq for row in drive.rows()]
    assert all([answer["type"] for answer in told[name]].count("OK") >= 1 for name in kept)
