"""Packets: signed for real, replicated, dropped by some, forged by others."""

from tests.sim.workload.build import archive_rows, made, plan_of, played
from waystation.crypto.signing import verify
from waystation.journal.events import PacketJudged
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.packet import read_packet
from waystation.sim.workload.packets import Packets, author_of

MIB = 1 << 20


def test_archived_packets_are_valid_but_for_the_forged():
    """Every archived packet reads, has its id and its signature, and the forged ones fail by their signature alone."""
    files, truth = made("bad_signatures", nodes=2, days=2, events=1_200)
    forged = set()
    for row in archive_rows(files):
        packet = read_packet(parse(row["signed_bytes"].encode()), MIB)
        assert packet.packet_id.hex() == row["packet_id"] and packet.id_matches
        if not verify(bytes.fromhex(row["pubkey"]), packet.preimage, bytes.fromhex(row["sig"])):
            forged.add(row["packet_id"])

    assert sorted(forged) == truth["counts"]["bad_signatures"]
    assert len(forged) == 20


def test_honest_nodes_have_every_packet():
    """Without a dropper all nodes archive the same packets."""
    _, truth = made()
    held = [{each for ids in days.values() for each in ids} for days in truth["counts"]["archived"].values()]

    assert held[0] and all(each == held[0] for each in held)


def test_a_dropper_lacks_what_the_truth_says():
    """The last node lacks the dropped packets, all others have them."""
    _, truth = made("silent_dropper")
    held = {node: {e for ids in days.values() for e in ids} for node, days in truth["counts"]["archived"].items()}
    *others, dropper = held
    dropped = {packet for ids in truth["consistency"][dropper].values() for packet in ids}

    assert dropped and all(held[other] - held[dropper] == dropped for other in others)
    assert truth["consistency"].keys() == {dropper}


def test_a_dropper_may_pick_one_author():
    """With an author only that author's packets are missing."""
    plan = plan_of("silent_dropper")
    given = {**plan.scenarios, "silent_dropper": {"percent": 0, "author": 0}}
    picky = type(plan)(**{name: given if name == "scenarios" else getattr(plan, name) for name in plan.__slots__})
    stage, _ = played(picky, Packets(picky))
    missing = {packet for days in stage.truth.dropped.values() for ids in days.values() for packet in ids}
    known = author_of(picky.seed, 0).public

    assert missing
    assert {packet.pubkey for packet in stage.archived[0] if packet.packet_id.hex() in missing} <= {known}


def test_the_number_of_signatures_is_bounded():
    """However many events there are, a day signs no more packets than allowed."""
    plan = plan_of(nodes=2, days=1, events=50_000, signed_per_day=48)
    stage, events = played(plan, Packets(plan))

    assert len({packet for days in stage.truth.archived.values() for ids in days.values() for packet in ids}) <= 48
    assert sum(type(event) is PacketJudged and event.verdict == "accepted" for event in events[0]) <= 48
