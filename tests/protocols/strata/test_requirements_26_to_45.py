"""The requirements of specs/strata.md 21 from row 26 on, as ``test_requirements`` has those before it."""

import msgspec
import orjson
import pytest

from tests.protocols.strata.build import (
    ALICE,
    ALICE_KEY_2,
    BOB,
    MEDIA_HASH,
    NOW,
    RELAY,
    certified,
    claim,
    client_attested,
    did,
    edits,
    key,
    packet,
    packet_of,
    photo,
    post,
    sign_value,
    signed,
    unsigned,
    vector,
)
from tests.protocols.strata.drive import Drive
from tests.protocols.strata.pair import Node, join, reads
from waystation.core.dids import encode_key_multibase
from waystation.core.facts import PacketJudged, PacketStored
from waystation.crypto.signing import verify
from waystation.protocols.strata.provenance import restored
from waystation.protocols.strata.relay.directory import StaticKey

DAY = 86_400
ROOT, LEAF = key(1), key(2)
DEVICE = "did:device:d"
CHAIN = [certified(DEVICE, "did:root:r", LEAF, ROOT)]
HARDWARE, MODEL, SOFTWARE = "HARDWARE_SECURE_ENCLAVE", "AI_MODEL", "SOFTWARE"
MODES = pytest.mark.parametrize("mode", ["annotate", "mutate"])
RECOVERING = "did:strata:recovering"
MANIFEST = {
    "relay_id": str,
    "ws_endpoint": str,
    "status": str,
    "descriptor_packet_id": str,
    "clock_skew_seconds": int,
    "did_docs": list,
} | (dict.fromkeys(("services", "policy", "replication", "software", "limits", "privacy"), dict))
"""Fields of the manifest and their types, specs/strata.md 15."""


def device(**fields):
    """Return the header of a device that proves itself."""
    proof = {"device_id": DEVICE, "genesis_media_hash": MEDIA_HASH, "origin_type": HARDWARE}
    given = {"device_id": DEVICE, "device_signature": sign_value(LEAF, proof), "issuer_chain": CHAIN}
    return claim(HARDWARE) | given | fields


def model(**fields):
    """Return the header of a model that proves itself."""
    proof = {"genesis_media_hash": MEDIA_HASH, "origin_type": MODEL, "subject": DEVICE}
    return claim(MODEL) | {"issuer_chain": CHAIN, "issuer_signature": sign_value(LEAF, proof)} | fields


def without(header, name):
    """Return the header without a field."""
    return {field: value for field, value in header.items() if field != name}


def trusting(mode):
    """Return a relay that trusts the root of these tests."""
    return Drive(provenance_downgrade_mode=mode, roots=[f"did:root:r={ROOT.public.hex()}"])


def attested(header):
    """Return a signed picture that a known client vouches for."""
    return signed(client_attested(photo(header)))


def key_event(event, fragment, by, pair=None, author=None, **fields):
    """Return a KEY_EVENT about an author's key, signed by ``by``."""
    author = author or did(ALICE)
    content = {"type": "KEY_EVENT", "event": event, "key_id": f"{author}#{fragment}"} | fields
    if pair is not None:
        content |= {"public_key_multibase": encode_key_multibase(pair.public), "valid_from": NOW - 100}
    return signed(unsigned(content, author_id=author), by)


def edge(number, strength, content_type="TRUST_EDGE"):
    """Return a trust edge of Alice."""
    content = {"type": content_type, "from": did(ALICE), "to": f"did:strata:{number}", "strength": strength}
    return packet(content)


@MODES
@pytest.mark.parametrize(
    "body",
    [signed(photo(claim("UNKNOWN", None))), attested(claim(SOFTWARE)), attested(device()), attested(model())],
    ids=["unknown", "software", "hardware", "model"],
)
def test_row_26_proved_claims_stand(mode, body):
    """A claim with its proof is accepted as it is, and so is none."""
    drive = trusting(mode)
    answer = drive.publish(drive.connect(), body)
    drive.subscribe(1)

    assert answer["type"] == "OK"
    assert "provenance_downgrade" not in answer
    assert drive.events(1)[0]["packet"] == body


@MODES
@pytest.mark.parametrize(
    ("header", "code", "detail"),
    [
        (claim(HARDWARE), "missing_proof", "device_id"),
        (without(device(), "issuer_chain"), "missing_proof", "issuer_chain"),
        (claim(MODEL), "missing_proof", "issuer_chain"),
        (model(issuer_chain=[certified(DEVICE, "did:root:x", LEAF, ROOT)]), "invalid_issuer_chain", "unknown_root"),
        (device(device_id="did:device:other"), "invalid_issuer_chain", "device_not_bound"),
        (device(device_signature=sign_value(LEAF, 1)), "invalid_provenance", "device_signature"),
        (model(issuer_signature=sign_value(ROOT, 1)), "invalid_provenance", "issuer_signature"),
        (device(attestation_evidence={"format": "x"}), "invalid_attestation", "unsupported_format"),
    ],
)
def test_row_26_failed_proofs_are_refused(mode, header, code, detail):
    """A claim that an attested client makes without its proof is refused by the code of its fault."""
    drive = trusting(mode)
    answer = drive.publish(drive.connect(), attested(header))

    assert (answer["code"], answer["detail"]) == (code, detail)
    assert drive.rows() == []


DOWNGRADED = [
    (signed(photo(claim(SOFTWARE))), "missing_client_attestation"),
    (signed(photo(device())), "missing_client_attestation"),
    (signed(client_attested(photo(claim(SOFTWARE)), BOB)), "invalid_client_attestation"),
    (signed(client_attested(photo(claim(SOFTWARE)), client_id="did:strata:nobody")), "unknown_client"),
    (attested(claim("QUANTUM")), "unknown_origin_type"),
    (attested(device(edit_history=edits(MEDIA_HASH, key_pair=BOB))), "broken_edit_chain"),
]


@pytest.mark.parametrize(("body", "reason"), DOWNGRADED, ids=[f"{n}_{each[1]}" for n, each in enumerate(DOWNGRADED)])
def test_row_27_annotate_shows_the_downgrade_beside_the_packet(body, reason):
    """The packet is served as signed, and OK, EVENT and HTTP say what its claim is worth."""
    drive = trusting("annotate")
    answer = drive.publish(drive.connect(), body)
    drive.subscribe(1)

    note = {"claimed": body["provenance_header"]["origin_type"], "origin_type": "UNKNOWN", "reason": reason}
    event = drive.events(1)[0]
    assert (answer["type"], answer["provenance_downgrade"]) == ("OK", note)
    assert (event["packet"], event["provenance_downgrade"]) == (body, note)
    assert drive.get(f"/strata/packets/{body['packet_id']}")[1]["provenance_downgrade"] == note


@pytest.mark.parametrize(("body", "reason"), DOWNGRADED, ids=[f"{n}_{each[1]}" for n, each in enumerate(DOWNGRADED)])
def test_row_27_mutate_can_be_undone(body, reason):
    """Live, in history and by id it is UNKNOWN without proofs, and the note restores what was signed."""
    drive = trusting("mutate")
    publisher, live, late = (drive.connect() for _ in range(3))
    drive.subscribe(live)
    answer = drive.publish(publisher, body)
    drive.subscribe(late)

    assert (answer["type"], answer["provenance_downgrade"]["reason"]) == ("OK", reason)
    for shown in (*drive.events(live), *drive.events(late), drive.get(f"/strata/packets/{body['packet_id']}")[1]):
        header, note = shown["packet"]["provenance_header"], shown["provenance_downgrade"]
        assert header["origin_type"] == "UNKNOWN"
        assert header.keys().isdisjoint({"client_attestation", "device_id", "device_signature", "issuer_chain"})
        assert restored(shown["packet"], note["original_provenance_header"]) == body
    assert len(drive.events(live)) == len(drive.events(late)) == 1


def test_row_27_relays_get_what_was_signed():
    """Replication is never served a changed packet, whatever the mode."""
    drive = Drive(provenance_downgrade_mode="mutate", replicate_allow=[did(BOB)])
    peer = drive.connect()
    drive.auth(peer, BOB, capabilities=["subscribe", "replicate"])
    body = DOWNGRADED[0][0]
    drive.subscribe(peer, "live")
    drive.publish(drive.connect(), body)
    drive.subscribe(peer, "history")

    assert [drive.events(peer, each)[0]["packet"] for each in ("live", "history")] == [body, body]


def test_row_28_media_need_a_header():
    """Media without provenance_header is invalid_schema."""
    drive = Drive()
    answer = drive.publish(drive.connect(), vector("err-media-no-header")["packet"])

    assert (answer["code"], answer["detail"]) == ("invalid_schema", "provenance_header_required")


def test_row_29_retrieve_and_query():
    """A packet is found by id, and by author, type and time together; what nobody has is 404."""
    drive = Drive()
    wanted = drive.fill(1, timestamp=NOW - 50)[0]
    drive.fill(1, BOB, timestamp=NOW - 50)
    drive.fill(2)
    reader = drive.connect()
    drive.subscribe(reader, authors=[did(ALICE)], types=["POST"], since=NOW - 60, until=NOW - 40)

    assert [event["packet"] for event in drive.events(reader)] == [wanted.body]
    assert drive.get(f"/strata/packets/{wanted.body['packet_id']}")[1]["packet"] == wanted.body
    assert drive.get(f"/strata/packets/0x{'0' * 64}")[0] == drive.get("/strata/packets/x")[0] == 404


def test_row_30_key_events_are_applied():
    """An added key may sign, a revoked one may not, and the chain is served by filter; a restart changes nothing."""
    drive = Drive()
    peer = drive.connect()
    by_second = post("by the second key", ALICE)
    by_second = signed(by_second.body, ALICE_KEY_2)
    add, revoke = key_event("ADD", "two", ALICE, ALICE_KEY_2), key_event("REVOKE", "two", ALICE, revoked_at=NOW - 1_000)
    assert drive.publish(peer, by_second)["code"] == "invalid_signature"
    assert drive.publish(peer, add)["type"] == drive.publish(peer, by_second)["type"] == "OK"
    assert drive.publish(peer, revoke)["type"] == "OK"
    again = drive.restarted()

    another = signed(post("another").body, ALICE_KEY_2)
    for each in (drive, again):
        reader = each.connect("reader")
        assert each.publish(reader, another)["code"] == "key_revoked"
        each.subscribe(reader, types=["KEY_EVENT"], authors=[did(ALICE)])
        assert [event["packet"] for event in each.events(reader)] == [add, revoke]
    assert again.publish(again.connect(), post("by the first"))["type"] == "OK"


def test_row_30_the_next_packet_is_judged_by_the_new_key():
    """A packet right behind the KEY_EVENT that adds its key is accepted, though the event is not on the disk yet."""
    drive = Drive()
    peer = drive.connect()
    drive.hold_commits = True
    for body in (key_event("ADD", "two", ALICE, ALICE_KEY_2), signed(post().body, ALICE_KEY_2)):
        drive.send(peer, {"type": "PUBLISH", "packet": body})
    drive.commit_held()

    assert [got["type"] for got in drive.got[peer][1:]] == ["OK", "OK"]


def test_row_31_recovery_threshold():
    """Two of three recovery keys and a day are needed before a recovery event counts."""
    keys = [key(number) for number in (11, 12, 13)]
    methods = [{"id": f"{RECOVERING}#{n}", "public_key_hex": each.public.hex(), "valid_from": 0, "usage": "recovery"}
               for n, each in enumerate(keys)]  # fmt: skip
    methods.append({"id": f"{RECOVERING}#main", "public_key_hex": ALICE.public.hex(), "valid_from": 0})
    named = [{"type": "Ed25519VerificationKey2020", "controller": RECOVERING} | method for method in methods]
    document = {"id": RECOVERING, "verification_method": named, "created_at": 0, "prev_did_doc_hash": None}
    drive = Drive(documents=[document | {"recovery_policy": {"threshold": 2, "key_ids": []}}])
    peer = drive.connect()
    add = key_event("ADD", "new", keys[0], BOB, RECOVERING)

    def publish(content, pair):
        body = unsigned(content, author_id=RECOVERING, timestamp=drive.wall_s)
        return drive.publish(peer, signed(body, pair))["type"]

    def approve(pair, note):
        return publish({"type": "RECOVERY_APPROVAL", "target_event": add["packet_id"], "note": note}, pair)

    assert drive.publish(peer, add)["type"] == approve(keys[0], "again") == "OK"
    drive.pass_time(DAY)
    assert publish({"type": "POST", "text": "one approval is not enough"}, BOB) == "ERROR"
    assert approve(keys[1], "second") == "OK"
    assert publish({"type": "POST", "text": "now"}, BOB) == "OK"


def test_row_31_recovery_delay():
    """With all approvals given, a recovery event still waits for a day."""
    methods = {"type": "Ed25519VerificationKey2020", "controller": RECOVERING, "valid_from": 0, "usage": "recovery"}
    named = [methods | {"id": f"{RECOVERING}#r", "public_key_hex": key(11).public.hex()}]
    document = {"id": RECOVERING, "verification_method": named, "created_at": 0, "prev_did_doc_hash": None}
    drive = Drive(documents=[document])
    peer = drive.connect()
    assert drive.publish(peer, key_event("ADD", "new", key(11), BOB, RECOVERING))["type"] == "OK"

    for seconds, expected in ((DAY - 1, "ERROR"), (1, "OK")):
        drive.pass_time(seconds)
        body = unsigned({"type": "POST"}, author_id=RECOVERING, timestamp=drive.wall_s)
        assert drive.publish(peer, signed(body, BOB))["type"] == expected


def test_row_32_corrections_are_kept_whoever_sends_them():
    """A relay stores a stranger's CORRECTION like any packet; that it has no effect is for readers to see."""
    drive = Drive()
    target = drive.fill(1)[0]
    foreign = packet({"type": "CORRECTION", "target_packet": target.body["packet_id"], "action": "retract"}, BOB)
    drive.publish(drive.connect(), foreign)
    reader = drive.connect()
    drive.subscribe(reader)

    assert [event["packet"] for event in drive.events(reader)] == [target.body, foreign.body]


def test_row_33_the_same_attestation_is_one_event():
    """In a second packet it is a duplicate of the first: subscribers, history and id know one."""
    drive = Drive()
    publisher, live, late = (drive.connect() for _ in range(3))
    target = post().body["packet_id"]
    body = {"attestation_id": "a1", "attestor_id": did(ALICE), "target_packet": target, "subject": "ORIGINAL"}
    said = {"type": "ATTESTATION", "target_packet": target, "attestation": body}
    first, second = (packet(said, nonce=nonce) for nonce in "12")
    drive.subscribe(live)
    answers = [drive.publish(publisher, each) for each in (first, second)]
    drive.subscribe(late)

    first_id = first.body["packet_id"]
    assert [answer.get("duplicate_of") for answer in answers] == [None, first_id]
    for reader in (live, late):
        assert [event["packet"]["packet_id"] for event in drive.events(reader)] == [first_id]
    assert drive.get(f"/strata/packets/{second.body['packet_id']}")[0] == 404


def test_row_34_trust_edges_are_budgeted():
    """The 21st strong edge of a day is rate_limited, weak ones have their own budget, revocations free nothing."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    strong = [drive.publish(peer, edge(number, 0.9))["type"] for number in range(20)]
    withdrawn = drive.publish(peer, edge(0, 0.9, "TRUST_REVOCATION"))
    refused = drive.publish(peer, edge(99, 0.9))
    weak = [drive.publish(peer, edge(number, 0.5))["type"] for number in range(200, 299)]
    full = drive.publish(peer, edge(999, 0.1))

    assert strong + weak + [withdrawn["type"]] == ["OK"] * 120
    for answer, limit in ((refused, 20), (full, 100)):
        assert (answer["code"], answer["limit"], answer["retry_after"]) == ("rate_limited", limit, DAY)
    again = drive.restarted(rate_limits=False)
    assert again.publish(again.connect(), edge(98, 0.9))["code"] == "rate_limited"


def test_row_35_replication_needs_its_capability():
    """A profile is served only to a relay that authenticated and is on the list, and then it gets everything."""
    drive = Drive(rate_limits=False, replicate_allow=[did(BOB)])
    posts = drive.fill(600)
    stranger, relay = drive.connect(), drive.connect()
    drive.auth(relay, BOB, capabilities=["replicate"])
    ask = {
        "type": "SUBSCRIBE",
        "subscription_id": "r",
        "replication_profile": "FULL_ARCHIVE",
        "filters": {"limit": 500},
    }
    refused = drive.send(stranger, ask)[0]
    first = drive.send(relay, ask)
    drive.send(relay, ask | {"filters": {"limit": 500, "cursor": first[-1]["cursor"]}})

    assert (refused["code"], refused["detail"]) == ("unauthenticated", "missing_capability")
    assert refused["subscription_id"] == "r"
    got = [event["packet"]["packet_id"] for event in drive.events(relay, "r")]
    assert got == [each.body["packet_id"] for each in posts]
    unknown = drive.send(relay, ask | {"replication_profile": "HIGH_TRUST_ONLY"})[0]
    assert unknown["code"] == "unsupported_profile"


def test_row_37_an_earlier_witness_lowers_received_at():
    """What readers are told is the earliest credible time; the place in history stays, and nobody can raise it."""
    drive = Drive()
    first, second = drive.fill(2)
    drive.replicate(second, NOW - 50)
    drive.replicate(second, NOW - 40)
    reader = drive.connect()
    drive.subscribe(reader)

    shown = [(event["packet"]["packet_id"], event["received_at"]) for event in drive.events(reader)]
    assert shown == [(first.body["packet_id"], NOW), (second.body["packet_id"], NOW - 50)]


@pytest.mark.parametrize("witness", [NOW - 10 - 301, NOW - 700_000, NOW + 1, NOW + 10_000])
def test_row_37_incredible_witnesses_are_ignored(witness):
    """A packet cannot have been seen long before its timestamp, before the backfill window, or tomorrow (D17)."""
    drive = Drive()
    drive.replicate(post(), witness)

    assert [row.received_at for row in drive.rows()] == [NOW]


def test_row_37_an_earlier_witness_counts_while_the_copy_is_on_its_way():
    """A replica that comes while the client's copy waits for the disk lowers it all the same."""
    drive = Drive()
    drive.hold_commits = True
    drive.send(drive.connect(), {"type": "PUBLISH", "packet": post().body})
    drive.replicate(post(), NOW - 50)
    drive.commit_held()

    assert [row.received_at for row in drive.rows()] == [NOW - 50]


def test_row_39_descriptor_and_manifest():
    """The descriptor is signed by the relay and names it, the manifest says what it takes, and both agree."""
    drive = Drive(public_url="wss://relay.example/strata", replicate_allow=[did(BOB)])
    drive.pass_time(0)
    status, answer = drive.get("/strata/descriptor")
    manifest = drive.get("/.well-known/strata-relay.json")[1]

    descriptor = packet_of(answer["packet"])
    content = descriptor.body["content"]
    assert status == 200
    assert (content["type"], content["relay_id"], descriptor.author_id) == ("RELAY_DESCRIPTOR", did(RELAY), did(RELAY))
    assert (content["descriptor_version"], content["ws_endpoint"]) == (1, "wss://relay.example/strata")
    assert descriptor.id_matches
    assert verify(RELAY.public, descriptor.preimage, descriptor.signature)
    assert descriptor.expires_at == NOW + 30 * DAY
    assert manifest["relay_id"] == did(RELAY)
    assert manifest["ws_endpoint"] == content["ws_endpoint"]
    assert manifest["policy"] == content["policy"]
    assert manifest["replication"]["accepts_peer_subscriptions"] is True
    assert manifest["limits"]["max_packet_bytes"] == 262_144
    assert manifest["descriptor_packet_id"] == answer["packet"]["packet_id"]
    assert {name: type(value) for name, value in manifest.items()} == MANIFEST


def test_row_44_facts_hold_no_payload_but_the_archive():
    """Of a MESSAGE nothing but ids, times and sizes reaches the node; the packet itself goes to the archive alone."""
    drive = Drive()
    secret = packet({"type": "MESSAGE", "encryption": {"ciphertext": "marker-4711"}})
    drive.publish(drive.connect(), secret)

    talk = [fact for fact in drive.facts if not isinstance(fact, PacketStored)]
    assert any(isinstance(fact, PacketJudged) for fact in talk)
    assert "marker-4711" not in repr(talk)


def test_row_45_slow_consumer():
    """Who stops reading costs little, holds nobody up, and has everything once it reads again."""
    drive = Drive(rate_limits=False)
    slow, quick = drive.connect(), drive.connect()
    drive.stall(slow)
    drive.subscribe(slow)
    drive.subscribe(quick)
    posts = drive.fill(1_000)
    before = sum(len(orjson.dumps(event)) for event in drive.events(slow))
    drive.drain(slow)

    wanted = [each.body["packet_id"] for each in posts]
    assert before < 262_144
    assert [event["packet"]["packet_id"] for event in drive.events(quick)] == wanted
    assert [event["packet"]["packet_id"] for event in drive.events(slow)] == wanted


def test_row_16_pinned_keys_authenticate():
    """A DID that the operator pinned authenticates with the pinned key."""
    drive = Drive(static_dids={"did:strata:zero_cool": [StaticKey(BOB.public)]})

    assert drive.auth(drive.connect(), BOB, author_id="did:strata:zero_cool")[0]["type"] == "AUTH_OK"


def test_row_38_the_fallback_reaches_as_far_as_the_operator_accepts():
    """Without its cursor a relay reads again all that its own backfill window would take, not a week of it."""
    up = Node(key=key(1), replicate_allow=[did(key(0))])
    down = Node(key=key(0), upstreams=reads(key(1)), max_backfill_s=30 * DAY)
    up.fill(1)
    join(down, up).cut()
    down.damage(key(1), msgspec.msgpack.encode(down.kept_of(key(1)) | {"cursor": "AAAA"}))
    again = Node(down.store, key=key(0), upstreams=reads(key(1)), max_backfill_s=30 * DAY)
    join(again, up)

    assert again.kept_of(key(1))["since"] == NOW - 30 * DAY - 300
