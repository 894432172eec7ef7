"""Laws of protocols.bhumi.device_client's extensions: what OPTIONS can bring, and nothing of it unasked."""

import pytest

from tests.protocols.bhumi.build import ALICE, BOB
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import KeyPair, verify
from waystation.protocols.bhumi import extension_wire, messages, signed_records, wire
from waystation.protocols.bhumi.client.base import Greeted, Unsent
from waystation.protocols.bhumi.client.device import (
    CONFIRM_MS,
    DEVICE_FEATURES,
    I_AM_OK_MS,
    PROBES_MAX,
    PROBES_WINDOW_MS,
    Delivered,
    DeviceClient,
    ProbeAsked,
    Registered,
    RelayNamed,
    RelaysReceived,
)
from waystation.protocols.bhumi.extension_messages import (
    BindChallenge,
    IAmOk,
    QaReport,
    QaRequest,
    QaVerdict,
    Relays,
    RelaysRequest,
)
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.refusals import Refusal

RELAY_KEY = KeyPair.from_seed(bytes([0xC3]) * 32)
PEER = Peer(3)
START = Instant(5_000_000)
HELLO = wire.encode(messages.Hello(0x01020304, 65_536))
KEEPALIVE = wire.encode(messages.Keepalive())
EVERYTHING = DEVICE_FEATURES | Feature.DELIVER_WITH_PREIMAGE
CHALLENGE = BindChallenge(RELAY_KEY.public, bytes([9]) * 32)
AD = signed_records.sign_advert(RELAY_KEY, "tls://c:1", 5, 300)
PRESENCE = signed_records.sign_presence(ALICE, RELAY_KEY.public, 5, 300)
UNASKED = {
    "BIND": extension_wire.encode_extension(CHALLENGE),
    "I_AM_OK": extension_wire.encode_extension(IAmOk(1, 2)),
    "RELAYS": extension_wire.encode_extension(Relays((AD,))),
    "QA_REQUEST": extension_wire.encode_extension(QaRequest(7, "tls://c:1", 60)),
}


def device(accepted=EVERYTHING, **options):
    """Return a device whose relay has said HELLO and accepted these features; None says nothing of OPTIONS."""
    options.setdefault("features", DEVICE_FEATURES)
    machine = DeviceClient(ALICE, **options)
    machine.connect(PEER, START)
    machine.receive(PEER, HELLO, START)
    if accepted is not None:
        machine.receive(PEER, wire.encode(messages.Options(accepted)), START)
    machine.take()
    machine.take_events()
    return machine


def hear(machine, *said, now=START):
    """Let the relay say something, as a message or as bytes."""
    frames = [each if isinstance(each, bytes) else extension_wire.encode_extension(each) for each in said]
    machine.receive(PEER, b"".join(frames), now)


def sent(machine):
    """Return what the machine wants on the wire."""
    return b"".join(effect.data for effect in machine.take() if isinstance(effect, Send))


def closed(machine):
    """Return why the machine closes its connection."""
    return [effect.reason for effect in machine.take() if isinstance(effect, Close)]


def test_features_are_asked_for_once():
    """All that the device can do stands in one OPTIONS, before the I_AM."""
    machine = DeviceClient(ALICE, features=DEVICE_FEATURES)
    machine.connect(PEER, START)

    machine.receive(PEER, HELLO, START)

    assert sent(machine).startswith(wire.encode(messages.Options(EVERYTHING)) + b"\x00\x02")


def test_features_without_preimage():
    """A device may want the rest without the preimage."""
    machine = DeviceClient(ALICE, ask_preimage=False, features=Feature.PRESENCE)
    machine.connect(PEER, START)

    machine.receive(PEER, HELLO, START)

    assert sent(machine).startswith(wire.encode(messages.Options(Feature.PRESENCE)) + b"\x00\x02")


def test_i_am_ok_confirms_with_counts():
    """Once accepted, I_AM_OK is the word that counts; the echo of KEEPALIVE before it says nothing."""
    machine = device()
    hear(machine, KEEPALIVE)
    before = machine.take_events()
    hear(machine, IAmOk(16, 2), IAmOk(17, 0))

    assert before == []
    assert machine.take_events() == [
        Registered(confirmed=True, with_preimage=True, commits_count=16, responses_count=2)
    ]


def test_delivery_does_not_stand_for_i_am_ok():
    """A delivery is answered, but says nothing of what the relay has kept."""
    machine = device()

    hear(machine, wire.encode(messages.Deliver(1, b"hi", bytes(32))))

    assert machine.take_events() == [Delivered(1, b"hi", bytes(32))]


def test_missing_i_am_ok_ends_the_connection():
    """A relay that promised I_AM_OK and keeps silent is left; its silence is not taken for consent."""
    machine = device()
    machine.wake(after_ms(START, CONFIRM_MS))
    patient = (machine.take_events(), closed(machine), machine.deadline())
    machine.wake(after_ms(START, I_AM_OK_MS))

    assert patient == ([], [], after_ms(START, I_AM_OK_MS))
    assert closed(machine) == [Refusal.IDLE_TIMEOUT]


def test_echo_confirms_where_i_am_ok_is_unknown():
    """A relay that accepts everything but I_AM_OK is believed by its echo, as before."""
    machine = device(EVERYTHING & ~Feature.I_AM_OK)

    hear(machine, KEEPALIVE)

    assert machine.take_events() == [Registered(confirmed=True, with_preimage=True)]


def test_challenge_is_answered_by_a_bound_proof():
    """The proof covers the relay, its nonce and the identity; the owner learns the relay's key."""
    machine = device()

    hear(machine, CHALLENGE)

    proof = extension_wire.decode_bind_proof(sent(machine)[6:])
    assert machine.take_events() == [RelayNamed(RELAY_KEY.public)]
    assert verify(ALICE.public, signed_records.binding_bytes(CHALLENGE, ALICE.public), proof.signature)


def test_one_proof_a_connection():
    """A relay cannot draw signatures for other relays out of a device."""
    machine = device()

    hear(machine, CHALLENGE, BindChallenge(BOB.public, bytes([1]) * 32))

    assert len(sent(machine)) == 6 + 64
    assert machine.take_events() == [RelayNamed(RELAY_KEY.public)]


def test_relay_in_the_middle_gets_no_proof():
    """A relay that names another than the one we know at this address is left without a signature."""
    machine = device(relay_id=BOB.public)

    hear(machine, CHALLENGE)

    effects = machine.take()
    assert effects == [Close(PEER, Refusal.OTHER_IDENTITY)]


def test_known_relay_gets_its_proof():
    """The relay that we expected is answered."""
    machine = device(relay_id=RELAY_KEY.public)

    hear(machine, CHALLENGE)

    assert machine.take_events() == [RelayNamed(RELAY_KEY.public)]


@pytest.mark.parametrize("frame", UNASKED.values(), ids=UNASKED)
@pytest.mark.parametrize("accepted", [None, Feature.DELIVER_WITH_PREIMAGE])
def test_frames_of_features_not_accepted_are_ignored(frame, accepted):
    """What was not negotiated is neither answered nor believed, and malformed ones do no harm either."""
    machine = device(accepted)
    before = machine.state

    hear(machine, frame, frame[:4] + b"\x00\x01\xff")

    assert (machine.take(), machine.take_events(), machine.state) == ([], [], before)


@pytest.mark.parametrize("frame", UNASKED.values(), ids=UNASKED)
def test_features_not_asked_for_stay_off(frame):
    """A relay that accepts more than it was asked for changes nothing."""
    machine = device(EVERYTHING, features=Feature(0))

    hear(machine, frame)

    assert (machine.take(), machine.take_events()) == ([], [])


@pytest.mark.parametrize("frame", UNASKED.values(), ids=UNASKED)
def test_malformed_extension_closes(frame):
    """A negotiated frame with a byte too many is no frame."""
    machine = device()
    longer = frame[:2] + (len(frame) - 5).to_bytes(4, "big") + frame[6:] + b"\x00"

    hear(machine, longer)

    assert closed(machine) == [Refusal.TRAILING_BYTES]


@pytest.mark.parametrize("frame", UNASKED.values(), ids=UNASKED)
def test_truncated_extension_closes(frame):
    """A negotiated frame is refused at every length below its own."""
    for size in range(6, len(frame)):
        machine = device()
        hear(machine, frame[:2] + (size - 6).to_bytes(4, "big") + frame[6:size])
        assert closed(machine), size


def test_presence_leaves_as_it_was_signed():
    """The relay gets the record's own bytes."""
    machine = device()

    unsent = machine.assert_presence(PRESENCE)

    assert (unsent, sent(machine)) == (None, extension_wire.encode_extension(PRESENCE))


def test_relays_are_told_when_asked():
    """The answer comes as it is, once; what nobody asked for is not heard."""
    machine = device()
    hear(machine, Relays((AD,)))
    unsent = machine.ask_relays()
    asked = sent(machine)
    hear(machine, Relays((AD,)), Relays())

    assert (unsent, asked) == (None, extension_wire.encode_extension(RelaysRequest()))
    assert machine.take_events() == [RelaysReceived((AD,))]


def test_nothing_leaves_that_the_relay_does_not_know():
    """Each command says why it did nothing."""
    machine = device(Feature.DELIVER_WITH_PREIMAGE)
    fresh = DeviceClient(ALICE, features=DEVICE_FEATURES)

    said = [machine.assert_presence(PRESENCE), machine.ask_relays(), machine.refuse_probe(7)]
    assert said == [Unsent.NOT_ACCEPTED, Unsent.NOT_ACCEPTED, Unsent.UNKNOWN_DELIVERY]
    assert [fresh.assert_presence(PRESENCE), fresh.ask_relays()] == [Unsent.NOT_OPEN] * 2
    assert machine.take() == []


def test_probe_is_asked_and_refused():
    """A refusal names the probe, once, and nothing else about anything."""
    machine = device()
    hear(machine, QaRequest(7, "tls://c:1", 60))

    unsent = [machine.refuse_probe(7), machine.refuse_probe(7), machine.refuse_probe(8)]

    assert machine.take_events() == [ProbeAsked(7, "tls://c:1", 60)]
    assert unsent == [None, Unsent.UNKNOWN_DELIVERY, Unsent.UNKNOWN_DELIVERY]
    assert sent(machine) == extension_wire.encode_extension(QaReport(7, QaVerdict.REFUSED, 0))


def test_endless_probes_are_ignored():
    """Above a handful in ten minutes a relay that asks gets no answer at all, and is counted; then it starts anew."""
    machine = device()
    hear(machine, *(QaRequest(number, "tls://c:1", 60) for number in range(1_000)))
    first = machine.take_events()
    later = after_ms(START, PROBES_WINDOW_MS)
    hear(machine, QaRequest(5_000, "tls://c:1", 60), now=later)

    assert len(first) == PROBES_MAX
    assert machine.probes_ignored_count == 1_000 - PROBES_MAX
    assert machine.take_events() == [ProbeAsked(5_000, "tls://c:1", 60)]


def test_nothing_of_it_without_features():
    """Without features the machine says what it always said."""
    plain, asking = DeviceClient(ALICE), DeviceClient(ALICE, features=Feature(0))
    for machine in (plain, asking):
        machine.connect(PEER, START)
        machine.receive(PEER, HELLO, START)

    assert plain.take_events() == [Greeted(65_536)]
    said = sent(plain)
    assert said == sent(asking)
    assert said.startswith(wire.encode(messages.Options(Feature.DELIVER_WITH_PREIMAGE)))


def test_any_chunking_gives_the_same():
    """However the relay's bytes are cut, the same is said and told."""
    told = [CHALLENGE, IAmOk(1, 0), QaRequest(7, "tls://c:1", 60)]
    data = b"".join(extension_wire.encode_extension(each) for each in told)
    whole, cut = device(), device()
    hear(whole, data)
    for index in range(len(data)):
        hear(cut, data[index : index + 1])

    assert cut.take_events() == whole.take_events()
    assert sent(cut) == sent(whole)
