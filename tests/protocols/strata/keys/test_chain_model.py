"""Laws of protocols.strata.chain that hold for any events: a dumb model, and what no order of arrival may change."""

import random

import pytest

from tests.protocols.strata.build import in_force
from tests.protocols.strata.build_keys import DAY, OWN, SKEW, T0, approval, change, event, key, ring_with_recovery
from waystation.protocols.strata.keys.chain import replay
from waystation.protocols.strata.keys.keyring import EventStatus, check_method, check_signer, implicit_ring
from waystation.protocols.strata.relay.directory import Directory


def dumb_model(events):
    """Replay ordinary events without back-dating, with one dict and a loop."""
    known = {f"{OWN}#keys-1": {"public": key("own"), "from": 0, "until": None, "revoked": None}}
    for each in events:
        at, content = each.received_at, each.content
        able = [
            one
            for one in known.values()
            if one["public"] == each.signer
            and one["from"] <= at
            and (one["until"] is None or at <= one["until"] + SKEW)
            and (one["revoked"] is None or at < one["revoked"])
        ]
        if not able:
            continue
        if content["event"] == "REVOKE":
            if content["key_id"] in known and known[content["key_id"]]["revoked"] is None:
                known[content["key_id"]]["revoked"] = content["revoked_at"]
            continue
        if content["key_id"] in known:
            continue
        old = known.get(content.get("replaces"))
        if content["event"] == "ROTATE" and old:
            old["until"] = min(content["valid_from"], content["valid_from"] if old["until"] is None else old["until"])
        fragment = content["key_id"].partition("#")[2]
        known[content["key_id"]] = {
            "public": key(fragment),
            "from": content["valid_from"],
            "until": None,
            "revoked": None,
        }
    return {name: tuple(one.values()) for name, one in known.items()}


def draw(rng, count, *, recovery):
    """Return random events; names collide often, times often tie, revocations reach back with ``recovery``."""
    names, at, events = ["keys-1", "a", "b", "c", "d"], T0, []
    signers = ["own", "a", "b", "c", "d", *(["r1", "r2", "r3"] if recovery else [])]
    for number in range(count):
        at += rng.choice([0, 1, 200, 400, 40_000])
        word = rng.choice(["ADD", "ADD", "ROTATE", "REVOKE", *(["approve"] * 2 if recovery else [])])
        if word == "approve":
            content = approval(rng.randrange(max(number - 4, 0), number + 1))
        elif word == "REVOKE":
            back = rng.choice([0, 500, 5000, 100_000]) if recovery else 0
            content = change(word, rng.choice([*names, *(["r1"] if recovery else [])]), revoked_at=at - back)
        else:
            more = {"replaces": rng.choice(names)} if word == "ROTATE" else {}
            content = change(word, rng.choice(names[1:]), valid_from=at + rng.choice([-50, 0, 300]), **more)
        lost = recovery and number > count // 3  # from here on mostly recovery keys speak
        able = signers[-3:] if lost and rng.random() < 0.85 else [*signers, "own"]
        events.append(event(number, at, rng.choice(able), content))
    return events


@pytest.mark.parametrize("seed", range(40))
def test_replay_agrees_with_a_dumb_model(seed):
    """Without recovery and back-dating, a dict and a loop give the same keys."""
    events = draw(random.Random(seed), 40, recovery=False)

    ring = replay(implicit_ring(OWN, key("own")), events, SKEW, T0 + 30 * DAY)

    found = {each.key_id: (each.public, each.valid_from, each.valid_until, each.revoked_at) for each in ring.methods}
    assert found == dumb_model(events), f"seed {seed}"


def check(ring, events, now):
    """Assert what holds for every ring."""
    by_id = {each.packet_id: each for each in events}
    recovery_keys = [key(f"r{count}") for count in (1, 2, 3)]
    assert [name for name, _ in ring.statuses] == list(by_id)
    for name, standing in ring.statuses:
        each = by_id[name]
        if standing is EventStatus.IN_FORCE and each.content["type"] == "KEY_EVENT" and each.signer in recovery_keys:
            assert now >= each.received_at + DAY
            said = {one.signer for one in events if one.content.get("target_event") == "0x" + name.hex()} | {
                each.signer
            }
            assert len(said) >= ring.policy.threshold
    for each in ring.methods:
        if each.revoked_at is not None:
            assert check_method(each, "POST", each.revoked_at + SKEW + 1, SKEW) is not None
            assert check_method(each, "KEY_EVENT", each.revoked_at, SKEW) is not None
    assert all(check_signer(ring, each, "POST", now, SKEW) is not None for each in recovery_keys)


@pytest.mark.parametrize("seed", range(40))
def test_replay_knows_no_order_and_no_history(seed):
    """Shuffled, or one by one through a directory's memory, the same events give the same ring at every time."""
    rng = random.Random(seed)
    genesis = ring_with_recovery(3, 2)
    events = draw(rng, 30, recovery=True)
    stored = []
    document = {
        "id": OWN,
        "verification_method": [
            {
                "id": each.key_id,
                "type": "Ed25519VerificationKey2020",
                "public_key_hex": each.public.hex(),
                "valid_from": 0,
            }
            | ({"usage": "recovery"} if each.recovery else {})
            for each in reversed(genesis.methods)
        ],
        "recovery_policy": {"threshold": 2, "key_ids": []},
    }
    directory = Directory(
        static_dids={}, documents=[document], events=lambda _: tuple(stored), skew=SKEW, limits=in_force()
    )
    assert directory.ring(OWN, T0) == genesis, f"seed {seed}"
    directory.forget(OWN)
    for each in events:
        stored.append(each)
        directory.forget(OWN)
        for now in (each.received_at, each.received_at + DAY // 2, each.received_at + DAY):
            if each is not events[-1] and now > events[each.seq + 1].received_at:
                break
            shuffled = rng.sample(stored, len(stored))
            ring = replay(genesis, shuffled, SKEW, now)

            assert directory.ring(OWN, now) == ring, f"seed {seed}"
            if not ring.conflict:
                check(ring, stored, now)
