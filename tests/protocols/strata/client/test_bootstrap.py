import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, did, jcs_hash, key, packet, sign_value
from waystation.protocols.strata.client.bootstrap import (
    BootstrapRefusedError,
    Doubt,
    Gatekeeper,
    advise,
    agreed_services,
    check_document,
    check_service,
    document_id,
    read_snapshot,
)
from waystation.protocols.strata.client.inspection import own_key

KEEPERS = [key(number) for number in range(4)]
TAGS = ["eu", "eu", "us", "us"]
PINNED = {did(each): Gatekeeper(each.public, (tag,)) for each, tag in zip(KEEPERS, TAGS, strict=True)}


def document(*signers, **fields):
    """Return a Bootstrap Document signed by these gatekeepers."""
    body = {
        "version": 1,
        "issued_at": NOW - 100,
        "expires_at": NOW + 100,
        "relays": [{"id": did(ALICE), "url": "wss://a.example/strata"}],
    } | fields
    signatures = [{"issuer": did(each), "signature": sign_value(each, body), "diversity_tags": []} for each in signers]
    return body | {"bootstrap_id": jcs_hash(body), "signatures": signatures}


def refused(body, doubt, pinned=None):
    """Demand that a document is refused for this doubt."""
    with pytest.raises(BootstrapRefusedError) as error:
        check_document(body, PINNED if pinned is None else pinned, NOW)
    assert error.value.doubt is doubt


def test_row_40_three_signatures_and_two_tags_are_enough():
    """The document's relays may be used."""
    read = check_document(document(*KEEPERS[:3]), PINNED, NOW)

    assert [relay.url for relay in read.relays] == ["wss://a.example/strata"]
    assert len(read.signers) == 3
    assert read.bootstrap_id == document_id(document())


def test_row_40_bootstrap_fails_closed():
    """Too few signatures, one tag, expired, tampered, unknown signers: each is refused as a whole."""
    one_tag = {name: keeper._replace(tags=("eu",)) for name, keeper in PINNED.items()}
    refused(document(*KEEPERS[:2]), Doubt.TOO_FEW_SIGNATURES)
    refused(document(KEEPERS[0], KEEPERS[0], KEEPERS[0], KEEPERS[2]), Doubt.TOO_FEW_SIGNATURES)
    refused(document(*KEEPERS[:3]), Doubt.TOO_FEW_TAGS, one_tag)
    refused(document(*KEEPERS, expires_at=NOW - 1), Doubt.EXPIRED)
    refused(document(*KEEPERS, issued_at=NOW + 301), Doubt.NOT_YET)
    refused(document(*KEEPERS) | {"relays": []}, Doubt.WRONG_ID)
    refused(document(*KEEPERS), Doubt.TOO_FEW_SIGNATURES, {})
    refused(document(*(key(number) for number in range(10, 14))), Doubt.TOO_FEW_SIGNATURES)
    refused([], Doubt.MALFORMED)
    refused(document(*KEEPERS, issued_at="now"), Doubt.MALFORMED)


def test_tags_of_one_gatekeeper_alone_are_not_diverse():
    """Two tags count only when two different gatekeepers give them."""
    alone = dict.fromkeys(PINNED, None)
    pinned = {name: PINNED[name]._replace(tags=()) for name in alone}
    first = next(iter(pinned))
    pinned[first] = pinned[first]._replace(tags=("eu", "us"))

    refused(document(*KEEPERS), Doubt.TOO_FEW_TAGS, pinned)


def test_one_key_under_two_names_counts_once():
    """Pinning a key twice does not make two gatekeepers."""
    doubled = {"a": PINNED[did(KEEPERS[0])], "b": PINNED[did(KEEPERS[0])], **PINNED}
    body = document(KEEPERS[0], KEEPERS[2])
    signature = body["signatures"][0]["signature"]
    body["signatures"] += [{"issuer": name, "signature": signature} for name in ("a", "b")]

    refused(body, Doubt.TOO_FEW_SIGNATURES, doubled)


def snapshot(source=ALICE, services=(), relays=({"relay_id": "r", "url": "wss://a.example", "score": 0.5},), **fields):
    """Return the packet of a snapshot."""
    content = {
        "type": "CONFIG",
        "scope": "BOOTSTRAP_SNAPSHOT",
        "snapshot_version": 1,
        "source_id": did(source),
        "issued_at": NOW,
        "expires_at": NOW + 86_400,
        "relays": list(relays),
        "hints": {"services": list(services)},
    }
    return packet(content | fields, source)


def read(*packets):
    """Return what packets of snapshots say."""
    return [read_snapshot(each, NOW) for each in packets]


def test_relay_of_two_sources_comes_first():
    """Scores are averaged; a source that repeats itself counts once."""
    one = {"relay_id": "r", "url": "wss://a.example", "score": 0.4}
    both = {"relay_id": "r", "url": "wss://a.example", "score": 0.8}
    alone = {"relay_id": "s", "url": "wss://b.example", "score": 1}
    advice = advise(read(snapshot(relays=[one, one, alone]), snapshot(BOB, relays=[both])))

    assert [(each.relay.url, each.sources) for each in advice] == [("wss://a.example", 2), ("wss://b.example", 1)]
    assert advice[0].relay.score == pytest.approx(0.6)


def test_snapshot_lives_as_long_as_it_says():
    """Expired, from the future, ending before it begins, or no snapshot at all."""
    cases = [
        ({"issued_at": NOW - 500, "expires_at": NOW - 301}, Doubt.EXPIRED),
        ({"issued_at": NOW + 301, "expires_at": NOW + 400}, Doubt.NOT_YET),
        ({"issued_at": NOW, "expires_at": NOW}, Doubt.MALFORMED),
        ({"snapshot_version": None}, Doubt.MALFORMED),
        ({"scope": "OTHER"}, Doubt.NOT_A_SNAPSHOT),
    ]
    for fields, doubt in cases:
        with pytest.raises(BootstrapRefusedError) as error:
            read_snapshot(snapshot(**fields), NOW)
        assert error.value.doubt is doubt


def test_nonsense_in_a_snapshot_is_left_out():
    """Entries of another shape do not spoil the rest."""
    relays = [None, {}, {"url": "ftp://x"}, {"url": "wss://c.example", "score": 7}, {"url": "x" * 2_000}]
    [found] = read(snapshot(relays=relays, services=[None, {}, {"kind": 1}], did_docs=[]))

    assert [(each.url, each.score) for each in found.relays] == [("wss://c.example", None)]
    assert found.services == ()


CONTENT = {
    "type": "CONFIG",
    "scope": "SERVICE_CONFIG",
    "provider_id": did(BOB),
    "service": "gate",
    "service_version": 1,
}


def hint(config, **fields):
    """Return a service hint that names a provider's packet, as RFC-0011 4 writes it."""
    named = {"kind": "gate", "version": 1, "provider_id": did(BOB), "expires_at": NOW + 1_000, "priority": 3}
    return named | {"config_packet": config.body["packet_id"]} | fields


def test_service_needs_two_sources_of_these_days():
    """One source is not enough, however often it says so; nor are two of which one spoke four days ago."""
    config = packet(CONTENT, BOB)
    once, twice = read(snapshot(services=[hint(config)])), [snapshot(services=[hint(config)])]
    twice += [snapshot(BOB, services=[hint(config)])]
    other = [twice[0], snapshot(BOB, services=[hint(config, version=2)])]

    assert agreed_services(once, NOW) == []
    assert agreed_services(read(twice[0], snapshot(services=[hint(config), hint(config)])), NOW) == []
    assert agreed_services(read(*other), NOW) == []
    assert [service.config_packet for service in agreed_services(read(*twice), NOW)] == [config.packet_id]
    days = 4 * 86_400
    early = snapshot(BOB, services=[hint(config)], issued_at=NOW - days)
    assert agreed_services(read(twice[0], early), NOW) == []


def test_service_is_checked_by_its_providers_packet():
    """The packet has the id that the hint names, the provider signed it, and it is for that service and version."""
    config = packet(CONTENT, BOB)
    [found] = read(snapshot(services=[hint(config)]))
    (service,) = found.services

    assert check_service(service, config, own_key, NOW)
    for wrong in (
        packet(CONTENT | {"service_version": 2}, BOB),
        packet(CONTENT | {"scope": "OTHER"}, BOB),
        packet(CONTENT | {"provider_id": did(ALICE)}, ALICE),
        packet(CONTENT, BOB, expires_at=NOW - 1),
    ):
        assert not check_service(service._replace(config_packet=wrong.packet_id), wrong, own_key, NOW)
    assert not check_service(service, packet(CONTENT | {"more": 1}, BOB), own_key, NOW)
    assert not check_service(service, config._replace(signature=bytes(64)), own_key, NOW)


@pytest.mark.parametrize(
    "fields",
    [{"version": None}, {"version": True}, {"expires_at": NOW + 8 * 86_400}, {"config_packet": {}}, {"kind": 1}],
)
def test_hint_of_another_shape_is_left_out(fields):
    """Version and packet id are required, and a hint lives at most 7 days beyond its snapshot."""
    [found] = read(snapshot(services=[hint(packet(CONTENT, BOB), **fields)]))

    assert found.services == ()


def test_hint_may_bring_a_payload_and_is_never_agreed_on():
    """What a source says itself has no provider's signature."""
    inline = {"config_packet": None, "payload": {"url": "https://a.example"}}
    found = read(*[snapshot(each, services=[hint(packet(CONTENT, BOB), **inline)]) for each in (ALICE, BOB)])

    assert [each.services[0].payload for each in found] == [inline["payload"]] * 2
    assert agreed_services(found, NOW) == []


def test_documents_are_named_by_a_list():
    """``did_docs`` is a list of DID, hash and priority (RFC-0006 5.1); a map, as we wrote earlier, is read too."""
    a, b, c = (did(each) for each in (ALICE, BOB, KEEPERS[0]))
    entries = [{"did": a, "did_doc_hash": "z1", "priority": 1}, {"did": a, "did_doc_hash": "z2", "priority": 2}]
    entries += [{"did": b, "did_doc_hash": "z3"}, {"did": "x", "did_doc_hash": "z4"}, {"did": c}, None, 7]
    listed, mapped = read(snapshot(did_docs=entries), snapshot(did_docs={a: "z1", b: 7}))

    assert listed.did_docs == {a: "z2", b: "z3"}
    assert mapped.did_docs == {a: "z1"}


@pytest.mark.parametrize(("said", "skew"), [(60, 60), (300, 300), (59, None), (301, None), ("60", None), (None, None)])
def test_document_says_the_skew(said, skew):
    """60 to 300 s; anything else is as if nothing were said (specs/strata.md 4.2)."""
    body = document(*KEEPERS, clock_skew_seconds=said)

    assert check_document(body, PINNED, NOW).clock_skew_s == skew


def test_document_brings_roots_and_pointers():
    """A root is a name with its key, or a DID that is a key; what is neither is left out (STRATA-BOOTSTRAP)."""
    hardware = [{"id": "did:strata:maker", "public_key": "0x" + BOB.public.hex()}, did(ALICE), "did:strata:name", 7]
    model = [{"id": "did:strata:lab", "public_key": "0x12"}, {"id": 1}, None]
    pointers = [{"did": did(BOB), "did_doc_hash": "z1"}]
    found = check_document(
        document(*KEEPERS, hardware_roots=hardware, model_roots=model, did_docs=pointers), PINNED, NOW
    )

    assert found.roots == {"did:strata:maker": BOB.public, did(ALICE): ALICE.public}
    assert found.did_docs == {did(BOB): "z1"}
