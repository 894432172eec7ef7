"""What stands on disk, what comes back from it, and what is said of rows that nobody wrote like that."""

import random

import pytest

from tests.protocols.lprp.build import FRIENDS, NOW_MS, SENDER, TENANT, VISITOR
from tests.protocols.lprp.build_parts import LEASE_MS, Parts
from tests.protocols.lprp.build_relay import START, key_of
from waystation.core.errors import HostError
from waystation.core.records import Record
from waystation.protocols.lprp.relay.ledger import BUNDLE_PACKETS_MAX, Ledger
from waystation.protocols.lprp.relay.mailbox import QueuedPacket
from waystation.protocols.lprp.relay.tenants import Tenant, Tenants
from waystation.store.memory import MemoryStore


def of_bundle(parts, count):
    """Commit so many letters of the tenant in one bundle and return them."""
    letters = [parts.letter(number) for number in range(count)]
    parts.commit()
    return letters


def finish(parts, letters):
    """Confirm letters and commit."""
    tenant = parts.tenants.find(TENANT.public, NOW_MS)
    for letter in letters:
        tenant.mailbox.remove(letter.signature)
        parts.ledger.note_gone(letter)
    return parts.commit()


def with_letters(count):
    """Return parts with one bundle of so many letters, and these."""
    parts = Parts()
    parts.tenant()
    return parts, of_bundle(parts, count)


def waiting(parts):
    """Return what waits for the tenant, by its bytes."""
    return [letter.data for letter in parts.tenants.find(TENANT.public, NOW_MS).mailbox]


# There and back


def test_new_ledger_is_clean():
    """Nothing is to be written before anything changes, and a new store holds nobody."""
    parts = Parts()

    assert not parts.ledger.is_dirty and parts.ledger.changes() == ()
    assert parts.loaded == 0 and list(parts.tenants) == []


def test_tenant_comes_back():
    """All four times of a tenant and its whitelist come back as they were; where it was does not."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.last_ts, tenant.state_ts, tenant.whitelist_at_ms = 11, 22, 33
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    parts.commit()
    back = parts.reborn().tenants.find(TENANT.public, NOW_MS)

    assert (back.lease_at_ms, back.last_ts, back.state_ts, back.whitelist_at_ms) == (NOW_MS, 11, 22, 33)
    assert back.whitelist == frozenset(FRIENDS) and back.source is None and back.kept_ts == 11


def test_rows_of_a_tenant():
    """The layout is the documented one: version, lease, newest time, state time, whitelist time; keys in order."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.last_ts, tenant.state_ts, tenant.whitelist_at_ms = 1, 2, 3
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    parts.commit()
    numbers = b"".join(number.to_bytes(8, "big") for number in (NOW_MS, 1, 2, 3))

    assert parts.rows("tenants") == [(TENANT.public, b"\x01" + numbers)]
    assert parts.rows("whitelists") == [(TENANT.public, b"".join(sorted(FRIENDS)))]


def test_rows_of_letters():
    """A bundle is one row: version, then flags, time of acceptance, length and bytes of each packet."""
    parts = Parts()
    parts.tenant()
    first, second = parts.letter(0, from_unlisted=True), parts.letter(1, payload=bytes(364))
    parts.commit()
    entries = [
        bytes([letter.from_unlisted]) + letter.accepted_ms.to_bytes(8, "big") + len(letter.data).to_bytes(2, "big")
        for letter in (first, second)
    ]

    assert parts.rows("packets") == [(bytes(7) + b"\x01", b"\x01" + entries[0] + first.data + entries[1] + second.data)]
    assert parts.rows("done") == []


def test_letters_come_back():
    """Letters come back byte for byte in their order, with what is known of them."""
    parts, letters = with_letters(5)
    parts.letter(5, from_unlisted=True)
    parts.commit()
    again = parts.reborn()
    mailbox = list(again.tenants.find(TENANT.public, NOW_MS).mailbox)

    assert [letter.data for letter in mailbox[:5]] == [letter.data for letter in letters]
    assert [(letter.accepted_ms, letter.from_unlisted) for letter in mailbox[4:]] == [
        (NOW_MS + 4, False),
        (NOW_MS + 5, True),
    ]
    assert again.loaded == 6 and again.relaying.mail_count == 6


def test_empty_whitelist_has_no_row():
    """A list that became empty is no row."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    parts.commit()
    tenant.whitelist = frozenset()
    parts.ledger.note_whitelist(tenant)
    parts.commit()

    assert parts.rows("whitelists") == [] and parts.rows("tenants") != []


def test_changes_are_told_once():
    """What was given out to be committed is not given out again."""
    parts, _ = with_letters(2)

    assert not parts.ledger.is_dirty and parts.ledger.changes() == ()


def test_one_row_per_tenant_and_commit():
    """However often a tenant changes between two commits, it is one row with what holds then."""
    parts = Parts()
    tenant = parts.tenant()
    for number in range(50):
        tenant.last_ts = number
        parts.ledger.note_tenant(tenant)
    changes = parts.commit()

    assert len(changes) == 1 and parts.reborn().tenants.find(TENANT.public, NOW_MS).last_ts == 49


def test_time_on_disk_never_goes_back():
    """A time that was written ahead stays until the tenant's own is newer."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.last_ts, tenant.kept_ts = 100, 1_100
    parts.ledger.note_tenant(tenant)
    parts.commit()
    ahead = parts.reborn().tenants.find(TENANT.public, NOW_MS).last_ts
    tenant.last_ts = 2_000
    parts.ledger.note_tenant(tenant)
    parts.commit()

    assert (ahead, parts.reborn().tenants.find(TENANT.public, NOW_MS).last_ts) == (1_100, 2_000)


def test_forgotten_tenant_leaves_no_rows():
    """A tenant that is forgotten takes its rows along, and its letters' bundle when that was theirs alone."""
    parts, letters = with_letters(3)
    tenant = parts.tenants.find(TENANT.public, NOW_MS)
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    parts.commit()
    parts.ledger.forget(tenant)
    for letter in letters:
        parts.ledger.note_gone(letter)
    parts.commit()

    assert [parts.rows(table) for table in ("tenants", "whitelists", "packets", "done")] == [[], [], [], []]


def test_tenant_forgotten_with_its_last_change():
    """A list that changed and a tenant that is forgotten within one commit leave no row."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    parts.ledger.forget(tenant)
    parts.commit()

    assert parts.rows("tenants") == parts.rows("whitelists") == []


def test_newcomer_with_a_forgotten_key():
    """A key that is forgotten and gets a lease in the same commit has its row, and none of the old list."""
    parts = Parts()
    tenant = parts.tenant()
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    parts.commit()
    parts.ledger.forget(tenant)
    newcomer = Tenant(TENANT.public, 2, NOW_MS + 9)
    parts.ledger.note_tenant(newcomer)
    parts.commit()
    back = parts.reborn().tenants.find(TENANT.public, NOW_MS + 9)

    assert (back.lease_at_ms, back.whitelist) == (NOW_MS + 9, frozenset())


# Bundles


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17])
def test_bitmap_says_what_is_done(count):
    """One bit per packet, lowest first, from the first confirmation on; the rest comes back."""
    parts, letters = with_letters(count)
    finish(parts, letters[:1])
    expected = [(bytes(7) + b"\x01", (1).to_bytes((count + 7) // 8, "little"))] if count > 1 else []

    assert parts.rows("done") == expected
    assert waiting(parts.reborn()) == [letter.data for letter in letters[1:]]


def test_done_bundle_goes():
    """When all of a bundle is done both of its rows go, in the commit of the last confirmation."""
    parts, letters = with_letters(4)
    finish(parts, letters[:2])
    marked = len(parts.rows("done"))
    changes = finish(parts, letters[2:])

    assert marked == 1 and parts.ledger.bundles_count == 0
    assert changes == (Record("lprp_packets", bytes(7) + b"\x01", None), Record("lprp_done", bytes(7) + b"\x01", None))


@pytest.mark.parametrize(
    ("count", "done", "moves"), [(8, 5, False), (8, 6, True), (7, 6, False), (12, 8, False), (12, 9, True)]
)
def test_few_that_are_left_move_on(count, done, moves):
    """From eight packets on, when at most one in four is left these move to a new bundle in the same commit."""
    parts, letters = with_letters(count)
    finish(parts, letters[:done])
    ((key, value),) = parts.rows("packets")

    assert (key == bytes(7) + b"\x02") == moves
    assert (len(value) == 1 + (count - done) * (11 + 208)) == moves
    assert len(parts.rows("done")) == (not moves) and parts.ledger.bundles_count == 1
    assert waiting(parts.reborn()) == [letter.data for letter in letters[done:]]


def test_moved_letters_keep_their_order():
    """What moved on stands in a newer bundle than its age, and still comes back before what is younger."""
    parts, letters = with_letters(8)
    younger = [parts.letter(100 + number) for number in range(3)]
    parts.commit()
    finish(parts, letters[:6])

    assert waiting(parts.reborn()) == [letter.data for letter in letters[6:] + younger]


def test_moved_letters_can_be_confirmed():
    """A letter that moved is marked where it stands now, in this life and the next."""
    parts, letters = with_letters(8)
    finish(parts, letters[:6])
    finish(parts, letters[6:7])
    again = parts.reborn()
    (left,) = list(again.tenants.find(TENANT.public, NOW_MS).mailbox)
    again.ledger.note_gone(left)
    again.commit()

    assert left.data == letters[7].data
    assert parts.rows("packets") == parts.rows("done") == []


def test_letter_that_is_gone_before_its_commit():
    """It is never written."""
    parts = Parts()
    parts.tenant()
    letter = parts.letter()
    parts.ledger.note_gone(letter)
    parts.commit()

    assert parts.rows("packets") == [] and parts.ledger.bundles_count == 0


def test_bundles_have_a_size():
    """No bundle holds more than 1,024 packets, so that one that stays keeps no more than that on disk."""
    parts = Parts()
    data = bytes(144)
    for number in range(BUNDLE_PACKETS_MAX + 1):
        packet = number.to_bytes(64, "big") + data[64:]
        parts.ledger.note_accepted(QueuedPacket(packet, packet[:64], from_unlisted=False, accepted_ms=0, attempt=0))
    parts.commit()

    sizes = [len(value) for _, value in parts.rows("packets")]
    assert sizes == [1 + BUNDLE_PACKETS_MAX * (11 + 144), 1 + 11 + 144]


def test_numbers_of_bundles_go_on():
    """A life that begins with bundles on disk numbers its own above them."""
    parts, _ = with_letters(1)
    again = parts.reborn()
    again.letter(50)
    again.commit()

    assert [key[-1] for key, _ in parts.rows("packets")] == [1, 2]


def test_bundle_of_forgotten_tenants_goes_at_the_start():
    """A bundle in which nobody's letter is left is dropped by the next life's first commit."""
    parts, _ = with_letters(3)
    parts.store.commit([Record("lprp_tenants", TENANT.public, None)])
    again = parts.reborn()
    dirty = again.ledger.is_dirty
    again.commit()

    assert dirty and parts.rows("packets") == []


def test_letters_of_others_in_one_bundle():
    """Letters of several tenants share a bundle and come back to their own."""
    parts = Parts()
    parts.tenant()
    parts.tenant(VISITOR)
    mine, theirs = parts.letter(0), parts.letter(1, recipient=VISITOR)
    parts.commit()
    again = parts.reborn()

    assert waiting(again) == [mine.data] and len(parts.rows("packets")) == 1
    assert [letter.data for letter in again.tenants.find(VISITOR.public, NOW_MS).mailbox] == [theirs.data]


def test_many_rows_come_back():
    """A store with more rows than are read at once is read to its end: every tenant, list and bundle."""
    parts = Parts(tenants_max=1_000)
    keys = [key_of(number) for number in range(300)]
    for key in keys:
        tenant = parts.tenant(key)
        tenant.whitelist = frozenset({key.public})
        parts.ledger.note_whitelist(tenant)
        packet = key.public * 2 + bytes(40) + key.public + bytes(8)
        letter = QueuedPacket(packet, packet[:64], from_unlisted=False, accepted_ms=NOW_MS, attempt=0)
        tenant.mailbox.add(letter)
        parts.ledger.note_accepted(letter)
        parts.commit()
    again = parts.reborn(tenants_max=1_000)

    assert [len(parts.rows(table)) for table in ("tenants", "whitelists", "packets")] == [300] * 3
    assert (again.loaded, len(again.tenants), again.ledger.bundles_count) == (300, 300, 300)
    assert all(tenant.whitelist == {tenant.key} and len(tenant.mailbox) == 1 for tenant in again.tenants)


def test_leases_come_back_in_their_order():
    """Tenants are loaded by the beginning of their leases, so that they end in that order."""
    parts = Parts()
    parts.tenant(VISITOR, NOW_MS + 5)
    parts.tenant(TENANT, NOW_MS + 3)
    parts.tenant(SENDER, NOW_MS + 4)
    parts.commit()
    again = parts.reborn()
    ended, _, _ = again.tenants.expire(NOW_MS + LEASE_MS + 5, START)

    assert [tenant.key for tenant in ended] == [TENANT.public, SENDER.public]


@pytest.mark.parametrize("seed", range(8))
def test_any_life_comes_back(seed):
    """Whatever was accepted, confirmed and committed: every next life has exactly what waits."""
    rng = random.Random(seed)
    parts = Parts()
    parts.tenant()
    there, number = [], 0
    for _ in range(40):
        for _ in range(rng.choice((0, 1, 2, 9, 20))):
            there.append(parts.letter(number))
            number += 1
        done = rng.sample(there, rng.randint(0, len(there)))
        there = [letter for letter in there if letter not in done]
        finish(parts, done)
        again = parts.reborn()

        assert waiting(again) == [letter.data for letter in there]
        assert again.ledger.bundles_count == parts.ledger.bundles_count == len(parts.rows("packets"))


# Damage


def broken(table, change):
    """Return a store with a tenant, a list and nine letters, one of them done, in which one row was changed."""
    parts, letters = with_letters(9)
    tenant = parts.tenants.find(TENANT.public, NOW_MS)
    tenant.whitelist = frozenset(FRIENDS)
    parts.ledger.note_whitelist(tenant)
    finish(parts, letters[:1])
    ((key, value),) = parts.rows(table)
    new_key, new_value = change(key, value)
    parts.store.commit([Record(f"lprp_{table}", key, None), Record(f"lprp_{table}", new_key, new_value)])
    return parts.store


DAMAGE = {
    "tenant short": ("tenants", lambda key, value: (key, value[:-1])),
    "tenant long": ("tenants", lambda key, value: (key, value + b"\0")),
    "tenant empty": ("tenants", lambda key, _: (key, b"")),
    "tenant newer": ("tenants", lambda key, value: (key, b"\2" + value[1:])),
    "tenant key": ("tenants", lambda key, value: (key[:-1], value)),
    "list cut": ("whitelists", lambda key, value: (key, value[:-1])),
    "list empty": ("whitelists", lambda key, _: (key, b"")),
    "bundle key": ("packets", lambda key, value: (key + b"\0", value)),
    "bundle empty": ("packets", lambda key, _: (key, b"")),
    "bundle of nothing": ("packets", lambda key, _: (key, b"\1")),
    "bundle newer": ("packets", lambda key, value: (key, b"\2" + value[1:])),
    "bundle newer and empty": ("packets", lambda key, _: (key, b"\2")),
    "bundle cut": ("packets", lambda key, value: (key, value[:-1])),
    "bundle cut in an entry": ("packets", lambda key, value: (key, value[: 1 + 2 * 219 + 5])),
    "bundle long": ("packets", lambda key, value: (key, value + b"\0")),
    "packet of 143": ("packets", lambda key, value: (key, value + bytes(9) + b"\0\x8f" + bytes(143))),
    "packet of 509": ("packets", lambda key, value: (key, value + bytes(9) + b"\1\xfd" + bytes(509))),
    "packet twice": ("packets", lambda key, value: (key, value[: 1 + 8 * 219] + value[1 + 219 : 1 + 2 * 219])),
    "bitmap short": ("done", lambda key, value: (key, value[:-1])),
    "bitmap long": ("done", lambda key, value: (key, value + b"\0")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(name):
    """A row that is not one of ours stops the start with exit code 5 and its table's name; nothing is guessed."""
    table, change = DAMAGE[name]
    ledger = Ledger(broken(table, change))

    with pytest.raises(HostError, match="lprp_") as error:
        ledger.load(Tenants(LEASE_MS, 10))
    assert error.value.exit_code == 5


def test_undamaged_rows_load():
    """The same store without damage loads: eight letters wait."""
    ledger = Ledger(broken("tenants", lambda key, value: (key, value)))

    assert ledger.load(Tenants(LEASE_MS, 10)) == 8


def test_any_cut_of_a_bundle_is_told():
    """There is no length at which a cut bundle passes for a whole one, but between two packets."""
    parts, _ = with_letters(3)
    ((key, value),) = parts.rows("packets")
    fine = []
    for size in range(len(value)):
        store = MemoryStore()
        store.commit([Record("lprp_tenants", *parts.rows("tenants")[0]), Record("lprp_packets", key, value[:size])])
        try:
            fine.append((size, Ledger(store).load(Tenants(LEASE_MS, 10))))
        except HostError:
            continue

    assert fine == [(1 + 219, 1), (1 + 2 * 219, 2)]
