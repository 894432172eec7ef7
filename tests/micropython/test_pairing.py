"""Laws of pairing: who can use an invite of a device, in both interpreters."""

from tests.micropython.build import Asker, ask, delivery_of
from waystation.cli.mcu.package import device_module
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    HandshakeComplete,
    HandshakeInit,
    decode_payload,
    encode_payload,
)
from waystation.protocols.bhumi.payload.pairing import (
    PairedSuite,
    open_answer,
    request_tag_of,
    root_with,
    seal_pairing,
)
from waystation.protocols.bhumi.payload.suites import SharedSecrets, Suite, seal_handshake


def invite_of(board):
    """Return preimage, alias, secret and end of the folder's invite."""
    (invite,) = device_module("state").State(str(board.folder / "bhumi.state")).invites
    return invite


def use_invite(relay, board, asker, *, back=bytes(32), sealed=None):
    """Use the invite; return the opaque answer."""
    preimage, _, secret, _ = invite_of(board)
    own = SharedSecrets(asker.key_pair)
    if sealed is None:
        init = HandshakeInit(asker.key_pair.public, back, "tls://bob.example:1")
        sealed = seal_pairing(PairedSuite.AES_CTR, own, asker.identity, secret, preimage, init, asker.rng)
    asker.preimage, asker.tag = preimage, request_tag_of(sealed)
    asker.root = root_with(own, asker.identity, secret)
    relay.say(FrameType.DELIVER, delivery_of(1, preimage, sealed))
    return relay.until(FrameType.ACK)[8:]


def complete(asker, sealed):
    """Return what a handshake was answered."""
    return decode_payload(open_answer(PairedSuite.AES_CTR, asker.root, asker.preimage, asker.tag, sealed))


def use_legacy_invite(relay, board, asker, preimage):
    """Use an invite without a secret, as a relay that sees it could; return the opaque answer."""
    plain = encode_payload(HandshakeInit(asker.key_pair.public, bytes(32), ""))
    sealed = seal_handshake(Suite.AES_CTR, asker.identity, preimage, plain, asker.rng)
    relay.say(FrameType.DELIVER, delivery_of(1, preimage, sealed))
    return relay.until(FrameType.ACK)[8:]


def stranger(board):
    """Return a peer that the device has forgotten, so that it comes by the invite."""
    asker = Asker(board.folder)
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    state.peers = []
    state.save()
    return asker


def meet(board, relay):
    asker = stranger(board)
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")
    return asker


def test_handshake(make, relay):
    """Who uses the invite is known from then on, by the alias of the invite, and can ask with what it was given."""
    board = make()
    asker = meet(board, relay)

    answer = complete(asker, use_invite(relay, board, asker, back=bytes([3]) * 32))

    assert isinstance(answer, HandshakeComplete) and (answer.status, answer.url) == (0, relay.url)
    asker.preimages = [answer.preimage]
    assert ask(relay, asker, b"hello").content == b"heard hello"
    board.until("answered bob: hello")
    (peer,) = device_module("state").State(str(board.folder / "bhumi.state")).peers
    assert (peer.suite, peer.manages, peer.url) == (4, True, "tls://bob.example:1")
    assert peer.rights == [bytes([3]) * 32 + bytes(16)] and peer.root == asker.root


def test_stolen_invite(make, relay):
    """Whoever has only what a relay sees cannot use an invite, and does not spend it: its holder still can."""
    board = make()
    asker = meet(board, relay)
    preimage, _, secret, _ = invite_of(board)
    thief = KeyPair.from_seed(bytes([66]) * 32)
    own = SharedSecrets(thief)
    init = HandshakeInit(thief.public, bytes(32), "")
    guessed = seal_pairing(PairedSuite.AES_CTR, own, asker.identity, bytes(32), preimage, init, asker.rng)
    legacy = seal_handshake(Suite.AES_CTR, asker.identity, preimage, encode_payload(init), asker.rng)
    for sealed in (guessed, legacy, bytes(120), b""):
        assert use_invite(relay, board, asker, sealed=sealed) == b""
        relay.until(FrameType.UPDATE_COMMITS)
        board.until("trouble an invite was used by somebody who does not have it")

    assert complete(asker, use_invite(relay, board, asker)).status == 0
    assert len(secret) == 32 and len(device_module("state").State(str(board.folder / "bhumi.state")).peers) == 1


def test_legacy_invite(make, relay):
    """An invite without a secret is good for suites 1 and 2, but not for somebody who is paired better."""
    board = make()
    asker = Asker(board.folder)
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    preimage, secret = state.add_invite("old", 0, legacy=True)
    board.start()
    relay.accept()
    relay.welcome()

    assert secret == b"" and use_legacy_invite(relay, board, asker, preimage) == b""
    board.until("trouble bob used an invite that is weaker than its pairing")
    asker.key_pair = KeyPair.from_seed(bytes([5]) * 32)
    assert use_legacy_invite(relay, board, asker, preimage) != b""
    board.until("joined old")


def test_expired_invite(make, relay):
    """An invite that has ended by the board's clock is spent by whoever uses it, and pairs with nobody."""
    board = make()
    asker = stranger(board)
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    state.invites = [(*state.invites[0][:3], 1_600_000_000)]
    state.save()
    board.start()
    relay.accept()
    relay.welcome()

    assert use_invite(relay, board, asker) == b""
    board.until("trouble an invite was used that has expired")
    assert device_module("state").State(str(board.folder / "bhumi.state")).invites == []


def test_weak_stranger(make, relay):
    """An identity whose key comes to nothing is not let in."""
    board = make()
    asker = meet(board, relay)
    preimage = device_module("state").State(str(board.folder / "bhumi.state")).add_invite("", 0, legacy=True)[0]
    board.kill()
    board.start()
    relay.accept()
    relay.welcome()
    plain = encode_payload(HandshakeInit(PublicKey(b"\x01" + bytes(31)), bytes(32), ""))
    sealed = seal_handshake(Suite.AES_CTR, asker.identity, preimage, plain, asker.rng)
    relay.say(FrameType.DELIVER, delivery_of(1, preimage, sealed))

    assert relay.until(FrameType.ACK)[8:] == b""
    assert device_module("state").State(str(board.folder / "bhumi.state")).peers == []


def test_stranger_who_is_not_admitted(make, relay):
    """Whom the program turns away gets a refusal that it can read, and is not kept."""
    board = make(options="admit=lambda key, alias: False")
    asker = meet(board, relay)

    answer = complete(asker, use_invite(relay, board, asker))

    assert (answer.status, answer.preimage, answer.url) == (1, bytes(32), "the device does not admit you")
    assert device_module("state").State(str(board.folder / "bhumi.state")).peers == []


def test_ninth_peer(make, relay):
    """There is room for eight peers; the ninth is refused and learns why, the others stay."""
    board = make()
    asker = stranger(board)
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    state.peers = [device_module("state").Peer(bytes([number]) * 32, bytes(32), 2, "") for number in range(8)]
    state.save()
    board.start()
    relay.accept()
    relay.welcome()

    answer = complete(asker, use_invite(relay, board, asker))

    assert "no room for another peer: it has 8" in answer.url
    board.until("trouble")
    assert len(device_module("state").State(str(board.folder / "bhumi.state")).peers) == 8
