"""What a host has answered is true after SIGKILL at any moment: mail, leases, whitelists, and whom it listens to.

Each round starts the host and looks whether everything it said in the last one holds. Then friends write at full speed,
half of the mail is left unconfirmed, and somebody else asks for leases and changes whitelists, until the host is killed
a random time later. In the end nothing that was answered with 202 may be missing.
"""

import random
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from bench.lprp_driver import Flow, Pair, Party, ask, lease, make_mail
from soak.lprp_changer import Changer
from soak.lprp_nodes import PATIENCE_S, LprpNode, close, collect, settle
from waystation.protocols.lprp.messages import Command

MOMENT_MAX_S: Final = 0.3
PAIRS: Final = 8
MAIL_PER_ROUND: Final = 1_200
"""150 packets for each tenant, who must have room for all of it (256)."""
IN_FLIGHT: Final = 64
CHECK_EVERY: Final = 20
THIEF: Final = "127.0.99.1"
WITNESS: Final = 20_001
_RECIPIENT: Final = slice(104, 136)


def law(folder: Path, seed: int, rounds: int = 200) -> str:
    """Try it so many times; return what happened."""
    rng = random.Random(seed)
    accepted = came = 0
    owed: set[bytes] = set()
    known: set[bytes] = set()
    old: list[bytes] = []
    with ExitStack() as stack:
        node = stack.enter_context(LprpNode(folder / "home"))
        node.start()
        pairs = settle(node, PAIRS)
        changer = Changer(node, rng)
        witness = Party(WITNESS, node.key.public)
        with closing(node.line(THIEF)) as line:
            lease(line, witness)
        stack.callback(close, pairs)
        stack.callback(changer.close)
        for number in range(rounds):
            check_unmoved(node, old, witness)
            came += collect(pairs, owed, known)
            changer.check()
            old = [beat_twice(pair) for pair in pairs]
            flow, names = until_killed(node, pairs, changer, rng)
            accepted += len(flow.accepted)
            owed = set(flow.accepted) - flow.confirmed
            known |= names
            if number % CHECK_EVERY == 0 or number == rounds - 1:
                check_store(node)
            node.start()
        check_unmoved(node, old, witness)
        came += collect(pairs, owed, known)
        changer.check()
        node.stop()
        assert "Traceback" not in node.log(), node.log()[-4_000:]
    return (
        f"{rounds} kills, {accepted} packets answered with 202, {came} handed over by the next life, none lost; "
        f"{len(changer.granted)} leases, {changer.changes} changes of whitelists, none gone; store whole"
    )


def until_killed(node: LprpNode, pairs: list[Pair], changer: Changer, rng: random.Random) -> tuple[Flow, set[bytes]]:
    """Write, lease and list until the host is killed at a random moment; return what became of which mail."""
    mail = make_mail(pairs, MAIL_PER_ROUND)
    silent = [each._replace(confirmation=b"") if rng.random() < 0.5 else each for each in mail]
    moment = time.monotonic() + rng.uniform(0, MOMENT_MAX_S)
    flow = Flow(pairs, silent)
    with changer.at_work():
        flow.until(lambda: time.monotonic() >= moment, IN_FLIGHT)
        node.kill()
    flow.read_rest()
    flow.close()
    assert not flow.refused, f"{flow.refused} packets of friends were refused"
    return flow, {each.signature for each in mail}


def beat_twice(pair: Pair) -> bytes:
    """Have two heartbeats answered; return the first, which the host must not believe any more."""
    first, second = (pair.tenant.seal(Command.HEARTBEAT) for _ in range(2))
    for packet in (first, second):
        ask(pair.tenant_line, packet)
    return first.data


def check_unmoved(node: LprpNode, old: list[bytes], witness: Party) -> None:
    """See that a host which has just started believes no packet older than what its last life has seen (LPRP-D13).

    A tenant that may be heard speaks last, from the same place: its answer comes behind all that the others brought.
    """
    with closing(node.line(THIEF)) as thief:
        for data in (*old, witness.seal(Command.HEARTBEAT).data):
            thief.send(data)
        came: list[bytes] = []
        while witness.key not in {data[_RECIPIENT] for data in came}:
            assert thief.wait(PATIENCE_S), "the witness was not heard"
            came += thief.read()
    assert [data[_RECIPIENT] for data in came] == [witness.key], "a heartbeat from before the kill moved a tenant"


def check_store(node: LprpNode) -> None:
    """See that the file of the ended node is whole."""
    with closing(sqlite3.connect(node.home / "store.sqlite")) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
