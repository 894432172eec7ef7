"""Laws of protocols.strata.offline: a file's packets go through every check, and the good ones are durable."""

import orjson

from tests.protocols.strata.build import ALICE, NOW, RELAY, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.relay.offline import GATHERED_MAX, Importer
from waystation.protocols.strata.settings import StrataSettings
from waystation.store.memory import MemoryStore


def importer(store, **fields):
    """Return an importer over ``store`` at ``NOW``."""
    return Importer(StrataSettings(**fields), RELAY, store, {}, (), NOW)


def line(packet, received_at=NOW - 5):
    """Return one line of an export."""
    body = packet if isinstance(packet, dict) else packet.body
    return orjson.dumps({"packet": body, "received_at": received_at}) + b"\n"


def test_good_lines_are_stored_with_their_time():
    """What a relay exported is served again, with the time at which it was first received."""
    store = MemoryStore()
    taken = importer(store)
    packets = [post(f"{number}") for number in range(GATHERED_MAX + 3)]
    for packet in packets:
        taken.add(line(packet))
    taken.finish()

    assert taken.verdicts == {"accepted": len(packets)}
    assert {store.packets.packet(packet.packet_id).received_at for packet in packets} == {NOW - 5}
    assert len(Drive(store).rows()) == len(packets)


def test_same_file_twice_changes_nothing():
    """Import is idempotent: a second run counts duplicates."""
    store = MemoryStore()
    for expected in ({"accepted": 1}, {"duplicate": 1}):
        taken = importer(store)
        taken.add(line(post("once")))
        taken.finish()

        assert taken.verdicts == expected
    assert store.packets.newest_seq() == 1


def test_bad_lines_are_counted_by_reason_and_stop_nothing():
    """Bad JSON, a line that is none, a tampered packet and an old one are refused; the good one between is stored."""
    store = MemoryStore()
    taken = importer(store, max_backfill_s=86_400)
    tampered = post("x").body | {"content": {"type": "POST", "text": "y"}}
    old = signed(unsigned(timestamp=NOW - 90_000), ALICE)
    for text in (b"{", b"[]\n", b'{"packet":{}}\n', line(tampered), line(old), line(post("good"))):
        taken.add(text)
    taken.finish()

    assert taken.verdicts == {
        "invalid_schema:bad_json": 1,
        "invalid_schema:not_a_line": 2,
        "invalid_signature:packet_id_mismatch": 1,
        "invalid_timestamp:too_old": 1,
        "accepted": 1,
    }
    assert store.packets.newest_seq() == 1
