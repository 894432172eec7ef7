"""Laws of protocols.bsp.relay: what a node's device takes from its configuration, its store and other programs."""

import random

import pytest

from tests.protocols.bsp.build import id_at
from waystation.core.effects import Close, Commit, Dial, Peer, Send
from waystation.core.errors import LocalError
from waystation.core.facts import MessageHeld, MessageStored, PeerIdentified
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair
from waystation.engine.node import DialsOut, HasEndpoints, TakesHalfClose
from waystation.protocols.bsp.device.orders import (
    AddMessage,
    DeleteMessage,
    Join,
    Leave,
    Meet,
    Part,
    ShareGroup,
    ShareMessage,
    queue_order,
)
from waystation.protocols.bsp.graph.formats import deps_v1_body, deps_v1_content
from waystation.protocols.bsp.mailbox.commands import AnswerStatus, Done, Drop, Host, decode
from waystation.protocols.bsp.mailbox.commands import encode as encode_content
from waystation.protocols.bsp.mailbox.host import control_group
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.protocols.bsp.relay.machine import REFUSED_ORDERS_MAX, BspRelay
from waystation.protocols.bsp.settings import BspSettings
from waystation.protocols.bsp.wire import RecordReader, encode
from waystation.store.memory import MemoryStore

NODE, ALICE, BOB, CAROL = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))
CLIENT_ID = b"c" * 32
GROUP = SEED.group(CLIENT_ID, b"tea", "opaque")
BODY = b"hello"
SECOND = MICROSECONDS_PER_SECOND


def entry(*keys, descriptor=b"tea", **more):
    """Return one group as the configuration has it."""
    shared = [key.public.hex() for key in keys]
    return {"client_id": CLIENT_ID.hex(), "descriptor": descriptor.hex(), "share_with": shared, **more}


class Bench:
    """A relay with a store, a clock and connections through the plain door."""

    def __init__(self, store=None, *, groups=None, plain=ALICE, **settings):
        self.store = store or MemoryStore()
        groups = [entry(ALICE, name="tea")] if groups is None else groups
        chosen = {"groups": groups, "plain_peer": plain.public.hex(), "mode": "interactive"} | settings
        self.now = Instant(SECOND)
        self.banned = []
        admits = lambda key: key not in self.banned  # noqa: E731
        self.relay = BspRelay(BspSettings(**chosen), NODE, self.store, random.Random(7), admits=admits)
        self.relay.set_wall(self.now, 1_700_000_000 * SECOND)
        self.effects = []
        self.peers = 0

    def turn(self, seconds=0.0):
        """Let time pass, wake the relay, and carry out what it wants."""
        self.now = Instant(self.now + int(seconds * SECOND))
        self.relay.wake(self.now)
        self.take()

    def take(self):
        """Carry out what the relay wants, commits included."""
        while effects := self.relay.take():
            self.effects += effects
            for effect in effects:
                if isinstance(effect, Commit):
                    self.store.commit(effect.changes)
                    self.relay.committed(effect.ticket, self.now)

    def come(self):
        """Let the plain peer connect; return its number."""
        self.peers += 1
        self.relay.connect_by(Peer(self.peers), "plain", self.now)
        self.take()
        return Peer(self.peers)

    def say(self, peer, *records):
        """Let a peer say records."""
        self.relay.receive(peer, b"".join(encode(SEED, record) for record in records), self.now)
        self.take()

    def heard(self, peer):
        """Return and forget the records that were said to a peer."""
        sent = b"".join(effect.data for effect in self.effects if isinstance(effect, Send) and effect.peer == peer)
        self.effects = [effect for effect in self.effects if not isinstance(effect, Send) or effect.peer != peer]
        return RecordReader(SEED).feed(sent)

    def leave(self, *orders):
        """Leave orders in the store, as another program does."""
        self.store.commit([queue_order(order, number) for number, order in enumerate(orders)])

    def group(self):
        """Return the view of the one group."""
        (group,) = self.relay.view()["groups"]
        return group


def test_relay_is_what_the_engine_asks_of_such_a_relay():
    """It dials out, has doors, and hears of the end of one half."""
    relay = Bench().relay

    assert isinstance(relay, DialsOut)
    assert isinstance(relay, HasEndpoints)
    assert isinstance(relay, TakesHalfClose)


def test_message_is_stored_then_acknowledged():
    """The acknowledgement is behind the commit, and says nothing before it."""
    bench = Bench()
    peer = bench.come()
    bench.relay.receive(peer, encode(SEED, Message(GROUP.group_id, 1, BODY)), bench.now)
    first = bench.relay.take()
    (commit,) = [effect for effect in first if isinstance(effect, Commit)]
    bench.store.commit(commit.changes)
    bench.relay.committed(commit.ticket, bench.now)
    bench.take()

    assert not [effect for effect in first if isinstance(effect, Send)]
    assert bench.heard(peer) == [Ack((SEED.message_id(GROUP.group_id, 1, BODY),))]


def test_configured_group_has_a_bound():
    """Beyond it a new message is neither stored nor acknowledged; another group has room all the same."""
    other = SEED.group(CLIENT_ID, b"coffee", "opaque")
    groups = [entry(ALICE), entry(ALICE, descriptor=b"coffee")]
    bench = Bench(groups=groups, group_messages_max=2)
    peer = bench.come()
    messages = [Message(GROUP.group_id, number, BODY) for number in range(3)]

    bench.say(peer, *messages, Message(other.group_id, 1, BODY))

    taken = [SEED.message_id(*message) for message in (*messages[:2], (other.group_id, 1, BODY))]
    assert bench.heard(peer) == [Ack(tuple(taken))]


@pytest.mark.parametrize("settings", [{"plain": NODE}, {"owners": [NODE.public.hex()]}])
def test_node_is_no_peer_of_itself(settings):
    """Its own key as plain peer would pass strangers' records as ours; as owner it would own nothing."""
    with pytest.raises(LocalError, match="not this node itself"):
        Bench(**settings)


def test_everybody_of_the_configuration_is_known():
    """Those a group is shared with, the peers, and the plain one; never the node itself."""
    peers = [{"key": BOB.public.hex(), "name": "bob"}, {"key": NODE.public.hex()}]
    bench = Bench(groups=[entry(CAROL, NODE)], peers=peers)
    view = bench.relay.view()

    assert [peer["key"] for peer in view["peers"]] == [pair.public.hex() for pair in (BOB, ALICE, CAROL)]
    assert view["peers"][0]["name"] == "bob"
    assert view["groups"][0]["shared_with"] == {CAROL.public.hex(): "shared"}


def test_peer_with_an_address_is_dialled_under_its_key():
    """The effect names it by its key; a failure is told, and it is dialled again within 2 s."""
    url = "bsp+tls://bob.example:7443"
    bench = Bench(peers=[{"key": BOB.public.hex(), "url": url}, {"key": CAROL.public.hex()}])
    bench.turn()
    first = [effect for effect in bench.effects if isinstance(effect, Dial)]
    bench.relay.upstream_failed(BOB.public.hex(), bench.now)
    bench.take()
    trouble = [peer["trouble"] for peer in bench.relay.view()["peers"]]
    bench.turn(2)

    assert first == [Dial(BOB.public.hex(), url, only_public=False)]
    assert trouble == ["unreachable", "", ""]
    assert len([effect for effect in bench.effects if isinstance(effect, Dial)]) == 2


def test_connection_ends_the_trouble_and_shows_in_the_view():
    """A peer's link is told while it stands; why it ended is told afterwards."""
    bench = Bench()
    peer = bench.come()
    during = bench.relay.view()["peers"][0]
    bench.relay.disconnect(peer, bench.now)
    bench.take()
    after = bench.relay.view()["peers"][0]
    bench.come()

    assert (during["link"], during["trouble"]) == ("plain", "")
    assert (after["link"], after["trouble"]) == (None, "disconnected")
    assert bench.relay.view()["peers"][0]["trouble"] == ""
    assert PeerIdentified("bsp", 1, ALICE.public) in bench.effects


def test_groups_and_messages_are_counted():
    """One message is delivered, the next waits for one that is not there."""
    bench = Bench(groups=[entry(ALICE, format="deps_v1", name="tea")])
    peer = bench.come()
    lone, waiting = b"\1\0\0lone", b"\1\0\1" + id_at(1) + b"waits"
    bench.say(peer, Message(GROUP.group_id, 1, lone), Message(GROUP.group_id, 2, waiting))
    group = bench.group()

    assert (group["group_id"], group["name"], group["format"]) == (GROUP.group_id.hex(), "tea", "deps_v1")
    assert (group["messages"], group["delivered"], group["pending"], group["bodies"]) == (2, 1, 1, 2)
    assert group["body_bytes"] == len(lone) + len(waiting)
    assert bench.relay.sizes()["messages"] == 2


def test_messages_are_there_after_a_restart():
    """Groups are said anew by the configuration, and what the store has of them is read."""
    first = Bench()
    first.say(first.come(), Message(GROUP.group_id, 1, BODY))
    second = Bench(first.store)
    peer = second.come()
    second.say(peer, Offer((SEED.message_id(GROUP.group_id, 1, BODY),)))

    assert second.group()["delivered"] == 1
    assert not [record for record in second.heard(peer) if isinstance(record, Request)]


def test_order_is_taken_up_within_a_second_and_offered():
    """The relay asks to be woken for it, creates the message, removes the order in the same commit, and offers it."""
    bench = Bench()
    bench.turn()
    peer = bench.come()
    bench.leave(AddMessage(GROUP.group_id, 5, BODY))
    due_in = bench.relay.deadline() - bench.now
    bench.turn(1)
    message_id = SEED.message_id(GROUP.group_id, 5, BODY)

    assert 0 < due_in <= SECOND
    assert bench.heard(peer) == [Offer((message_id,))]
    assert list(bench.store.scan("bsp_orders")) == []
    assert bench.group()["delivered"] == 1


def test_order_is_carried_out_once():
    """It is not taken up a second time, neither while its removal is under way nor after a restart."""
    bench = Bench()
    bench.leave(AddMessage(GROUP.group_id, 5, BODY))
    bench.relay.wake(bench.now)
    bench.relay.wake(Instant(bench.now + SECOND))
    commits = [effect for effect in bench.relay.take() if isinstance(effect, Commit)]
    bench.store.commit(commits[0].changes)
    again = Bench(bench.store)
    again.turn()

    assert len(commits) == 1
    assert again.group()["messages"] == 1


def test_orders_about_messages_are_carried_out():
    """A message may be deleted, and its place stays."""
    bench = Bench()
    message_id = SEED.message_id(GROUP.group_id, 5, BODY)
    bench.leave(
        AddMessage(GROUP.group_id, 5, BODY),
        ShareMessage(GROUP.group_id, message_id),
        DeleteMessage(GROUP.group_id, message_id),
    )
    bench.turn()

    assert (bench.group()["messages"], bench.group()["bodies"]) == (1, 0)
    assert bench.relay.view()["orders_refused"] == []


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Join(CLIENT_ID, b"more", "opaque", ""), "are in its configuration"),
        (Leave(GROUP.group_id), "are in its configuration"),
        (Meet(BOB.public, "", ""), "are in its configuration"),
        (Part(ALICE.public), "are in its configuration"),
        (ShareGroup(GROUP.group_id, BOB.public, "shared"), "are in its configuration"),
        (AddMessage(id_at(1), 1, BODY), "none of the groups in the node's configuration"),
        (DeleteMessage(GROUP.group_id, id_at(1)), "there is no message"),
        (ShareMessage(GROUP.group_id, id_at(1)), "there is no message"),
        (AddMessage(GROUP.group_id, 1, bytes(32_769)), "a body has 0 to 32768 bytes"),
    ],
)
def test_order_that_cannot_be_carried_out_is_told_and_gone(order, why):
    """What the configuration decides, and what makes no sense, is turned down with a reason."""
    bench = Bench()
    before = bench.relay.view()["groups"], bench.relay.view()["peers"]
    bench.leave(order)
    bench.turn()
    (refused,) = bench.relay.view()["orders_refused"]

    assert refused["order"] == type(order).__name__
    assert why in refused["why"]
    assert list(bench.store.scan("bsp_orders")) == []
    assert (bench.relay.view()["groups"], bench.relay.view()["peers"]) == before


def test_refused_orders_are_remembered_up_to_a_bound():
    """The newest are kept."""
    bench = Bench()
    bench.leave(*(Leave(id_at(number)) for number in range(REFUSED_ORDERS_MAX + 5)))
    bench.turn()

    assert len(bench.relay.view()["orders_refused"]) == REFUSED_ORDERS_MAX


def test_retired_relay_leaves_orders_and_dials_nobody():
    """A node that drains begins nothing, and what waits is there for its next start."""
    bench = Bench(peers=[{"key": BOB.public.hex(), "url": "bsp+tls://bob.example"}])
    bench.take()
    bench.effects.clear()
    bench.relay.retire()
    bench.leave(AddMessage(GROUP.group_id, 5, BODY))
    bench.turn(5)

    assert bench.effects == []
    assert len(list(bench.store.scan("bsp_orders"))) == 1
    assert bench.relay.deadline() is None
    assert bench.relay.settled()


def test_banned_key_is_expelled():
    """Its connection is closed, whatever door it came through."""
    bench = Bench()
    peer = bench.come()
    bench.relay.expel(ALICE.public, bench.now)
    bench.take()

    assert [(effect.peer, effect.reason.value) for effect in bench.effects if isinstance(effect, Close)] == [
        (peer, "identity_banned")
    ]


def test_profile_briar_greets_first_and_makes_its_own_identifiers():
    """``client_id`` is the application's name in UTF-8, its major version 0, and a VERSIONS record comes first."""
    name = b"org.example.tea"
    groups = [{"client_id": name.hex(), "descriptor": b"tea".hex(), "share_with": [ALICE.public.hex()]}]
    bench = Bench(groups=groups, profile="briar")
    peer = bench.come()
    sent = [effect.data for effect in bench.effects if isinstance(effect, Send) and effect.peer == peer]

    assert bench.group()["group_id"] == BRIAR.group(name, b"tea", "opaque", 0).group_id.hex()
    assert sent[0] == BRIAR.first_record == b"\0\4\0\1\0"


def test_group_that_the_profile_forbids_is_refused():
    """The configuration is checked before; a relay put together otherwise says so, too."""
    with pytest.raises(LocalError, match="a descriptor has 32768 bytes at most"):
        Bench(groups=[entry(descriptor=bytes(32_769))])


# The mailbox of a node


def served(store=None, **settings):
    """Return a bench whose plain peer, Alice, owns a mailbox."""
    return Bench(store, groups=[], owners=[ALICE.public.hex()], **settings)


def command(bench, peer, content, number):
    """Say a command to the mailbox, and return what it answers."""
    control = control_group(SEED, ALICE.public, NODE.public).group_id
    bench.say(peer, Message(control, number, deps_v1_body((), encode_content(content))))
    bench.turn(0.01)
    offers = [each for record in bench.heard(peer) if isinstance(record, Offer) for each in record.ids]
    bench.say(peer, Request(tuple(offers)))
    said = [record for record in bench.heard(peer) if isinstance(record, Message) and record.group_id == control]
    return [decode(deps_v1_content(record.body)) for record in said]


def host(keep_ms=0, *members):
    """Return the command that has the group hosted."""
    return Host(GROUP.group_id, CLIENT_ID, b"tea", members or (ALICE.public, BOB.public), "opaque", keep_ms)


def test_owner_has_a_group_hosted():
    """The command is answered, the group shows as hosted, its members are met, and messages are kept for them."""
    bench = served()
    peer = bench.come()
    answers = command(bench, peer, host(), 1)
    bench.say(peer, Message(GROUP.group_id, 5, BODY))
    hosted = next(group for group in bench.relay.view()["groups"] if group["hosted"])

    assert answers == [Done(AnswerStatus.DONE)]
    assert (hosted["group_id"], hosted["bodies"]) == (GROUP.group_id.hex(), 1)
    assert BOB.public.hex() in [known["key"] for known in bench.relay.view()["peers"]]
    assert bench.relay.sizes()["hosted"] == 1


def test_commands_of_a_flood_wait_and_the_drain_leaves_them():
    """The relay is woken for what waits, twenty a second; while it drains nothing more is done, heard, or due."""
    bench = served()
    peer = bench.come()
    control = control_group(SEED, ALICE.public, NODE.public).group_id
    body = deps_v1_body((), encode_content(Drop(GROUP.group_id)))
    bench.say(peer, *(Message(control, number, body) for number in range(100)))
    bench.turn()
    at_once = bench.relay.sizes()["commands"]
    due_in = bench.relay.deadline() - bench.now
    bench.turn(0.5)
    later = bench.relay.sizes()["commands"]
    bench.relay.retire()
    bench.say(peer, *(Message(control, number, body) for number in range(100, 200)))
    bench.turn(5)

    assert (at_once, due_in, later) == (64, SECOND // 20, 74)
    assert (bench.relay.sizes()["commands"], bench.relay.sizes()["commands_waiting"]) == (74, 26)
    assert bench.relay.settled()


def test_answer_is_in_the_commit_behind_its_command():
    """What the mailbox decides when a command is on disk goes to the disk next, without waiting for anything else."""
    bench = served()
    peer = bench.come()
    control = control_group(SEED, ALICE.public, NODE.public).group_id
    bench.relay.receive(peer, encode(SEED, Message(control, 1, deps_v1_body((), encode_content(host())))), bench.now)
    (first,) = [effect for effect in bench.relay.take() if isinstance(effect, Commit)]
    bench.store.commit(first.changes)
    bench.relay.committed(first.ticket, bench.now)
    second = [effect for effect in bench.relay.take() if isinstance(effect, Commit)]

    assert len(second) == 1
    assert "bsp_hosted" in [change.table for change in second[0].changes]


def test_hosted_groups_are_there_after_a_restart():
    """They are read with the first word of the wall clock, as their bodies' ages count by it."""
    first = served()
    command(first, first.come(), host(), 1)
    second = served(first.store)

    assert [group["hosted"] for group in second.relay.view()["groups"]].count(True) == 1


def test_message_above_the_quota_is_not_acknowledged():
    """The author keeps it; one that fits is taken."""
    bench = served(owner_messages_max=2)  # one is the answer, until its owner has it
    peer = bench.come()
    command(bench, peer, host(), 1)
    bench.say(peer, Message(GROUP.group_id, 5, BODY), Message(GROUP.group_id, 6, BODY))
    acknowledged = [each for record in bench.heard(peer) if isinstance(record, Ack) for each in record.ids]

    assert acknowledged == [SEED.message_id(GROUP.group_id, 5, BODY)]


def test_node_never_writes_into_what_it_hosts():
    """An order for a hosted group is turned down: only the configuration's groups are the operator's."""
    bench = served()
    command(bench, bench.come(), host(), 1)
    bench.leave(AddMessage(GROUP.group_id, 5, BODY))
    bench.turn(1)

    assert [each["order"] for each in bench.relay.view()["orders_refused"]] == ["AddMessage"]


def test_member_whom_nothing_needs_any_more_is_parted():
    """With the last hosted group goes who was known for it alone; the configuration's own peers stay."""
    bench = served(peers=[{"key": CAROL.public.hex()}])
    peer = bench.come()
    command(bench, peer, host(0, ALICE.public, BOB.public, CAROL.public), 1)
    before = {known["key"] for known in bench.relay.view()["peers"]}
    command(bench, peer, Drop(GROUP.group_id), 2)
    after = {known["key"] for known in bench.relay.view()["peers"]}

    assert before - after == {BOB.public.hex()}
    assert {ALICE.public.hex(), CAROL.public.hex()} <= after


def test_banned_owner_is_served_no_more_at_once():
    """With the ban its groups are shared with nobody, and with its end they are again within a minute or two."""
    bench = served()
    command(bench, bench.come(), host(0, BOB.public), 1)
    shared = [next(group for group in bench.relay.view()["groups"] if group["hosted"])["shared_with"]]
    bench.banned.append(ALICE.public)
    bench.relay.expel(ALICE.public, bench.now)
    shared.append(next(group for group in bench.relay.view()["groups"] if group["hosted"])["shared_with"])
    bench.banned.clear()
    for _ in range(3):
        bench.turn(60)
    shared.append(next(group for group in bench.relay.view()["groups"] if group["hosted"])["shared_with"])

    assert shared == [{BOB.public.hex(): word} for word in ("shared", "visible", "shared")]


def test_recorder_is_told_of_messages_and_holders():
    """A message that was stored and delivered, and a peer that holds one of ours, are facts among the effects."""
    bench = Bench()
    alice = bench.come()
    theirs = Message(GROUP.group_id, 7, BODY)
    bench.say(alice, theirs)
    ours = SEED.message_id(GROUP.group_id, 8, b"ours")
    bench.store.commit([queue_order(AddMessage(GROUP.group_id, 8, b"ours"), 1)])
    bench.turn(1)
    bench.say(alice, Ack((ours,)))
    facts = [effect for effect in bench.effects if isinstance(effect, MessageStored | MessageHeld)]

    assert facts == [
        MessageStored("bsp", ALICE.public, "delivered", len(BODY), GROUP.group_id, SEED.message_id(*theirs), (), 7, 1),
        MessageStored("bsp", None, "delivered", 4, GROUP.group_id, ours, (), 8, 2),
        MessageHeld("bsp", ALICE.public, GROUP.group_id, ours, 1, 0, None, None),
    ]
