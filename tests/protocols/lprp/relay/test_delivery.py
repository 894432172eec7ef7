"""When mail leaves, driven by pump and wake alone."""

from tests.protocols.lprp.build import HOST, NOW_MS, TENANT, VISITOR, sealed
from tests.protocols.lprp.build_parts import Parts
from tests.protocols.lprp.build_relay import AFAR, AT_HOME, START
from waystation.core.instant import after_ms
from waystation.protocols.lprp.messages import WINDOW_PACKETS, Command
from waystation.protocols.lprp.relay.delivery import Delivery

C1, C2 = 100, 3


class Post:
    """One tenant at a proved place, and its letters."""

    def __init__(self, count=0, *, proved=True, key=TENANT):
        self.parts, self.now, self.left, self.beats = Parts(), START, [], 0
        self.tenant = self.parts.tenant(key)
        self.delivery = Delivery(C1, C2, lambda address, data: self.left.append((self.at, address, data)))
        self.source = self.parts.hear(AT_HOME, 144)
        if proved:
            self.source.prove(key.public)
        self.letters = [self.parts.letter(number, recipient=key) for number in range(count)]

    @property
    def at(self):
        """Milliseconds since the start."""
        return (self.now - START) // 1_000

    def meet(self, size=0):
        """Hear a newer packet of the tenant, and look after its mail."""
        self.beats += 1
        self.parts.sources.receive(AT_HOME, size, self.now)
        self.tenant.update_contact(
            sealed(TENANT, HOST, Command.HEARTBEAT, b"", NOW_MS + self.beats),
            self.source,
            self.source.address,
            self.now,
        )
        self.delivery.pump(self.tenant, self.now)

    def pass_ms(self, duration_ms):
        """Wake at every deadline on the way."""
        end = after_ms(self.now, duration_ms)
        while (due := self.delivery.deadline()) is not None and due <= end:
            self.now = due
            self.delivery.wake(self.now)
        self.now = end

    def times_of(self, number):
        """Return when a letter left."""
        return [at for at, _, data in self.left if data == self.letters[number].data]


def test_nobody_to_send_to():
    """A delivery without mail has no deadline."""
    post = Post()
    post.meet()

    assert post.delivery.deadline() is None and len(post.delivery) == 0 and post.left == []


def test_small_letters_pass_large_ones_that_nobody_has_paid_for():
    """What an unproved address has earned goes to whichever letter it is enough for; the rest waits for a packet."""
    post = Post(proved=False)
    large = post.parts.letter(1, recipient=TENANT, payload=bytes(364))
    small = post.parts.letter(2, recipient=TENANT, payload=bytes(64))
    post.source.sent_to_tenant(144)  # the answer to its heartbeat: 432 bytes are left
    post.meet()
    first = [data for _, _, data in post.left]
    post.pass_ms(5 * C1)
    post.meet(208)
    rest = [data for _, _, data in post.left[1:]]

    assert first == [small.data]
    assert large.data in rest and post.tenant.tries == 1


def test_mail_follows_its_tenant():
    """What was under way to another address leaves at once for the new one, however short ago it went (LPRP-MOVED)."""
    post = Post(2)
    post.meet()
    post.source = post.parts.hear(AFAR, 144)
    post.source.prove(TENANT.public)
    post.meet()
    post.meet()

    assert [(at, address) for at, address, _ in post.left] == [(0, AT_HOME)] * 2 + [(0, AFAR)] * 2


def test_row_of_tries():
    """A silent tenant is sent its mail c2 times, each pause c1 longer, then sleeps; a newer packet begins anew."""
    post = Post(1)
    post.meet()
    post.pass_ms(599)
    awake = post.tenant.dormant
    post.pass_ms(5_000)
    asleep = post.tenant.dormant, len(post.delivery)
    post.meet()

    assert (awake, asleep) == (False, (True, 0))
    assert post.times_of(0) == [0, 100, 300, 5_599]


def test_sleep_comes_at_its_time():
    """Dormant c1 * c2 after the last copy, not a microsecond earlier."""
    post = Post(1)
    post.meet()
    post.pass_ms(600)

    assert post.tenant.dormant and post.times_of(0) == [0, 100, 300]


def test_new_mail_leaves_at_once():
    """A letter that was never sent does not wait for the row, and keeps its own time in it."""
    post = Post(2)
    (second,) = [post.tenant.mailbox.remove(post.letters[1].signature)]
    post.meet()
    post.pass_ms(50)
    post.tenant.mailbox.add(second)
    post.delivery.pump(post.tenant, post.now)
    post.pass_ms(400)

    assert post.times_of(0) == [0, 100, 300]
    assert post.times_of(1) == [50, 300]  # at 100 it was younger than c1


def test_window():
    """Sixteen letters are under way; each that is confirmed lets the next one go."""
    post = Post(18)
    post.meet()
    first = len(post.left)
    post.tenant.mailbox.remove(post.letters[0].signature)
    post.delivery.pump(post.tenant, post.now)

    assert first == WINDOW_PACKETS and post.times_of(16) == [0] and post.times_of(17) == []


def test_confirmed_letters_are_not_sent_again():
    """What left the mailbox leaves no more."""
    post = Post(2)
    post.meet()
    post.tenant.mailbox.remove(post.letters[0].signature)
    post.pass_ms(1_000)

    assert (post.times_of(0), post.times_of(1)) == ([0], [0, 100, 300])


def test_last_confirmation_stops_the_clock():
    """Nothing rings for an empty mailbox."""
    post = Post(1)
    post.meet()
    post.tenant.mailbox.remove(post.letters[0].signature)
    post.delivery.pump(post.tenant, post.now)

    assert post.delivery.deadline() is None and len(post.delivery) == 0


def test_contact_resends_only_what_is_c1_old():
    """A newer packet 99 ms after a copy brings no second copy; one after 100 ms does."""
    post = Post(1)
    post.meet()
    post.pass_ms(99)
    post.meet()
    post.now = after_ms(post.now, 1)
    post.meet()

    assert post.times_of(0) == [0, 100] and post.tenant.tries == 1


def test_stale_address_is_left_alone():
    """After 2**17 ms of silence nothing leaves, whatever was due; the sleep of c2 does not come into it."""
    parts = Parts()
    tenant, source = parts.tenant(), parts.hear()
    source.prove(TENANT.public)
    tenant.update_contact(sealed(TENANT, HOST, Command.HEARTBEAT, b"", NOW_MS), source, source.address, START)
    parts.letter()
    parts.delivery.pump(tenant, after_ms(START, 1 << 17))

    assert parts.sent == [] and not tenant.dormant
    parts.delivery.pump(tenant, after_ms(START, (1 << 17) - 1))
    assert len(parts.sent) == 1


def test_nobody_heard_from():
    """Without an address nothing leaves."""
    post = Post(1)
    post.delivery.pump(post.tenant, post.now)

    assert post.left == [] and post.delivery.deadline() is None


def test_unproved_place_gets_what_it_paid_for():
    """Letters of 208 bytes leave while four times what came allows them; the next packet frees more."""
    post = Post(5, proved=False)
    post.meet()
    first = [post.times_of(number) for number in range(5)]
    post.now = after_ms(post.now, 10)
    post.meet(size=52)

    assert first == [[0], [0], [], [], []]  # 4 * 144 = 576 = 2 * 208 + 160
    assert post.times_of(2) == [10] and post.times_of(3) == []  # 160 + 208 = 368
    assert post.source.bytes_out == 3 * 208


def test_unpaid_mail_is_no_try():
    """When not even one letter could leave nobody is put to sleep for it: the next packet pays."""
    post = Post(1, proved=False)
    post.source.bytes_out = 4 * 144
    post.meet()
    post.pass_ms(10_000)
    silent = post.left[:], post.tenant.tries, post.delivery.deadline()
    post.meet(size=144)

    assert silent == ([], 0, None) and not post.tenant.dormant
    assert post.times_of(0) == [10_000]


def test_stop():
    """Whoever is stopped gets nothing until the next pump."""
    post = Post(1)
    post.meet()
    post.delivery.stop(post.tenant)
    post.delivery.stop(post.tenant)
    post.pass_ms(10_000)

    assert post.times_of(0) == [0] and not post.tenant.dormant


def test_early_wake_sends_nothing():
    """A wake before the time changes nothing."""
    post = Post(1)
    post.meet()
    post.now = after_ms(post.now, 99)
    post.delivery.wake(post.now)
    post.delivery.pump(post.tenant, post.now)

    assert post.times_of(0) == [0] and post.delivery.deadline() == after_ms(START, 100)


def test_late_wake_is_one_try():
    """However late the wake, one copy leaves, and the next pause is counted from it."""
    post = Post(1)
    post.meet()
    post.now = after_ms(post.now, 250)
    post.delivery.wake(post.now)
    post.pass_ms(1_000)

    assert post.times_of(0) == [0, 250, 450]


def test_tenants_have_their_own_rows():
    """What one tenant leaves unanswered does not touch the times of another."""
    post = Post(1)
    other, place = post.parts.tenant(VISITOR), post.parts.hear(AFAR)
    place.prove(VISITOR.public)
    post.letters.append(post.parts.letter(9, recipient=VISITOR))
    post.meet()
    post.pass_ms(30)
    other.update_contact(sealed(VISITOR, HOST, Command.HEARTBEAT), place, place.address, post.now)
    post.delivery.pump(other, post.now)
    both = len(post.delivery)
    post.pass_ms(1_000)

    assert (post.times_of(0), post.times_of(1), both) == ([0, 100, 300], [30, 130, 330], 2)


def test_proof_of_another():
    """What one tenant has proved of a place is no proof for the mail of another that names it."""
    post = Post(0)
    other = post.parts.tenant(VISITOR)
    for number in range(5):
        post.letters.append(post.parts.letter(number, recipient=VISITOR))
    other.update_contact(sealed(VISITOR, HOST, Command.HEARTBEAT), post.source, post.source.address, post.now)
    post.delivery.pump(other, post.now)

    assert len(post.left) == 2  # 4 * 144 = 576 = 2 * 208 + 160
