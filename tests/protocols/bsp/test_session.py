"""Laws of protocols.bsp.session: one connection, every state against every message."""

import itertools

import pytest

from tests.protocols.bsp.build_machine import Bench
from tests.protocols.bsp.build_streams import (
    CERTIFICATE,
    CLIENT_NONCE,
    FRIEND,
    SERVER_NONCE,
    STRANGER,
    US,
    hello_of,
    proof_of,
    verdict_of,
)
from waystation.core.effects import Peer
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.session import HANDSHAKING, TRANSITIONS, Move, Session, State
from waystation.protocols.bsp.stream.handshake import Acceptor, Dialler
from waystation.protocols.bsp.wire import RecordReader

NOW = Instant(1_000_000)
RECORDS = b"\x01\x00\x00\x20" + bytes(32) + b"\x01\x02\x00\x20" + bytes(32)


def accepting():
    return Session(Peer(1), "tls", RecordReader(SEED), NOW, handshake=Acceptor(US, SERVER_NONCE, CERTIFICATE))


def dialling(expected=US):
    ours = Dialler(FRIEND, CLIENT_NONCE, expected.public, CERTIFICATE)
    return Session(
        Peer(2), "tls", RecordReader(SEED), NOW, handshake=ours, key=expected.public, began_at=Instant(NOW - 5)
    )


def plain():
    return Session(Peer(3), "plain", RecordReader(SEED), NOW, key=FRIEND.public)


def welcome(_key):
    return None


def unwanted(refusal):
    return lambda _key: refusal


# Every state and message, at the machine


def reach(state):
    """Return a bench and a connection that stands in ``state``."""
    if state in (State.DIALLING, State.PROVING):
        bench = Bench(dials={FRIEND.public: "bsp+tls://friend.example"})
        bench.pass_ms(0)
        peer = bench.dialled(FRIEND)
        if state is State.PROVING:
            bench.say(peer, hello_of(FRIEND))
        return bench, peer
    bench = Bench(saves=state is not State.ENDING, plain_peer=FRIEND.public)
    if state is State.ACCEPTING:
        return bench, bench.come()
    peer = bench.come("plain")
    if state is not State.OPEN:
        bench.say(peer, bench.encoded(bench.message()))
        bench.machine.half_closed(peer, bench.now)
        bench.settle()
    return bench, peer


def messages_for(bench, peer):
    """Return one of each thing that can be said, as right as it can be at this connection."""
    heard = bench.take_sent(peer)
    if len(heard) == 136:  # our proof
        proof, verdict = proof_of(FRIEND, hello_of(US)), verdict_of(FRIEND, heard)
    else:
        proof = proof_of(FRIEND, heard if len(heard) == 72 else hello_of(US))
        verdict = verdict_of(FRIEND, proof_of(US, hello_of(FRIEND)))
    return {"hello": hello_of(FRIEND), "proof": proof, "verdict": verdict, "records": RECORDS, "junk": b"\xee" * 200}


OUTCOMES = {
    State.ACCEPTING: {
        "hello": "waits",
        "proof": "open",
        "verdict": Refusal.HANDSHAKE,
        "records": Refusal.HANDSHAKE,
        "junk": Refusal.HANDSHAKE,
    },
    State.DIALLING: {
        "hello": "waits",
        "proof": "waits",  # its beginning is a hello
        "verdict": Refusal.HANDSHAKE,
        "records": Refusal.HANDSHAKE,
        "junk": Refusal.HANDSHAKE,
    },
    State.PROVING: {
        "hello": Refusal.BAD_SIGNATURE,
        "proof": Refusal.BAD_SIGNATURE,
        "verdict": "open",
        "records": Refusal.BAD_SIGNATURE,
        "junk": Refusal.BAD_SIGNATURE,
    },
    State.OPEN: {
        "hello": Refusal.VERSION,
        "proof": Refusal.VERSION,
        "verdict": Refusal.VERSION,
        "records": "open",
        "junk": Refusal.VERSION,
    },
    State.ENDING: dict.fromkeys(("hello", "proof", "verdict", "records", "junk"), "open"),
    State.CLOSED: dict.fromkeys(("hello", "proof", "verdict", "records", "junk"), Refusal.HALF_CLOSED),
}
PAIRS = [(state, said, outcome) for state, by_message in OUTCOMES.items() for said, outcome in by_message.items()]


@pytest.mark.parametrize(("state", "said", "outcome"), PAIRS)
def test_every_message_in_every_state(state, said, outcome):
    """Each message in each state is taken, waited for, ignored, or ends the connection for a documented reason."""
    bench, peer = reach(state)

    bench.say(peer, messages_for(bench, peer)[said])

    reason = bench.reason_of(peer)
    is_open = FRIEND.public in bench.machine.connected()
    assert (reason or ("open" if is_open else "waits")) == outcome


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("event", ["congested", "drained", "half_closed", "disconnect"])
def test_every_event_in_every_state(state, event):
    """What happens to a connection in any state never raises, and only an end ends it."""
    bench, peer = reach(state)
    before = bench.reason_of(peer)

    getattr(bench.machine, event)(peer, bench.now)
    bench.settle()

    after = bench.reason_of(peer)
    if event == "half_closed" and state in HANDSHAKING:
        assert after is Refusal.HANDSHAKE
    elif event == "half_closed" and state is State.OPEN:
        assert after is Refusal.HALF_CLOSED
    else:
        assert after is before
    if event == "disconnect":
        assert bench.machine.sizes()["connections"] == 0


def test_table_is_complete():
    """A move that the table does not have is a bug of ours, in every state."""
    for state, move in itertools.product(State, Move):
        session = plain()
        session.state = state
        if (state, move) in TRANSITIONS:
            session.move(move)
            assert session.state is TRANSITIONS[state, move]
        else:
            with pytest.raises(KeyError):
                session.move(move)


# The handshake


def test_first_state_follows_from_our_side():
    """An acceptor waits for a proof, a dialler for a hello, a plain connection for nothing."""
    assert [each.state for each in (accepting(), dialling(), plain())] == [State.ACCEPTING, State.DIALLING, State.OPEN]
    assert [each.proved for each in (accepting(), dialling(), plain())] == [False, False, True]
    assert [each.dialled for each in (accepting(), dialling(), plain())] == [False, True, False]
    assert dialling().came_at == NOW - 5


@pytest.mark.parametrize("at", range(1, 136))
def test_proof_cut_anywhere(at):
    """Two chunks of a proof, cut at any byte, give what one gives, and nothing before the second."""
    session, proof = accepting(), proof_of(FRIEND, hello_of(US))

    first = session.shake_hands(proof[:at], welcome)
    second = session.shake_hands(proof[at:] + RECORDS, welcome)

    assert first == (b"", None, b"")
    assert second == (verdict_of(US, proof), None, RECORDS)
    assert (session.state, session.key, session.proved) == (State.OPEN, FRIEND.public, True)


@pytest.mark.parametrize("at", range(1, 137))
def test_hello_and_verdict_cut_anywhere(at):
    """All that a server says, cut at any byte, opens the connection and leaves the records."""
    session = dialling()
    proof = proof_of(FRIEND, hello_of(US))
    said = hello_of(US) + verdict_of(US, proof) + RECORDS

    first = session.shake_hands(said[:at], welcome)
    rest = session.shake_hands(said[at:], welcome) if session.state is not State.OPEN else None

    assert first.reply + (rest.reply if rest else b"") == proof
    assert session.state is State.OPEN
    assert (rest.rest if rest else first.rest + said[at:]) == RECORDS


def test_handshake_byte_by_byte():
    """One byte at a time is a chunking like any other."""
    session, proof = accepting(), proof_of(FRIEND, hello_of(US))

    steps = [session.shake_hands(proof[at : at + 1], welcome) for at in range(136)]

    assert b"".join(step.reply for step in steps) == verdict_of(US, proof)
    assert {step.refusal for step in steps} == {None}


@pytest.mark.parametrize("at", range(8))
def test_wrong_prefix_is_noticed_at_its_byte(at):
    """The first byte that cannot belong to a message ends the handshake, on either side."""
    wrong = hello_of(US)[:at] + b"\xff"

    assert accepting().shake_hands(wrong, welcome).refusal is Refusal.HANDSHAKE
    assert dialling().shake_hands(wrong, welcome).refusal is Refusal.HANDSHAKE


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(Refusal.UNKNOWN_PEER, 1), (Refusal.IDENTITY_BANNED, 1), (Refusal.BUSY, 2), (Refusal.DRAINING, 2)],
)
def test_unwelcome_client_is_told_a_status(refusal, status):
    """A client that proved itself is told why not, in the few words that there are, signed."""
    session, proof = accepting(), proof_of(FRIEND, hello_of(US))

    step = session.shake_hands(proof + RECORDS, unwanted(refusal))

    assert step == (verdict_of(US, proof, status), refusal, b"")
    assert session.state is State.ACCEPTING


def test_nobody_is_judged_before_the_signature():
    """Whether a key is known is not even asked for a client that does not hold it."""
    asked = []

    step = accepting().shake_hands(proof_of(FRIEND, hello_of(US))[:-1] + b"\x00", asked.append)

    assert (step.refusal, asked) == (Refusal.BAD_SIGNATURE, [])


def test_client_that_meets_another_key():
    """Nothing is answered to a server that is not the expected one."""
    session = dialling(expected=STRANGER)

    assert session.shake_hands(hello_of(US), welcome) == (b"", Refusal.WRONG_PEER, b"")


def test_reflected_handshake_does_not_open():
    """A server cannot be made to sign for itself by throwing its own bytes back."""
    session = accepting()
    hello = Acceptor(US, SERVER_NONCE, CERTIFICATE).hello()

    assert session.shake_hands(hello + bytes(64), welcome).refusal is Refusal.BAD_SIGNATURE


# Clocks


@pytest.mark.parametrize("session", [accepting(), dialling()])
def test_handshake_has_ten_seconds(session):
    """Counted from when it came, or from when we dialled."""
    limit = after_ms(session.came_at, 10_000)

    assert session.next_look() == limit
    assert session.overdue(Instant(limit - 1)) is None
    assert session.overdue(limit) is Refusal.HANDSHAKE_TIMEOUT


def test_connection_shows_what_matters_in_a_trace():
    """Number, kind, state and the beginning of the key, once there is one."""
    assert [repr(session) for session in (accepting(), dialling())] == [
        "<Session 1 tls accepting >",
        f"<Session 2 tls dialling {US.public.hex()[:8]}>",
    ]


def test_idle_connection_has_no_clock():
    """Between records and with nothing on its way a connection may rest for ever."""
    assert plain().next_look() is None
    assert plain().overdue(after_ms(NOW, 10**9)) is None


def test_record_under_way_has_thirty_seconds():
    """Counted from its last byte, unless we do not read."""
    session = plain()
    session.reader.feed(b"\x01")
    session.received_at = after_ms(NOW, 5)

    assert session.next_look() == after_ms(NOW, 30_005)
    assert session.overdue(after_ms(NOW, 30_004)) is None
    assert session.overdue(after_ms(NOW, 30_005)) is Refusal.STALLED
    session.held = True
    assert session.next_look() is None


@pytest.mark.parametrize("slot", ["congested", "owed"])
def test_write_under_way_has_sixty_seconds(slot):
    """Counted from the last sign that the peer takes something."""
    session = plain()
    setattr(session, slot, True)

    assert not session.is_free
    assert session.overdue(after_ms(NOW, 59_999)) is None
    assert session.overdue(after_ms(NOW, 60_000)) is Refusal.SEND_STALLED


def test_last_words_have_three_seconds():
    """An ending connection ends for the reason that it was given, whatever else is late."""
    session = plain()
    session.reader.feed(b"\x01")
    session.finish(Refusal.TRUNCATED, NOW, 4)

    assert (session.state, session.saved_by) == (State.ENDING, 4)
    assert session.overdue(after_ms(NOW, 2_999)) is None
    assert session.overdue(after_ms(NOW, 3_000)) is Refusal.TRUNCATED
