"""Laws of protocols.bhumi.relay: order of results, indifference to chunking, and a dumb model as oracle."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.bhumi.build import ALICE, KEYS, World, commit, i_am, preimage, send
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import Ack, Deliver, Feature, Keepalive, Options, SendResult, UpdateCommits


@pytest.mark.parametrize("seed", range(10))
def test_results_come_in_send_order_whatever_order_the_answers_have(seed):
    """Deliveries overlap, results do not overtake (BHUMI-9)."""
    rng = random.Random(seed)
    world = World(seed=seed)
    device = world.device(commits=range(16))
    sender = world.connect().say(*(send(ALICE, number, b"%d" % number) for number in range(16)))
    delivered = device.hear()
    rng.shuffle(delivered)
    for deliver in delivered:
        device.say(Ack(deliver.message_id, deliver.payload))

    assert [message.payload for message in sender.hear()] == [b"%d" % number for number in range(16)]


def test_a_known_result_waits_for_the_older_ones():
    """A refusal that is known at once stands behind the exchange before it."""
    world = World()
    device, sender = world.device(commits=[1]), world.connect()
    sender.say(send(ALICE, 1), send(ALICE, 9), send(KEYS[5], 1))
    early = sender.hear()
    device.answer(b"now")

    assert early == []
    assert sender.hear() == [SendResult(0, b"now"), SendResult(2), SendResult(1)]


def test_deliveries_do_not_wait_for_each_other():
    """A second SEND reaches its device before the first has its ACK."""
    world = World()
    device = world.device(commits=[1, 2])
    world.connect().say(send(ALICE, 1, b"one"), send(ALICE, 2, b"two"))

    assert [deliver.payload for deliver in device.hear()] == [b"one", b"two"]


def conversation(world):
    """Return the bytes of a client that does everything once, on a relay with a device to talk to."""
    line = world.connect()
    line.with_preimage = True
    spoken = [
        Options(Feature.DELIVER_WITH_PREIMAGE),
        i_am(KEYS[4], line.nonce, [5], [(6, b"carried")]),
        send(ALICE, 1, b"x" * 300),
        Keepalive(),
        UpdateCommits((commit(7), commit(8))),
        send(KEYS[4], 7, b"self"),
        send(KEYS[4], 6),
        Ack(1, b"nobody asked"),
        send(ALICE, 2),
        send(KEYS[4], 99),
        Keepalive(),
    ]
    frames = b"".join(wire.encode(message) for message in spoken) + b"\x00\x4f\x00\x00\x00\x02hi\x00\x03\x00"
    return line, frames


@given(st.lists(st.integers(0, 200), max_size=60))
@settings(max_examples=25)
def test_any_chunking_has_the_same_effects(sizes):
    """However the stream is cut, the same effects come in the same order (core.machine)."""
    whole, pieces = World(), World()
    for world, chunks in ((whole, ()), (pieces, sizes)):
        world.device(commits=[1, 2])
        line, stream = conversation(world)
        line.say_bytes(stream, chunks)
        world.pass_ms(31_000)

    assert pieces.trace == whole.trace
    assert pieces.relay.sizes() == whole.relay.sizes()


def test_one_byte_at_a_time_has_the_same_effects():
    """The hardest chunking, in full, with an ending that is malformed."""
    whole, pieces = World(), World()
    for world, size in ((whole, 10_000), (pieces, 1)):
        world.device(commits=[1, 2])
        line, stream = conversation(world)
        stream = stream[:-3] + b"\x00\x04\x00\x00\x00\x00"
        line.say_bytes(stream, [size] * len(stream))

    assert pieces.trace == whole.trace


class Model:
    """The relay of spec section 5.3 as dictionaries and loops; it knows no time, scripts stay below any timeout."""

    def __init__(self):
        self.online = {}
        self.commits = {}
        self.cache = {}
        self.latest = {}
        self.unanswered = {}
        self.results = {}
        self.delivered = Counter()
        self.registered = Counter()
        self.gone = set()

    def register(self, key, line, commits, carried):
        """I_AM: the last one wins, its set replaces, what it carries is kept and done."""
        if key in self.online and self.online[key] is not line:
            self.leave(self.online[key])
        self.online[key] = line
        self.commits[key] = set()
        for number in commits:
            self.name(key, line, number)
        for number, response in carried:
            self.cache.setdefault((key, number), [response])
            self.commits[key].discard(number)
            flight = self.latest.pop((key, number), None)
            if flight is not None:
                self.end(flight, (0, self.cache[key, number][0]))
                self.answered(line, flight)
        self.listed_anew(key, line)

    def name(self, key, line, number):
        """A commit is named; what was delivered on this very connection and has no answer is not (BHUMI-C9)."""
        if number not in self.unanswered.setdefault(line, set()):
            self.commits[key].add(number)
            self.registered[key, number] += 1

    def update(self, key, line, number):
        """UPDATE_COMMITS."""
        self.name(key, line, number)
        self.listed_anew(key, line)

    def listed_anew(self, key, line):
        """Who waits for a delivery to an earlier connection may send anew once its commit is named again."""
        for (owner, number), flight in self.latest.items():
            if owner == key and flight["pending"] and flight["line"] is not line and number in self.commits[key]:
                self.end(flight, (4, b""))

    def send(self, line, key, number):
        """Steps 1 to 6 of spec 5.3, with the joining of BHUMI-C9 behind 1."""
        slot = {"line": line, "outcome": None, "entry": None, "flight": (key, number)}
        self.results.setdefault(line, []).append(slot)
        flight = self.latest.get((key, number))
        if (key, number) in self.cache:
            slot["entry"] = self.cache[key, number]
            slot["outcome"] = (0, slot["entry"][0])
        elif flight is not None and flight["pending"]:
            flight["slots"].append(slot)
        elif key not in self.online:
            slot["outcome"] = (1 if flight is None else 4, b"")
        elif number in self.commits[key]:
            self.commits[key].remove(number)
            self.latest[key, number] = {"slots": [slot], "line": self.online[key], "number": number, "pending": True}
            self.unanswered.setdefault(self.online[key], set()).add(number)
            self.delivered[key, number] += 1
        elif flight is not None:
            flight |= {"slots": [slot], "pending": True}
        else:
            slot["outcome"] = (2, b"")

    def ack(self, key, line, flight, response):
        """Steps 8 and 9; ``flight`` may have been delivered to an earlier connection, and may be late."""
        number = flight["number"]
        self.cache.setdefault((key, number), [response])
        self.end(flight, (0, response))
        self.answered(line, flight)
        if self.latest.get((key, number)) is flight:
            del self.latest[key, number]

    def end(self, flight, outcome):
        """Give everybody who waits the same."""
        for slot in flight["slots"]:
            slot["outcome"] = outcome
        flight |= {"slots": [], "pending": False}

    def answered(self, line, flight):
        """An answer came; on the connection of its delivery the commit may be named again."""
        if flight["line"] is line:
            self.unanswered[line].discard(flight["number"])

    def leave(self, line):
        """The connection's identity goes, and who waits for it gets 4."""
        self.gone.add(line)
        for key in [key for key, other in self.online.items() if other is line]:
            del self.online[key], self.commits[key]
            for (owner, _), flight in self.latest.items():
                if owner == key and flight["pending"]:
                    self.end(flight, (4, b""))

    def due(self, line):
        """Return the results that may have left: those before the first open one."""
        ready = []
        for slot in self.results.get(line, []):
            if slot["outcome"] is None:
                break
            ready.append(slot)
        return ready

    def evict(self):
        """Forget each cached answer that has left: spec 5.3 step 1 with BHUMI-18."""
        for line in set(self.results) - self.gone:
            for slot in self.due(line):
                if slot["entry"] is not None and self.cache.get(slot["flight"]) is slot["entry"]:
                    del self.cache[slot["flight"]]


class Play:
    """One random script on a relay and on the model side by side."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = World(seed=seed, rate_limits=False)
        self.model = Model()
        self.lines = []
        self.got = {}
        self.waiting = []
        self.delivered_count = 0
        self.keys = {}

    def step(self):
        """Do one random thing on both sides, then read everything."""
        rng, alive = self.rng, [line for line in self.lines if line.closed is None]
        what = rng.choices(["connect", "register", "send", "ack", "leave", "update"], [2, 2, 8, 7, 1, 1])[0]
        if not alive or what == "connect":
            self.lines.append(self.world.connect())
            return
        line = rng.choice(alive)
        if what == "register":
            self._register(line)
        elif what == "send" and len(self.model.results.get(line, [])) - len(self.got.get(line, [])) < 12:
            owner, number = rng.randrange(3), rng.randrange(8)
            self.model.send(line, KEYS[owner].public, number)
            line.say(send(KEYS[owner], number, b"%d" % number))
        elif what == "ack" and self.model.online.get(self.keys.get(line)) is line:
            self._ack(line)
        elif what == "leave":
            self.model.leave(line)
            line.hang_up()
        elif what == "update" and self.model.online.get(self.keys.get(line)) is line:
            number, key = rng.randrange(8), self.keys[line]
            self.model.update(key, line, number)
            line.say(UpdateCommits((commit(number),)))
        self.read()

    def _register(self, line):
        rng = self.rng
        key = self.keys.setdefault(line, KEYS[rng.randrange(3)].public)
        pair = next(pair for pair in KEYS if pair.public == key)
        commits = rng.sample(range(8), rng.randrange(6))
        carried = [(rng.randrange(8), rng.randbytes(rng.randrange(3)))] if rng.random() < 0.3 else []
        self.model.register(key, line, commits, carried)
        line.say(i_am(pair, line.nonce, commits, carried))

    def _ack(self, line):
        """Answer a delivery to this identity, be it one to an earlier connection."""
        mine = [each for each in self.waiting if each[0] == self.keys[line]]
        if mine:
            key, deliver, flight = each = self.rng.choice(mine)
            self.waiting.remove(each)
            response = self.rng.randbytes(5)
            self.model.ack(key, line, flight, response)
            line.say(Ack(deliver.message_id, response))

    def read(self):
        """Compare what every client heard with what the model says it should have heard."""
        self.model.evict()
        for line in self.lines:
            for message in line.hear():
                if isinstance(message, Deliver):
                    self.delivered_count += 1
                    key = self.keys[line]
                    self.waiting.append((key, message, self.model.latest[key, int(message.payload)]))
                elif isinstance(message, SendResult):
                    self.got.setdefault(line, []).append((message.status, message.payload))
            if line.closed is None:
                assert self.got.get(line, []) == [slot["outcome"] for slot in self.model.due(line)]


@pytest.mark.parametrize("seed", range(60))
def test_random_script_has_the_outcomes_of_the_model(seed):
    """Each SEND gets exactly one result, the model's, in the model's order; each delivery is one the model allows."""
    play = Play(seed)
    for _ in range(120):
        play.step()

    assert play.delivered_count == sum(play.model.delivered.values())
    for flight, times in play.model.delivered.items():
        assert times <= play.model.registered[flight]
    pending = [flight for flight in play.model.latest.values() if flight["pending"]]
    assert len(play.world.relay._deliveries.exchanges) == len(pending)


def test_preimage_registered_once_is_delivered_once():
    """However often, from wherever and whenever a capability is presented, its device sees it once."""
    rng = random.Random(3)
    world = World(rate_limits=False)
    device = world.device(commits=range(4))
    seen = []
    for _ in range(300):
        line = world.connect()
        line.say(send(ALICE, rng.randrange(4), b"once"))
        seen += device.heard
        if rng.random() < 0.5:
            device.answer()
        else:
            device.hear()
        line.hang_up()

    assert len(seen) == 4


def test_nothing_is_delivered_without_a_commit():
    """Whatever 32 bytes are presented, a device that registered nothing sees nothing."""
    world = World(rate_limits=False)
    device, sender = world.device(), world.connect()
    guesses = [bytes(32), b"\xff" * 32, commit(1), bytes(ALICE.public), preimage(1)]
    sender.say(*(messages.Send(ALICE.public, guess, b"") for guess in guesses))

    assert device.hear() == []
    assert sender.statuses() == [2] * len(guesses)
