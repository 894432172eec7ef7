"""Bad input at the relay: forged answers, peers that lie, and addresses that are traps (issue 4)."""

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    BOB,
    CAROL,
    CHALLENGE,
    DELIVERED,
    FULL,
    UNKNOWN,
    X,
    Y,
    found_at,
    world_of_two,
)
from tests.protocols.merk.net import Net, data_to, key_of
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    AddServer,
    ClientAbsent,
    ClientFound,
    Delivery,
    DeliveryCode,
    Forward,
    QueryClient,
    ServerEntry,
    Servers,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication

FRAME = data_to(BOB, ALICE)


# Answers that nobody asked for


def test_a_client_cannot_end_a_search():
    """Forged answers of a client are strikes; the peer's word decides."""
    _, node, alice, mallory, x = world_of_two(peers=1)
    frame = alice.write(CAROL)
    mallory.say(ClientAbsent(CAROL.public), ClientFound(CAROL.public, BOB.public), ClientFound(CAROL.public, X.public))
    before = alice.codes()
    x.say(ClientFound(CAROL.public, X.public))

    assert before == []
    assert x.forwarded() == [frame]
    assert mallory.content() == []
    assert node.refused(Refusal.UNASKED_ANSWER) == 3


@pytest.mark.parametrize("answer", [ClientAbsent(CAROL.public), ClientFound(CAROL.public, Y.public)])
def test_a_peer_that_was_not_asked_cannot_end_a_search(answer):
    """It came when the question was out already."""
    net, node, alice, _, x = world_of_two(peers=1)
    frame = alice.write(CAROL)
    late = net.peer(node, Y).say(answer)
    before = (alice.codes(), late.content())
    x.say(ClientFound(CAROL.public, X.public))

    assert before == ([], [])
    assert x.forwarded() == [frame]
    assert node.refused(Refusal.UNASKED_ANSWER) == 1


def test_an_answer_counts_on_the_connection_that_was_asked():
    """A newer connection of the same peer was not asked; the older is gone, so it is a time-out or a no."""
    net, node, alice, _, _ = world_of_two(peers=1)
    frame = alice.write(CAROL)
    again = net.peer(node, X)
    again.hear()
    again.say(ClientFound(CAROL.public, X.public))

    assert node.refused(Refusal.UNASKED_ANSWER) == 1
    assert frame not in again.forwarded()


@pytest.mark.parametrize("named", [Y, CAROL], ids=["a linked node", "a stranger"])
def test_a_peer_speaks_only_for_itself(named):
    """A claim for another server is a strike and counts as a no."""
    _, node, alice, _, x, y = world_of_two(peers=2)
    frame = alice.write(CAROL)
    x.hear(), y.hear()
    x.say(ClientFound(CAROL.public, named.public))
    before = (x.hear(), y.hear(), alice.codes())
    y.say(ClientFound(CAROL.public, Y.public))

    assert before == ([], [], [])
    assert y.forwarded() == [frame]
    assert node.refused(Refusal.LYING_PEER) == 1


def test_a_second_answer_of_a_peer_is_a_strike():
    """Each question has one."""
    _, node, alice, _, x, _ = world_of_two(peers=2)
    alice.write(CAROL)
    x.say(ClientAbsent(CAROL.public), ClientFound(CAROL.public, X.public))

    assert node.refused(Refusal.UNASKED_ANSWER) == 1
    assert x.forwarded() == []


def test_late_answers_of_a_slow_peer_are_no_offence():
    """A node that needs longer than a search lasts stays linked."""
    net, node, alice, _, x = world_of_two(peers=1)
    for number in range(20):
        alice.write(key_of(number))
        net.pass_ms(5_000)
        x.deny()

    assert x.closed is None
    assert node.refused(Refusal.UNASKED_ANSWER) == 0


def test_clients_do_not_learn_who_is_here():
    """A question of a client is a strike, whoever it is about."""
    _, node, alice, _ = world_of_two()
    alice.say(QueryClient(BOB.public), QueryClient(CAROL.public))

    assert alice.hear() == []
    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 2


@pytest.mark.parametrize("who", ["client", "peer", "original"])
def test_a_forged_notice_reaches_nobody(who):
    """A notice is believed from the peer that has the frame, and from nobody else."""
    net, node, alice, mallory, x = world_of_two(peers=1)
    frame = alice.write(CAROL)
    x.say(ClientFound(CAROL.public, X.public))
    forger = {"client": lambda: mallory, "peer": lambda: net.peer(node, Y), "original": lambda: net.original(node, Y)}
    forger[who]().say(Delivery(0, CAROL.public, wire.frame_hash(frame)))
    before = alice.codes()
    x.say(Delivery(2, CAROL.public, wire.frame_hash(frame)))

    assert before == []
    assert alice.codes() == [FULL]


# Peers that lie about whom they hold


def test_a_peer_that_claims_and_then_denies_does_not_get_the_next_frame():
    """The honest node is used at once, and next time it is believed first."""
    _, _, alice, _, liar, honest = world_of_two(peers=2)
    for number in range(3):
        frame = alice.write(CAROL, b"%d" % number)
        if QueryClient(CAROL.public) in liar.told():
            found_at(liar, CAROL)
        for lost in liar.forwarded():
            liar.say(Delivery(UNKNOWN, CAROL.public, wire.frame_hash(lost)))
        asked = honest.told()
        if QueryClient(CAROL.public) in asked:
            asked = found_at(honest, CAROL).told()
        arrived = [info.frame for info in asked if isinstance(info, Forward)]
        honest.say(*(Delivery(0, CAROL.public, wire.frame_hash(each)) for each in arrived))

        assert arrived == [frame]
        assert alice.codes() == [DELIVERED]


def test_a_peer_that_claims_and_never_answers_gets_one_frame():
    """That one is lost with a time-out; the next goes to the honest node."""
    net, _, alice, _, liar, honest = world_of_two(peers=2)
    alice.write(CAROL, b"lost")
    found_at(liar, CAROL)
    honest.hear()
    net.pass_ms(5_000)
    lost = alice.codes()
    frame = alice.write(CAROL, b"found")
    found_at(liar, CAROL)
    found_at(honest, CAROL)

    assert lost == [DeliveryCode.LOOKUP_TIMEOUT]
    assert honest.forwarded() == [frame]


def test_a_late_claim_of_a_stranger_at_the_door_moves_nobody():
    """Whoever proved itself keeps the client, however often an unproved relay claims it."""
    net, node, alice, _, x = world_of_two(peers=1)
    stranger = net.original(node, Y)
    alice.write(CAROL)
    x.say(ClientFound(CAROL.public, X.public))
    stranger.hear()
    stranger.say(ClientFound(CAROL.public, Y.public))
    alice.write(CAROL, b"second")

    assert len(x.forwarded()) == 2
    assert stranger.content() == []


def upstream(net, node):
    """Return the line of an original relay that the node has dialled."""
    (line,) = net.dialled()
    line.key = Y
    line.send(CHALLENGE, authentication.confirm_frame(Y.public))
    net.pass_ms(2_000)
    line.hear()
    return line


@pytest.mark.parametrize("answer", ["absent", "found", "none"])
def test_a_stranger_at_the_door_decides_nothing_for_our_clients(answer):
    """Whatever it asks and an original answers it: the peers are asked too, and their word counts before."""
    net, node, alice, _, x = world_with_upstream()
    line, stranger = upstream(net, node), net.original(node, CAROL)
    target = key_of("wanted")
    stranger.say(QueryClient(target.public))
    if answer != "none":
        line.say(ClientAbsent(target.public) if answer == "absent" else ClientFound(target.public, Y.public))
    frame = alice.write(target)
    before = alice.codes()
    x.say(ClientFound(target.public, X.public))

    assert before == []
    assert x.forwarded() == [frame]


def test_a_stranger_at_the_door_cannot_take_all_searches():
    """Its questions are counted like a client's."""
    net, node, alice, _, x = world_with_upstream()
    upstream(net, node)
    stranger = net.original(node, CAROL)
    stranger.say(*(QueryClient(number.to_bytes(32, "big")) for number in range(5_000)))
    x.hear()
    alice.write(key_of("wanted"))

    assert node.sizes["lookups"] <= 65
    assert x.questions() == [key_of("wanted").public]


def world_with_upstream():
    """Return a world whose node has one peer and dials one more address, where a test listens."""
    net = Net()
    node = net.node()
    x = net.peer(node, X)
    node.relay._mesh.learn("ws://test", None, X.public, net.now)
    net.settle()
    return net, node, net.client(node, ALICE), net.client(node, BOB), x


# Addresses


PRIVATE = ["ws://127.0.0.1:8080", "ws://10.0.0.1", "ws://[::1]", "ws://169.254.169.254/latest", "ws://localhost"]


@pytest.mark.parametrize("url", PRIVATE)
@pytest.mark.parametrize("how", ["add", "list"])
def test_private_addresses_are_not_dialled(url, how):
    """Whether a peer adds or lists them; they are counted."""
    _, node, _, _, x = world_of_two(peers=1)
    x.say(AddServer(url) if how == "add" else Servers((ServerEntry(Y.public, url),)))

    assert node.dials == []
    assert node.refused(Refusal.PRIVATE_ADDRESS) == 1
    assert node.sizes["addresses"] == 0


def test_a_name_is_judged_again_when_it_is_resolved():
    """What looks public may lead inside, so the dialler is told to look."""
    _, node, _, _, x = world_of_two(peers=1)
    x.say(AddServer("ws://rebinding.example"))

    assert [(dial.url, dial.only_public) for dial in node.dials] == [("ws://rebinding.example", True)]


@pytest.mark.parametrize("who", ["client", "original"])
def test_only_peers_name_addresses(who):
    """A client's are taken without a word, an original's are not believed; nobody is dialled."""
    net, node, alice, _ = world_of_two()
    line = alice if who == "client" else net.original(node, X)
    line.say(AddServer("ws://8.8.8.8"), Servers((ServerEntry(Y.public, "ws://9.9.9.9"),)))

    assert node.dials == []
    assert node.sizes["addresses"] == 0
    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1
    assert line.closed is None


def test_a_storm_of_addresses_is_a_trickle_of_dials():
    """Eight in a minute, 16 remembered of one peer."""
    net, node, _, _, x = world_of_two(peers=1)
    x.say(*(AddServer(f"ws://8.8.8.{number}") for number in range(200)))
    at_once = len(node.dials)
    net.pass_ms(59_999)

    assert at_once == len(node.dials) == 8
    assert node.sizes["addresses"] <= 16
