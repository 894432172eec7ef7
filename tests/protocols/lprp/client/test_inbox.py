"""Laws of protocols.lprp.inbox, as a client's owner and its host see them."""

import pytest

from tests.protocols.lprp.build_client import CODEC, EASY, FRIEND, HOST, STRANGER, US, WALL_MS, Stage, mail
from waystation.core.ids import PublicKey
from waystation.protocols.lprp.client.events import PacketArrived, PacketDropped
from waystation.protocols.lprp.client.inbox import ANSWER_AGAIN_MS, ANSWERED_MAX, UNCONFIRMED_MAX
from waystation.protocols.lprp.client.seen_packets import SeenInMemory
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.wire import delivered_by, signed_part

AGE_MS_MAX = EASY.mail_age_ms_max


def arrived(**options):
    """A stage with one packet told and not confirmed, and that packet."""
    stage = Stage(**options)
    packet = mail()
    stage.hear(packet)
    assert stage.told() == [PacketArrived(packet)]
    return stage, packet


def confirmed(**options):
    stage, packet = arrived(**options)
    stage.client.confirm(packet.signature, stage.now)
    return stage, packet


def test_packet_is_told_and_not_yet_confirmed():
    """The host hears nothing before the application has it."""
    stage, _ = arrived()

    assert stage.sent() == []
    assert stage.client.sizes()["unconfirmed"] == 1


def test_confirm_tells_the_host():
    """802 names the packet, in our key's name (LPRP-D16), signed by us."""
    stage, packet = confirmed()
    said = stage.said()

    assert (said.command, said.reference, said.recipient) == (Command.DELIVERED, packet.signature, HOST.public)
    assert delivered_by(said, HOST.public) == US.public
    assert stage.client.sizes()["unconfirmed"] == 0


def test_repeat_before_confirm_is_left_alone():
    """The application is still at it: neither told again nor answered."""
    stage, packet = arrived()
    stage.hear(packet)

    assert stage.told() == [PacketDropped(Refusal.DUPLICATE, FRIEND.public)]
    assert stage.sent() == []


def test_repeat_after_confirm_gets_a_fresh_answer():
    """The 802 was lost: another goes, and the packet is not told again."""
    stage, packet = confirmed()
    first = stage.said()
    stage.now_ms += ANSWER_AGAIN_MS
    stage.hear(packet)

    again = stage.said()
    assert (again.command, again.reference) == (Command.DELIVERED, packet.signature)
    assert again.time_ms > first.time_ms
    assert stage.told() == [PacketDropped(Refusal.DUPLICATE, FRIEND.public)]


def test_repeats_do_not_set_the_rate_of_our_answers():
    """Whoever replays a packet a hundred times within the moment gets no second signature out of us."""
    stage, packet = confirmed()
    stage.sent()
    for _ in range(100):
        stage.hear(packet)

    assert stage.sent() == []


def test_memory_of_answers_is_bounded():
    """Beyond the bound the oldest is forgotten, which only lets its repeat be answered at once."""
    stage, packet = confirmed()
    answered = stage.client._inbox._answered_until
    answered.update((number.to_bytes(64, "big"), stage.now) for number in range(ANSWERED_MAX - 1))
    other = mail(b"one more")
    stage.hear(other)
    stage.client.confirm(other.signature, stage.now)
    stage.sent()
    stage.hear(packet)

    assert len(answered) == ANSWERED_MAX
    assert stage.said().reference == packet.signature


def test_confirm_of_nothing_is_ignored():
    """Neither a signature never told nor a second confirm says anything."""
    stage, packet = confirmed()
    stage.sent()
    stage.client.confirm(packet.signature, stage.now)
    stage.client.confirm(bytes(64), stage.now)

    assert stage.sent() == []


def test_packet_handed_back_is_told_again():
    """The application could not keep it: the host's next repeat is a new chance."""
    stage, packet = arrived()
    stage.client.hand_back(packet.signature, stage.now)
    stage.hear(packet)

    assert stage.told() == [PacketArrived(packet)]


def test_confirmed_packet_is_remembered_over_a_restart():
    """A new client with the same memory answers and does not tell again."""
    seen = SeenInMemory()
    _, packet = confirmed(seen=seen)
    stage = Stage(seen=seen)
    stage.hear(packet)

    assert stage.said().command is Command.DELIVERED
    assert stage.told() == [PacketDropped(Refusal.DUPLICATE, FRIEND.public)]


def test_unconfirmed_packet_is_told_again_after_a_restart():
    """What the application did not confirm before a crash comes again."""
    seen = SeenInMemory()
    _, packet = arrived(seen=seen)
    stage = Stage(seen=seen)
    stage.hear(packet)

    assert stage.told() == [PacketArrived(packet)]


def test_memory_lasts_as_long_as_the_packet_could_come_again():
    """Until the moment after which its time alone keeps it out."""

    class Watching(SeenInMemory):
        until_ms = 0

        def add(self, signature, until_ms):
            self.until_ms = until_ms
            super().add(signature, until_ms)

    seen = Watching()
    confirmed(seen=seen)

    assert seen.until_ms == WALL_MS + AGE_MS_MAX + 1


@pytest.mark.parametrize(
    ("age_ms", "is_taken"),
    [
        (-CLOCK_WINDOW_MS, True),
        (-CLOCK_WINDOW_MS - 1, False),
        (AGE_MS_MAX, True),
        (AGE_MS_MAX + 1, False),
        (CLOCK_WINDOW_MS + 1, True),
    ],
)
def test_clock_rule_of_relayed_packets(age_ms, is_taken):
    """Not newer than 2^19 ms, not older than a host keeps mail: a lease, 2^25 and 2^19 ms (LPRP-D9, LPRP-AGE)."""
    stage = Stage()
    packet = mail(time_ms=WALL_MS - age_ms)
    stage.hear(packet)

    expected = PacketArrived(packet) if is_taken else PacketDropped(Refusal.CLOCK, FRIEND.public)
    assert stage.told() == [expected]


def test_packet_that_is_too_old_does_not_keep_its_place():
    """It is dropped and confirmed, at most every 50 ms; a forged one, and one of the future, are only dropped."""
    stage = Stage()
    packet = mail(time_ms=WALL_MS - AGE_MS_MAX - 1)
    forged = packet.data[:-1] + bytes((packet.data[-1] ^ 1,))
    for data in (packet, packet, forged, mail(time_ms=WALL_MS + CLOCK_WINDOW_MS + 1)):
        stage.hear(data)
    said = stage.sent()
    stage.now_ms += 50
    stage.hear(packet)

    assert [(answer.command, answer.reference) for answer in said] == [(Command.DELIVERED, packet.signature)]
    assert [answer.reference for answer in stage.sent()] == [packet.signature]
    assert [event.refusal for event in stage.told(PacketDropped)] == [
        Refusal.CLOCK,
        Refusal.CLOCK,
        Refusal.BAD_SIGNATURE,
        Refusal.CLOCK,
        Refusal.CLOCK,
    ]


@pytest.mark.parametrize("at", [0, 40, 63, 70, 80, 144, 148])
def test_host_cannot_change_a_packet(at):
    """Signature, time, sender and payload are the sender's own: a bit changed by the host keeps the packet out."""
    stage = Stage()
    data = bytearray(mail().data)
    data[at] ^= 1
    stage.hear(bytes(data))

    (dropped,) = stage.told()
    assert dropped.refusal in (Refusal.BAD_SIGNATURE, Refusal.CLOCK)
    assert stage.sent() == []


def test_packet_for_somebody_else_is_dropped():
    """A packet that its sender aimed at another is nothing for us, whoever hands it over."""
    stage = Stage()
    stage.hear(mail(to=STRANGER.public))

    assert stage.told() == [PacketDropped(Refusal.NOT_FOR_US, FRIEND.public)]


@pytest.mark.parametrize("key", ["00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f"])
def test_sender_that_is_no_key_is_dropped(key):
    """A point of small order signs for everybody; its packets never reach the signature check."""
    stage = Stage()
    genuine = mail()
    forged = genuine.data[:72] + bytes.fromhex(key) + genuine.data[104:]
    stage.hear(forged)

    assert stage.told() == [PacketDropped(Refusal.SMALL_ORDER_KEY, PublicKey(bytes.fromhex(key)))]


def test_all_payloads_from_nothing_to_the_most():
    """0 and 364 bytes arrive as they were sent."""
    stage = Stage()
    for payload in (b"", b"\xff" * 364):
        stage.hear(mail(payload))

    assert [event.packet.payload for event in stage.told(PacketArrived)] == [b"", b"\xff" * 364]


def test_unconfirmed_packets_are_bounded_and_nothing_is_lost():
    """An application that confirms nothing gets so many and no more; with room again, the host's repeat is told."""
    stage = Stage()
    body = mail().data
    for number in range(UNCONFIRMED_MAX):
        stage.client._inbox._unconfirmed[number.to_bytes(64, "big")] = WALL_MS
    stage.hear(body)
    assert stage.told() == [PacketDropped(Refusal.QUEUE_FULL, FRIEND.public)]
    stage.client.confirm((0).to_bytes(64, "big"), stage.now)
    stage.hear(body)

    assert stage.told() == [PacketArrived(CODEC.read(body))]
    assert signed_part(body) == body[64:]


def test_packet_to_ourselves_arrives():
    """Who writes to himself gets it like anybody else (LPRP-D23)."""
    stage = Stage()
    packet = mail(sender=US)
    stage.hear(packet)

    assert stage.told() == [PacketArrived(packet)]
