"""Tests that an LPRP host's answers stay true after SIGKILL at any moment: mail, leases, whitelists, replay protection.

Each round starts the host and checks every answer of the previous round. Allow-listed senders then send at full speed,
and half of the mail stays unconfirmed. Another client requests leases and edits whitelists. The host is killed a random
time after the first 202. At the end, every packet answered with 202 must have been delivered.
"""

import random
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from bench.lprp.driver import Flow, Pair, Signer, ask, close, lease, make_mail, settle
from soak.invariants import ended_well, kill_in_rounds
from soak.lprp.changer import Changer
from soak.lprp.nodes import TIMEOUT_S, LprpNode, collect
from soak.shims.power_cut import Power
from waystation.protocols.lprp.messages import Command

MOMENT_MAX_S: Final = 0.3
PAIRS: Final = 8
MAIL_PER_ROUND: Final = 1_200
"""150 packets for each tenant, who must have room for all of it (256)."""
IN_FLIGHT: Final = 64
THIEF: Final = "127.0.99.1"
WITNESS: Final = 20_001
_RECIPIENT: Final = slice(104, 136)


def check(folder: Path, seed: int, rounds: int = 200, power: Power | None = None) -> str:
    """Try it so many times; return what happened. With ``power`` each kill of the node is a power cut."""
    rng = random.Random(seed)
    accepted = came = 0
    owed: set[bytes] = set()
    known: set[bytes] = set()
    old: list[bytes] = []
    node = LprpNode(folder / "home", power=power)
    with ended_well(node), ExitStack() as stack:
        node.start()
        pairs = settle(node.place, node.key, PAIRS)
        changer = Changer(node, rng)
        witness = Signer(WITNESS, node.key)
        with closing(node.line(THIEF)) as line:
            lease(line, witness)
        stack.callback(close, pairs)
        stack.callback(changer.close)

        def check() -> None:
            nonlocal came
            if not node.running:
                node.start()
            check_unmoved(node, old, witness)
            came += collect(pairs, owed, known)
            changer.check()

        def kill(_number: int, moment_s: float) -> Path:
            nonlocal old, owed, accepted
            old = [beat_twice(pair) for pair in pairs]
            flow, names = until_killed(node, pairs, changer, rng, moment_s)
            accepted += len(flow.accepted)
            owed = set(flow.accepted) - flow.confirmed
            known.update(names)
            return node.store

        kill_in_rounds(rng, rounds, MOMENT_MAX_S, check, kill)
    return (
        f"{rounds} kills, {accepted} packets answered with 202, {came} handed over by the next life, none lost; "
        f"{len(changer.granted)} leases, {changer.changes} changes of whitelists, none gone; store whole"
    )


def until_killed(
    node: LprpNode, pairs: list[Pair], changer: Changer, rng: random.Random, moment_s: float
) -> tuple[Flow, set[bytes]]:
    """Write, lease and list until the host is killed at a random moment; return what became of which mail."""
    mail = make_mail(pairs, MAIL_PER_ROUND)
    silent = [each._replace(confirmation=b"") if rng.random() < 0.5 else each for each in mail]
    flow = Flow(pairs, silent)
    with changer.at_work():
        ends_at = time.monotonic() + TIMEOUT_S
        flow.until(lambda: bool(flow.accepted) or time.monotonic() >= ends_at, IN_FLIGHT)
        moment = time.monotonic() + moment_s
        flow.until(lambda: time.monotonic() >= moment, IN_FLIGHT)
        node.kill()
    flow.read_rest()
    flow.close()
    assert not flow.refused, f"{flow.refused} packets of allow-listed senders were refused"
    return flow, {each.signature for each in mail}


def beat_twice(pair: Pair) -> bytes:
    """Have two heartbeats answered; return the first, which the host must not believe any more."""
    first, second = (pair.tenant.seal(Command.HEARTBEAT) for _ in range(2))
    for packet in (first, second):
        ask(pair.tenant_line, packet)
    return first.data


def check_unmoved(node: LprpNode, old: list[bytes], witness: Signer) -> None:
    """See that a host which has just started believes no packet older than what its last life has seen (LPRP-D13).

    A tenant that may be answered sends last, from the same address: its answer comes after all that the others caused.
    """
    with closing(node.line(THIEF)) as thief:
        for data in (*old, witness.seal(Command.HEARTBEAT).data):
            thief.send(data)
        came: list[bytes] = []
        while witness.key not in {data[_RECIPIENT] for data in came}:
            assert thief.wait(TIMEOUT_S), "the witness got no answer"
            came += thief.read()
    assert [data[_RECIPIENT] for data in came] == [witness.key], "a heartbeat from before the kill moved a tenant"
