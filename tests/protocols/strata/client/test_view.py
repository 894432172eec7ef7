import itertools

from tests.protocols.strata.build import ALICE, BOB, CLIENT, NOW, did, packet, post, sign_value
from waystation.protocols.strata.client.view import REFERRERS_MAX, Fate, Tier, View

TARGET = post("original")


def correction(key=ALICE, action="replace", text="corrected", target=TARGET, **fields):
    """Return a CORRECTION."""
    content = {"type": "CORRECTION", "target_packet": target.body["packet_id"], "action": action, "text": text}
    return packet(content | fields, key)


def attestation(key=BOB, attestation_id="a1", target=TARGET, signer=None, nonce="", **fields):
    """Return a standalone ATTESTATION packet."""
    body = {
        "attestation_id": attestation_id,
        "attestor_id": did(key),
        "attestor_type": "NGO",
        "target_packet": target.body["packet_id"],
        "subject": "ORIGINAL",
        "confidence": 1,
        "issued_at": NOW,
    } | fields
    body["signature"] = sign_value(signer or key, body)
    content = {"type": "ATTESTATION", "target_packet": target.body["packet_id"], "attestation": body}
    return packet(content, key, nonce=nonce)


def viewed(*entries):
    """Return a view of packets with their received_at."""
    view = View()
    for each, received_at in entries:
        view.add(each, received_at)
    return view


def test_row_32_foreign_correction_has_no_effect():
    """Only the author supersedes a packet."""
    shown = viewed((TARGET, NOW), (correction(BOB), NOW + 1)).show(TARGET.packet_id)

    assert (shown.fate, shown.text, shown.by) == (Fate.STANDS, "original", None)


def test_row_32_later_of_two_own_corrections_wins_in_any_order():
    """The latest received_at counts, not the order of arrival; a tie goes to the smaller id."""
    entries = [(TARGET, NOW), (correction(text="1"), NOW + 5), (correction(text="2"), NOW + 9)]
    for order in itertools.permutations(entries):
        assert viewed(*order).show(TARGET.packet_id).text == "2"
    tied = [correction(text="1"), correction(text="2")]
    first = min(tied, key=lambda each: each.packet_id)
    assert viewed((TARGET, NOW), *((each, NOW + 5) for each in tied)).show(TARGET.packet_id).by == first


def test_nobody_pushes_out_what_the_author_says(monkeypatch):
    """However many corrections and attestations others send, the retraction counts, and so does each attestor."""
    monkeypatch.setattr("waystation.protocols.strata.client.view.REFERRERS_MAX", 8)
    foreign = [correction(CLIENT, text=f"{number}") for number in range(20)]
    foreign += [attestation(CLIENT, f"c{number}") for number in range(20)]
    entries = [(TARGET, NOW), *((each, NOW + 1) for each in foreign)]
    view = viewed(*entries, (attestation(), NOW + 2), (correction(action="retract"), NOW + 3))
    first = viewed((correction(action="retract"), NOW + 3), (attestation(), NOW + 2), *entries)

    for each in (view, first):
        assert each.show(TARGET.packet_id).fate is Fate.RETRACTED
        assert did(BOB) in [found.attestor_id for found in each.attestations(TARGET.packet_id)]
    assert REFERRERS_MAX == 1_024


def test_withdrawal_counts_whatever_others_send(monkeypatch):
    """An attestor takes an attestation back behind a flood of others."""
    monkeypatch.setattr("waystation.protocols.strata.client.view.REFERRERS_MAX", 8)
    target = TARGET.body["packet_id"]
    withdrawal = packet({"type": "ATTESTATION_RETRACTION", "target_packet": target, "attestation_id": "a1"}, BOB)
    flood = [(attestation(CLIENT, f"c{number}"), NOW + 1) for number in range(20)]
    found = viewed((TARGET, NOW), (attestation(), NOW), *flood, (withdrawal, NOW + 2)).attestations(TARGET.packet_id)

    assert {each.attestor_id for each in found} == {did(CLIENT)}


def test_newest_of_many_corrections_of_one_author_count(monkeypatch):
    """Its own are bounded, and the last one is among those that are looked at."""
    monkeypatch.setattr("waystation.protocols.strata.client.view.REFERRERS_MAX", 8)
    own = [(correction(text=f"{number}"), NOW + number) for number in range(20)]

    assert viewed((TARGET, NOW), *own).show(TARGET.packet_id).text == "19"


def test_retracted_packet_has_no_text():
    """It is still there, and says who took it back."""
    shown = viewed((TARGET, NOW), (correction(action="retract"), NOW + 1)).show(TARGET.packet_id)

    assert (shown.fate, shown.text) == (Fate.RETRACTED, None)


def test_correction_of_an_unknown_kind_is_ignored():
    """A later revision's action changes nothing."""
    shown = viewed((TARGET, NOW), (correction(action="hide"), NOW + 1)).show(TARGET.packet_id)

    assert shown.fate is Fate.STANDS


def test_row_33_attestation_counts_once():
    """The same attestation in two packets is one, seen at the earlier time."""
    view = viewed((TARGET, NOW), (attestation(nonce="1"), NOW + 7), (attestation(nonce="2"), NOW + 3))

    [counted] = view.attestations(TARGET.packet_id)
    assert (counted.attestation_id, counted.tier, counted.received_at) == ("a1", Tier.LAB_VERIFIED, NOW + 3)


def test_attestations_that_are_not_their_authors_do_not_count():
    """Signed by somebody else, about another packet, or by another attestor than the packet's author: nothing."""
    wrong = [
        attestation(signer=CLIENT),
        attestation(target_packet=post("other").body["packet_id"]),
        attestation(attestor_id=did(CLIENT)),
        attestation(confidence=2),
        attestation(attestation_id=""),
    ]

    assert viewed((TARGET, NOW), *((each, NOW) for each in wrong)).attestations(TARGET.packet_id) == []


def test_withdrawn_attestation_does_not_count():
    """Only its attestor can withdraw it, by a retraction or a correction of the packet."""
    content = {"type": "ATTESTATION_RETRACTION", "target_packet": TARGET.body["packet_id"], "attestation_id": "a1"}
    stays = viewed((TARGET, NOW), (attestation(), NOW), (packet(content, ALICE), NOW + 1))
    goes = viewed((TARGET, NOW), (attestation(), NOW), (packet(content, BOB), NOW + 1))
    corrected = correction(BOB, "retract", target=attestation())
    gone = viewed((TARGET, NOW), (attestation(), NOW), (corrected, NOW + 1))

    assert len(stays.attestations(TARGET.packet_id)) == 1
    assert goes.attestations(TARGET.packet_id) == []
    assert gone.attestations(TARGET.packet_id) == []


def test_tier_follows_from_the_attestor():
    """What is not said is inferred, and what is unknown is the community's."""
    tiers = [
        ({"attestor_type": "MODEL_PROVIDER"}, Tier.AI_ANALYSIS),
        ({"attestor_type": "CLIENT"}, Tier.COMMUNITY),
        ({"attestation_tier": "AI_ANALYSIS"}, Tier.AI_ANALYSIS),
        ({"attestation_tier": "DIVINE"}, Tier.COMMUNITY),
    ]
    for fields, tier in tiers:
        assert viewed((TARGET, NOW), (attestation(**fields), NOW)).attestations(TARGET.packet_id)[0].tier is tier


def test_row_37_earliest_witness_counts():
    """A later word of an earlier time lowers it; a later time does not raise it."""
    view = viewed((TARGET, NOW + 5), (TARGET, NOW + 2), (TARGET, NOW + 9))

    assert view.received_at(TARGET.packet_id) == NOW + 2
    assert len(view) == 1


def test_view_is_bounded():
    """The oldest packet is forgotten, with what it said about others."""
    view = View(packets_max=2)
    for each in (correction(), TARGET, post("2")):
        view.add(each, NOW)

    assert len(view) == 2
    assert view.show(TARGET.packet_id).fate is Fate.STANDS
    assert view.show(correction().packet_id) is None
