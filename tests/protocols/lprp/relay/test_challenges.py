"""Laws of lprp.challenges: every limit at its bound and beyond, and who is pushed out."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.protocols.lprp.build_parts import limits_of
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import Command, Kind, Packet
from waystation.protocols.lprp.relay.challenges import PROTECTED_MS, Challenge, Challenges, is_expired

NOW = Instant(5_000_000)
LIFE_MS = 524_288
HOST = PublicKey(b"h" * 32)
ASKS = {Kind.RELAY: Command.RELAY, Kind.LEASE: Command.ASK_LEASE, Kind.WHITELIST: Command.UPDATE_WHITELIST}


def wide(number, size=32):
    return number.to_bytes(size, "big")


def challenge(number, *, kind=Kind.LEASE, worker=None, prefix=None, recipient=None, now=NOW):
    """Return one of its own number: unless told, of its own key, prefix and recipient too."""
    worker = PublicKey(wide(number if worker is None else worker))
    recipient = PublicKey(wide(number if recipient is None else recipient)) if kind is Kind.RELAY else HOST
    asked = Packet(bytes(208), wide(number, 64), 0, worker, recipient, ASKS[kind], bytes(64))
    return Challenge(
        packet=wide(number, 64) + bytes(144),
        signature=wide(number, 64),
        kind=kind,
        worker=worker,
        address=("192.0.2.1", 1),
        prefix=f"prefix {number if prefix is None else prefix}",
        asked=asked,
        recipient=recipient,
        bits=16,
        made_at=now,
    )


def add(challenges, *items):
    """Add all and return the numbers of what the last one pushed out."""
    pushed_out = []
    for item in items:
        pushed_out = challenges.add(item, item.made_at)
    return numbers(pushed_out)


def numbers(items):
    return [int.from_bytes(item.signature, "big") for item in items]


def kept(challenges, count):
    return [number for number in range(count) if challenges.find(wide(number, 64)) is not None]


class DumbModel:
    """A list of all challenges; every question is answered by looking at each of them."""

    def __init__(self, count_max):
        self.count_max = count_max
        self.items = []
        self.reached = {}  # when each prefix came to the number it has: a growing counter
        self.changes = 0

    def add(self, item, now):
        self.remove(item.signature)
        self.items.append(item)
        self._touch(item.prefix)
        gone = []
        for limit, same in (
            (4, lambda other: other.worker == item.worker),
            (32, lambda other: other.prefix == item.prefix),
        ):
            group = [other for other in self.items if same(other)]
            if len(group) > limit:
                gone.append(self._take_out(group[0]))
        group = [other for other in self.items if other.kind is Kind.RELAY and other.recipient == item.recipient]
        if item.kind is Kind.RELAY and len(group) > 64:
            counts = Counter(other.prefix for other in group)
            fullest = [other for other in group if counts[other.prefix] == max(counts.values())]
            gone.append(self._take_out(group[0] if self._is_old(group[0], now) else fullest[0]))
        if len(self.items) > self.count_max:
            gone.append(self._take_out(self._loser(now)))
        return gone

    def remove(self, signature):
        for item in [item for item in self.items if item.signature == signature]:
            self._take_out(item)

    def expire(self, now):
        return [self._take_out(item) for item in self.items[:] if now - item.made_at > 2 * LIFE_MS * 1_000]

    def _loser(self, now):
        if self._is_old(self.items[0], now):
            return self.items[0]
        counts = Counter(item.prefix for item in self.items)
        fullest = [prefix for prefix in counts if counts[prefix] == max(counts.values())]
        first = min(fullest, key=self.reached.__getitem__)
        return next(item for item in self.items if item.prefix == first)

    def _is_old(self, item, now):
        return now - item.made_at > LIFE_MS * 1_000

    def _take_out(self, item):
        self.items.remove(item)
        self._touch(item.prefix)
        return item

    def _touch(self, prefix):
        self.changes += 1
        self.reached[prefix] = self.changes


def test_limits_are_those_of_the_text():
    """16,384 in all, 32 of a prefix, 4 of a key, 64 for a recipient, 32 refusals."""
    limits = (
        LIMITS.challenges,
        LIMITS.challenges_per_network,
        LIMITS.challenges_per_key,
        LIMITS.challenges_per_recipient,
        LIMITS.work_refusals_per_challenge,
    )

    assert limits == (16_384, 32, 4, 64, 32)


def test_challenge_is_found_by_its_signature_until_it_is_removed():
    """What is removed is gone, and removing it again changes nothing."""
    challenges, one = Challenges(limits_of()), challenge(1)
    challenges.add(one, NOW)
    assert challenges.find(bytes(bytearray(one.signature))) is one
    assert challenges.find(wide(2, 64)) is None
    challenges.remove(one.signature)
    challenges.remove(one.signature)

    assert (challenges.find(one.signature), len(challenges), challenges.oldest()) == (None, 0, None)


def test_same_packet_again_takes_the_place_of_the_first():
    """Two challenges of one signature are one, and nothing is pushed out for it."""
    challenges = Challenges(limits_of(challenges=2))
    add(challenges, challenge(1), challenge(2))
    again = challenge(1)

    assert challenges.add(again, NOW) == []
    assert challenges.find(again.signature) is again
    assert len(challenges) == 2


def test_key_loses_its_own_oldest_at_its_fifth():
    """Four wait for one key, the fifth takes the place of its first, though others are older."""
    challenges = Challenges(limits_of())
    add(challenges, challenge(0))
    four = [challenge(number, worker=99) for number in range(1, 5)]

    assert add(challenges, *four) == []
    assert add(challenges, challenge(5, worker=99)) == [1]
    assert kept(challenges, 6) == [0, 2, 3, 4, 5]


def test_kinds_share_the_limit_of_a_key():
    """Relay, lease and whitelist count together."""
    challenges = Challenges(limits_of())
    kinds = [Kind.RELAY, Kind.LEASE, Kind.WHITELIST, Kind.RELAY]

    assert add(challenges, *(challenge(number, kind=kind, worker=9) for number, kind in enumerate(kinds))) == []
    assert add(challenges, challenge(4, worker=9)) == [0]


def test_prefix_loses_its_own_oldest_at_its_thirty_third():
    """32 wait for one prefix, whatever their keys; the next takes the place of its first, though others are older."""
    challenges = Challenges(limits_of())
    add(challenges, challenge(0))
    full = [challenge(number, prefix=7) for number in range(1, 33)]

    assert add(challenges, *full) == []
    assert add(challenges, challenge(33, prefix=7)) == [1]
    assert len(challenges) == 33


def test_fullest_prefix_loses_for_a_recipient_at_the_sixty_fifth():
    """64 wait for one recipient; then the prefix with most of them loses its oldest, not whoever came last."""
    challenges = Challenges(limits_of())
    few = [challenge(number, kind=Kind.RELAY, recipient=9) for number in range(40)]
    many = [challenge(number, kind=Kind.RELAY, recipient=9, prefix="flood") for number in range(40, 64)]

    assert add(challenges, *few, *many) == []
    assert add(challenges, challenge(64, kind=Kind.RELAY, recipient=9)) == [40]
    assert add(challenges, challenge(65, kind=Kind.RELAY, recipient=9)) == [41]


def test_fullest_for_a_recipient_is_counted_among_his_own():
    """A prefix that is full for other reasons does not lose what it has for this recipient."""
    challenges = Challenges(limits_of())
    elsewhere = [challenge(number, prefix="busy") for number in range(100, 120)]
    pair = [challenge(number, kind=Kind.RELAY, recipient=9, prefix="pair") for number in range(1, 3)]
    single = [challenge(number, kind=Kind.RELAY, recipient=9) for number in range(3, 64)]
    own = challenge(0, kind=Kind.RELAY, recipient=9, prefix="busy")
    add(challenges, *elsewhere, own, *pair, *single)

    assert add(challenges, challenge(64, kind=Kind.RELAY, recipient=9)) == [1]


def test_equals_lose_the_oldest_for_a_recipient():
    """When every prefix has one, the first to come is the first to go."""
    challenges = Challenges(limits_of())
    add(challenges, *(challenge(number, kind=Kind.RELAY, recipient=9) for number in range(64)))

    assert add(challenges, challenge(64, kind=Kind.RELAY, recipient=9)) == [0]


SHARED = [({"worker": 9}, 4, 2), ({"prefix": 9}, 32, 16), ({"kind": Kind.RELAY, "recipient": 9}, 64, 63)]


@pytest.mark.parametrize(("shared", "bound", "spared"), SHARED)
def test_who_works_is_spared(shared, bound, spared):
    """Challenges that were answered outlive any number of those that nobody may have heard (LPRP-FULLEST)."""
    challenges = Challenges(limits_of())
    workers = [challenge(number, **shared) for number in range(spared)]
    for worker in workers:
        worker.tried_at = NOW
    add(challenges, *workers, *(challenge(number, **shared) for number in range(1_000, 1_000 + bound - spared)))
    gone = [add(challenges, challenge(number, **shared)) for number in range(2_000, 2_200)]

    assert {number for (number,) in gone}.isdisjoint(range(spared))
    assert kept(challenges, spared) == list(range(spared))


@pytest.mark.parametrize(
    ("shared", "bound", "goes"),
    [({"worker": 9}, 4, 0), ({"prefix": 9}, 32, 16), ({"kind": Kind.RELAY, "recipient": 9}, 64, 0)],
)
def test_newcomer_comes_in_where_all_work(shared, bound, goes):
    """When all that stand were answered one of them gives way, not the newcomer that nobody could answer yet."""
    challenges = Challenges(limits_of())
    workers = [challenge(number, **shared) for number in range(bound)]
    for worker in workers:
        worker.tried_at = NOW
    add(challenges, *workers)

    assert add(challenges, challenge(1_000, **shared)) == [goes]


def test_few_of_a_prefix_are_spared_for_a_recipient():
    """Answers that need not be right cost nothing: a network holds two places of a mailbox with them, not all."""
    challenges = Challenges(limits_of())
    crowd = [challenge(number, kind=Kind.RELAY, recipient=9, prefix=number % 2) for number in range(64)]
    for each in crowd:
        each.tried_at = NOW
    add(challenges, *crowd)
    gone = [add(challenges, challenge(number, kind=Kind.RELAY, recipient=9)) for number in range(100, 160)]

    assert sorted(number for (number,) in gone) == list(range(4, 64))


@pytest.mark.parametrize(("after_ms_", "goes"), [(PROTECTED_MS, 1), (PROTECTED_MS + 1, 0)])
def test_sparing_ends(after_ms_, goes):
    """Who has not answered for a minute is like everybody else."""
    challenges = Challenges(limits_of())
    workers = [challenge(number, worker=9) for number in range(4)]
    workers[0].tried_at = NOW
    add(challenges, *workers)

    assert add(challenges, challenge(7, worker=9, now=after_ms(NOW, after_ms_))) == [goes]


def test_leases_and_updates_have_no_limit_per_recipient():
    """They are all for the host, which is no recipient of mail."""
    challenges = Challenges(limits_of())
    kinds = [Kind.LEASE, Kind.WHITELIST]
    for number in range(200):
        assert add(challenges, challenge(number, kind=kinds[number % 2])) == []

    assert len(challenges) == 200


def test_fullest_prefix_loses_when_the_table_is_full():
    """The one beyond the bound costs the prefix with most its oldest, whoever is older elsewhere."""
    challenges = Challenges(limits_of(challenges=10))
    add(challenges, *(challenge(number) for number in range(5)))
    assert add(challenges, *(challenge(number, prefix="many") for number in range(5, 10))) == []

    assert add(challenges, challenge(10)) == [5]
    assert add(challenges, challenge(11)) == [6]
    assert len(challenges) == 10


def test_newcomer_counts_when_the_fullest_is_looked_for():
    """Among prefixes with one each, the one that asks for a second pays for it."""
    challenges = Challenges(limits_of(challenges=4))
    add(challenges, *(challenge(number) for number in range(4)))

    assert add(challenges, challenge(4, prefix=2)) == [2]


def test_newcomer_is_never_pushed_out():
    """Even where there is room for one only, the new one stays."""
    challenges = Challenges(limits_of(challenges=1))
    for number in range(5):
        add(challenges, challenge(number))
        assert kept(challenges, 5) == [number]


def test_full_table_of_the_default_size():
    """16,384 wait; the next pushes out one."""
    challenges = Challenges(limits_of())
    for number in range(16_384):
        assert not challenges.add(challenge(number), NOW)

    assert add(challenges, challenge(16_384)) == [0]
    assert len(challenges) == 16_384


def test_one_newcomer_pushes_out_no_more_than_its_limits_ask_for():
    """When the key's oldest goes, and with it the table has room again, nobody else goes."""
    challenges = Challenges(limits_of(challenges=8))
    add(challenges, *(challenge(number, prefix="many") for number in range(4)))
    add(challenges, *(challenge(number, worker=99, prefix="mine") for number in range(4, 8)))

    assert add(challenges, challenge(8, worker=99, prefix="many")) == [4]


def test_key_prefix_and_recipient_can_each_lose_one():
    """A newcomer over three limits at once costs one of each, and the table needs no fourth."""
    challenges = Challenges(limits_of(challenges=100))
    add(challenges, *(challenge(number, worker=900) for number in range(4)))
    add(challenges, *(challenge(number, prefix="mine") for number in range(4, 36)))
    add(challenges, *(challenge(number, kind=Kind.RELAY, recipient=9) for number in range(36, 100)))
    newcomer = challenge(100, kind=Kind.RELAY, worker=900, prefix="mine", recipient=9)

    assert add(challenges, newcomer) == [0, 4, 36]


def test_expiry_is_after_exactly_its_life():
    """At 2**19 ms work is still taken, a microsecond later it is lost."""
    one = challenge(1)
    last = after_ms(NOW, LIFE_MS)

    assert not is_expired(one, last)
    assert is_expired(one, Instant(last + 1))


def test_expired_challenge_is_kept_as_long_again():
    """It is found for another 2**19 ms, so that 401 can be said, and not a microsecond longer."""
    challenges, one = Challenges(limits_of()), challenge(1)
    challenges.add(one, NOW)
    last = after_ms(NOW, 2 * LIFE_MS)

    assert challenges.expire(last) == []
    assert challenges.find(one.signature) is one
    assert challenges.next_expiry() == last + 1
    assert challenges.expire(Instant(last + 1)) == [one]
    assert (challenges.find(one.signature), challenges.next_expiry()) == (None, None)


def test_expired_one_goes_first_when_the_table_is_full():
    """One that nobody can answer any more goes before the oldest of the fullest prefix."""
    challenges = Challenges(limits_of(challenges=6))
    later = Instant(after_ms(NOW, LIFE_MS) + 1)
    add(challenges, challenge(0), *(challenge(number, prefix="many", now=later) for number in range(1, 6)))

    assert add(challenges, challenge(6, now=later)) == [0]
    assert add(challenges, challenge(7, now=later)) == [1]


def test_one_that_just_lives_does_not_go_first():
    """At exactly 2**19 ms a challenge can still be answered and is treated so."""
    challenges = Challenges(limits_of(challenges=6))
    later = after_ms(NOW, LIFE_MS)
    add(challenges, challenge(0), *(challenge(number, prefix="many", now=later) for number in range(1, 6)))

    assert add(challenges, challenge(6, now=later)) == [1]


def test_expired_one_goes_first_for_a_recipient():
    """The same holds among the challenges for one recipient's mail."""
    challenges = Challenges(limits_of())
    later = Instant(after_ms(NOW, LIFE_MS) + 1)
    flood = [
        challenge(number, kind=Kind.RELAY, recipient=9, prefix=f"many {number % 2}", now=later)
        for number in range(1, 64)
    ]
    add(challenges, challenge(0, kind=Kind.RELAY, recipient=9), *flood)

    assert add(challenges, challenge(64, kind=Kind.RELAY, recipient=9, now=later)) == [0]
    assert add(challenges, challenge(65, kind=Kind.RELAY, recipient=9, now=later)) == [1]


def test_removed_ones_count_no_more():
    """An answered challenge gives its place back to key, prefix and recipient."""
    challenges = Challenges(limits_of())
    for number in range(500):
        one = challenge(number, kind=Kind.RELAY, worker=1, prefix="one", recipient=9)
        assert challenges.add(one, NOW) == []
        challenges.remove(one.signature)

    assert len(challenges) == 0
    assert not any((challenges._by_key, challenges._by_prefix, challenges._by_recipient, *challenges._by_fullness))


def test_thirty_third_refusal_is_silent():
    """Thirty-two packets 401 may be sent for a challenge; it stays silent from then on."""
    one = challenge(1)

    assert [one.may_refuse(32) for _ in range(34)] == [True] * 32 + [False] * 2


@pytest.mark.parametrize("seed", range(12))
def test_challenges_agree_with_a_dumb_model(seed):
    """Any mixture of adding, answering and waiting pushes out and keeps what a list searched end to end does."""
    rng = random.Random(seed)
    count_max = rng.choice([20, 90, 150])
    prefixes, workers, recipients = rng.choice([3, 12, 40]), rng.choice([8, 60, 1_000]), rng.choice([1, 2, 5])
    challenges, model, now = Challenges(limits_of(challenges=count_max)), DumbModel(count_max), NOW
    for number in range(500):
        now = after_ms(now, rng.choice([0, 1, 1_000, 10_000, 100_000] if rng.random() < 0.2 else [0, 1]))
        if rng.random() < 0.15 and model.items:
            signature = rng.choice(model.items).signature
            challenges.remove(signature)
            model.remove(signature)
        if rng.random() < 0.05:
            assert challenges.expire(now) == model.expire(now), f"seed {seed}"
        newcomer = challenge(
            number if rng.random() < 0.95 else rng.randrange(number + 1),
            kind=Kind.RELAY if rng.random() < 0.8 else rng.choice(list(Kind)),
            worker=rng.randrange(workers),
            prefix=rng.randrange(prefixes),
            recipient=rng.randrange(recipients),
            now=now,
        )

        assert challenges.add(newcomer, now) == model.add(newcomer, now), f"seed {seed}"
        assert list(challenges._all.values()) == model.items, f"seed {seed}"
        assert challenges.oldest() is model.items[0], f"seed {seed}"


def test_lower_limits_evict_two_for_each_that_comes():
    """Tables that a reload made smaller shrink to the new limits while challenges come; a higher one gives room."""
    limits = limits_of(challenges_per_network=6, challenges_per_key=100)
    challenges = Challenges(limits)
    for number in range(10):
        challenges.add(challenge(number, prefix="192.0.2.0/24"), NOW)
    before = len(challenges)
    limits.now = replace(limits.now, challenges_per_network=3)
    for number in range(10, 16):
        challenges.add(challenge(number, prefix="192.0.2.0/24"), NOW)
    lowered = len(challenges)
    limits.now = replace(limits.now, challenges_per_network=50)
    for number in range(100, 160):
        challenges.add(challenge(number, prefix="192.0.2.0/24"), NOW)

    assert (before, lowered, len(challenges)) == (6, 3, 50)


@pytest.mark.parametrize("recipients", [0, 1])
def test_newcomer_stays_where_every_prefix_has_one(recipients):
    """A table whose limit was lowered loses those of others, though the newcomer stands first among equals."""
    limits = limits_of()
    challenges = Challenges(limits)
    kind = Kind.RELAY if recipients else Kind.LEASE
    for number in range(2 + 2 * recipients):
        challenges.add(challenge(number, prefix=f"192.0.{number // 2}.0/24", kind=kind, recipient=7), NOW)
    limits.now = replace(limits.now, challenges=1 + recipients, challenges_per_recipient=1)
    challenges.add(newcomer := challenge(10, prefix="198.51.100.0/24", kind=kind, recipient=7), NOW)

    assert challenges.find(newcomer.signature) is newcomer
    assert len(challenges) == 1 + recipients
