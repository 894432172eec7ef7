"""Laws of server.refusal_log: who is refused by the lists or a ban is named once per burst, with the list."""

import pytest
from structlog.testing import capture_logs

from tests.server.build import key_pair
from waystation.core.ids import encode_id52
from waystation.engine.access import Access, parse_access
from waystation.engine.bans import Ban, BanList, parse_subject
from waystation.server.refusal_log import RefusalLog
from waystation.store.memory import MemoryStore

FRIEND, OTHER = key_pair(7).public, key_pair(8).public


def lines(bans, rules, *noted):
    """Return what is logged of these refusals."""
    with capture_logs() as found:
        log = RefusalLog(Access(bans, parse_access(*rules)))
        for protocol, identity in noted:
            log.note(protocol, identity)
    return found


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (([FRIEND.hex()], [], []), "not in access.allow"),
        (([], [OTHER.hex()], []), "in access.deny"),
    ],
)
def test_line_names_the_key_and_the_list(rules, why):
    """A friend who mistyped the key reads it out, and the operator finds it."""
    (line,) = lines(BanList(MemoryStore()), rules, ("bhumi", OTHER), ("bhumi", OTHER))

    assert line == {
        "event": "identity.refused",
        "log_level": "info",
        "protocol": "bhumi",
        "id52": encode_id52(OTHER),
        "why": why,
    }


def test_ban_is_named_before_the_lists():
    """A ban wins over both lists."""
    bans = BanList(MemoryStore())
    bans.add(Ban(parse_subject(OTHER.hex()), "spam", 1, None))

    (line,) = lines(bans, ([], [OTHER.hex()], []), ("merk", OTHER))

    assert line["why"] == "banned"


def test_each_protocol_has_its_line_and_others_have_none():
    """Whom only the published policy refuses is in neither list."""
    found = lines(BanList(MemoryStore()), ([], [OTHER.hex()], []), ("merk", OTHER), ("bsp", OTHER), ("bsp", FRIEND))

    assert [line["protocol"] for line in found] == ["merk", "bsp"]
