"""Laws of protocols.bsp.limits: the defaults are the wire reference's, and what an operator sets is what holds."""

import dataclasses
import random

from tests.protocols.bsp.build_machine import FRIEND, US, Bench
from tests.protocols.bsp.stream.test_machine_handshake import status_of
from waystation.protocols.bsp.limits import DEFAULT_LIMITS, BspLimits
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.relay.machine import BspRelay
from waystation.protocols.bsp.settings import BspSettings
from waystation.store.memory import MemoryStore

STATUS_BUSY = 2


def relay(settings=None, **limits):
    """Return a relay without groups."""
    return BspRelay(settings or BspSettings(), US, MemoryStore(), random.Random(1), limits=BspLimits(**limits))


def test_defaults_are_those_of_the_wire_reference():
    """What specs/bsp.md 6 and 9 promise holds where the operator sets nothing."""
    promised = BspLimits(
        connected=4_096,
        handshakes=256,
        arrivals_per_second=20,
        arrivals_burst=500,
        unsaved_bytes=3_145_728,
        messages=1_000_000,
        hosted_messages=800_000,
        commands_per_second=20,
        commands_burst=64,
        answers_bytes=1_048_576,
        owner_copies=400_000,
    )

    assert promised == DEFAULT_LIMITS


def test_every_use_is_a_size_of_the_relay():
    """What is listed beside a limit is counted."""
    assert {field.metadata["use"] for field in dataclasses.fields(BspLimits)} - {""} <= relay().sizes().keys()


def test_arrivals_follow_a_new_limit():
    """A raised limit holds for a key that is counted already, as its allowance refills."""
    bench = Bench(limits=BspLimits(arrivals_per_second=1, arrivals_burst=1))
    before = [status_of(bench, FRIEND)[1] for _ in range(2)]
    bench.use_limits(BspLimits(arrivals_per_second=5))
    bench.pass_ms(1_000)
    after = [status_of(bench, FRIEND)[1] for _ in range(6)]

    assert before == [0, STATUS_BUSY]
    assert after == [0] * 5 + [STATUS_BUSY]


def test_connections_without_a_proof_follow_a_new_limit():
    """The two oldest ones give way to each next one, until as many stand as may; no single one waits for all."""
    bench = Bench()
    peers = [bench.come() for _ in range(6)]
    bench.use_limits(BspLimits(handshakes=2))
    sizes = []
    for _ in range(5):
        bench.come()
        sizes.append(bench.machine.sizes()["handshakes"])

    assert sizes == [5, 4, 3, 2, 2]
    assert {bench.reason_of(peer) for peer in peers} == {Refusal.BUSY}


def test_messages_of_the_device_follow_a_new_limit():
    """The receiver holds to it at once."""
    one = relay(messages=2_000)
    before = one._device.receiver.messages_max
    one.use_limits(BspLimits(messages=3_000))

    assert (before, one._device.receiver.messages_max) == (2_000, 3_000)


def test_quotas_reload_and_other_settings_stay():
    """Of a changed table only the quotas are taken over."""
    one = relay(BspSettings(owner_groups_max=1))
    one.use_settings(BspSettings(owner_groups_max=7, group_messages_max=9_000, mode="batch"))

    assert one._mailbox._groups.quota.groups == 7
    assert (one._settings.group_messages_max, one._settings.mode) == (9_000, "auto")


def test_relay_has_one_holder_of_limits():
    """A reload reaches connections and mailbox through the same object, so that no part goes by old limits."""
    one = relay()
    one.use_limits(BspLimits(commands_burst=7))

    assert one._limits is one._machine._limits is one._mailbox._limits
    assert one._limits.now.commands_burst == 7
