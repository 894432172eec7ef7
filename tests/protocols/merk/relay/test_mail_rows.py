"""Laws of the rows of mailboxes: what is written is read, and what is not ours stops the node."""

from itertools import chain

import pytest

from tests.protocols.merk.build_mail import ALICE, BOB, HOME, frame_to, presence_of
from waystation.core.errors import HostError
from waystation.core.records import Record
from waystation.protocols.merk import wire
from waystation.protocols.merk.relay import mail_rows
from waystation.protocols.merk.relay.mail_rows import BOXES, MAIL, BoxRow, MailRow
from waystation.store.memory import MemoryStore

BOX = BoxRow(wire.encode_info(presence_of(BOB))[1:], 77, HOME)
TOLD = BOX._replace(advert=wire.encode_info(wire.make_advert(BOB, b"a" * 32, 5))[1:])
ROW = MailRow(5, 9, b"h" * 16, HOME, frame_to(BOB))


def store_with(*rows):
    """Return a store with rows of (table, key, value)."""
    store = MemoryStore()
    store.commit([Record(*row) for row in rows])
    return store


def test_what_is_written_is_read():
    """Mailboxes by owner, frames by owner and number."""
    store = store_with(
        (BOXES, BOB.public, mail_rows.encode_box(BOX)),
        *((MAIL, mail_rows.mail_key(BOB.public, number), mail_rows.encode_mail(ROW)) for number in (300, 2)),
    )

    assert list(mail_rows.box_rows(store)) == [(BOB.public, BOX)]
    assert list(mail_rows.mail_rows(store)) == [(BOB.public, 2, ROW), (BOB.public, 300, ROW)]


def test_a_mailbox_has_its_owners_advert():
    """Where it has said one."""
    store = store_with((BOXES, BOB.public, mail_rows.encode_box(TOLD)))

    assert list(mail_rows.box_rows(store)) == [(BOB.public, TOLD)]


def test_many_rows_are_read_page_by_page():
    """None is left out, and none comes twice."""
    value = mail_rows.encode_mail(ROW)
    store = store_with(*((MAIL, mail_rows.mail_key(BOB.public, number), value) for number in range(33)))

    assert [number for _, number, _ in mail_rows.mail_rows(store)] == list(range(33))


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (BOXES, b"k", mail_rows.encode_box(BOX)),
        *((BOXES, BOB.public, value) for value in (b"", b"\x02" + mail_rows.encode_box(BOX)[1:])),
        *((BOXES, BOB.public, value) for value in (mail_rows.encode_box(BOX)[:-1], mail_rows.encode_box(BOX) + b"x")),
        *((BOXES, BOB.public, value) for value in (mail_rows.encode_box(TOLD)[:-1], mail_rows.encode_box(TOLD) + b"x")),
        (MAIL, BOB.public, mail_rows.encode_mail(ROW)),
        *((MAIL, BOB.public + bytes(8), value) for value in (b"", b"\x02" + mail_rows.encode_mail(ROW)[1:])),
        (MAIL, BOB.public + bytes(8), mail_rows.encode_mail(ROW._replace(frame=b"short"))),
    ],
)
def test_a_row_of_another_layout_stops_the_node(table, key, value):
    """A newer waystation wrote it, and this one must not delete what it cannot read."""
    store = store_with((table, key, value))

    with pytest.raises(HostError) as caught:
        list(chain(mail_rows.box_rows(store), mail_rows.mail_rows(store)))
    assert caught.value.exit_code == 5


def test_the_number_of_a_damaged_row_is_not_used_again():
    """Its row may still be on disk, and would be taken for the new frame's."""
    store = MemoryStore()
    for key, is_good in ((ALICE.public + (40).to_bytes(8, "big"), True), (b"rubbish", False)):
        store.damage.note(MAIL, key, key_is_good=is_good)

    assert mail_rows.next_number(store, 3) == 41
    assert mail_rows.next_number(store, 50) == 51


def test_owners_of_damaged_mailboxes_are_known_by_key():
    """Where the key is lost too, nobody is."""
    store = MemoryStore()
    for key, is_good in ((BOB.public, True), (ALICE.public, False), (b"short", True)):
        store.damage.note(BOXES, key, key_is_good=is_good)

    assert mail_rows.lost_boxes(store) == [BOB.public]
