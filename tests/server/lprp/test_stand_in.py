"""Laws of the LPRP stand-in: it does what the seed text says, bytes and talk, before it is a witness for anything."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.server.lprp import stand_in as other
from tests.server.lprp.stand_in import Host, Party, hash_of, in_a_thread, is_signed_by, pack, unpack, zero_bits
from tests.server.merk.original import in_a_loop

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/lprp.json").read_text())
SEEDS = {name: bytes.fromhex(keys["seed"]) for name, keys in VECTORS["keys"].items()}
KEYS = {name: bytes.fromhex(keys["public"]) for name, keys in VECTORS["keys"].items()}
POSITIVE = {entry["name"]: entry for entry in VECTORS["positive"]}


@pytest.mark.parametrize("name", POSITIVE)
def test_packets_are_those_of_the_vectors(name):
    """Whoever knows seeds, time and payload writes the same bytes."""
    entry = POSITIVE[name]
    heard = unpack(bytes.fromhex(entry["packet"]))
    signer = next(key for key in KEYS.values() if is_signed_by(key, heard.data))
    seed = next(SEEDS[who] for who, key in KEYS.items() if key == signer)
    made = pack(other.SigningKey(seed), heard.first, heard.second, heard.command, heard.payload, heard.time_ms)

    assert made == heard.data
    assert (f"0x{heard.command:03x}", len(heard.data)) == (entry["command"], entry["length"])


@pytest.mark.parametrize("case", VECTORS["pow"], ids=lambda case: f"{len(case['S']) // 2} bytes")
def test_work_is_counted_as_in_the_vectors(case):
    """The hash covers the whole challenge and the solution."""
    challenge, solution = bytes.fromhex(POSITIVE[case["challenge"]]["packet"]), bytes.fromhex(case["S"])

    assert zero_bits(challenge, solution) == case["leading_zero_bits"]


@pytest.mark.parametrize("case", VECTORS["whitelist"], ids=lambda case: f"{len(case['set'])} keys")
def test_whitelists_are_hashed_as_in_the_vectors(case):
    """Keys are hashed in ascending order, and no keys are the hash of nothing."""
    assert hash_of(bytes.fromhex(key) for key in reversed(case["set"])).hex() == case["hash"]


@in_a_thread
def live(host_key, address):
    """Let a tenant and a sender do everything once; return what the tenant got and what the answers were."""
    with (
        Party(SEEDS["tenant"], host_key, address) as tenant,
        Party(SEEDS["sender"], host_key, address) as sender,
    ):
        told = [sender.relay(tenant.key, bytes(64))[1], tenant.lease(), tenant.beat()]
        told.append(sender.relay(tenant.key, b"for work" + bytes(60))[1])
        told += [tenant.toggle(set(), sender.key), tenant.compare({sender.key}), tenant.compare(set())]
        failures = sender.failures
        told.append(sender.relay(tenant.key, b"as a friend" + bytes(60))[1])
        told.append(tenant.toggle({sender.key}, KEYS["friend1"]))
        told += [tenant.clear(), tenant.compare(set())]
        mail = {mail.signature: mail for mail in iter(lambda: tenant.receive(0.2), None)}
        for number, each in enumerate(mail.values()):
            tenant.confirm(each, literally=bool(number))
        tenant.beat()
        return [each.payload.rstrip(b"\0") for each in mail.values()], told, failures == sender.failures


@in_a_loop
async def test_both_sides_understand_each_other():
    """Lease, work, whitelist, mail and its confirmation in both orders go through, and nothing is left over."""
    async with Host(SEEDS["host"]) as host:
        mail, told, friend_worked_not = await live(host.key, host.address)

    assert sorted(mail) == [b"as a friend", b"for work"]
    assert friend_worked_not
    assert told == [
        other.RELAY_REFUSED,
        other.GRANTED,
        other.ALIVE,
        other.ACCEPTED,
        other.DONE,
        other.DONE,
        other.DIFFERS,
        other.ACCEPTED,
        other.DONE,
        other.DONE,
        other.DONE,
    ]
    assert len(host.confirmed) == 2
    assert not any(tenancy.queue for tenancy in host.tenants.values())
    assert host.faults == []


@in_a_loop
async def test_a_swallowed_datagram_is_said_again():
    """Who hears every second datagram only still does it all."""
    async with Host(SEEDS["host"], swallow=lambda number: number % 2 == 0) as host:
        with Party(SEEDS["tenant"], host.key, host.address) as tenant:
            granted = await asyncio.to_thread(tenant.lease)

    assert granted == other.GRANTED
    assert set(host.tenants) == {KEYS["tenant"]}
