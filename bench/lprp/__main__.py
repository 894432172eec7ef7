"""Benchmark: an LPRP host compared with bare signatures, with bare sockets, and with itself without hostile load.

Usage: python -m bench.lprp [--cycles 20000] [--seconds 5] [--honest 1000] [--cores 1] [--hashes 300000] [--rounds 5]
[--json FILE] [--only cycle,garbage,goodput,work]

``--seconds`` is the duration of garbage and of each half of goodput. ``--honest`` is the cycles per second of goodput.
``--cores`` is the number of the node's cores. ``--hashes`` is the count per search loop (``bench/lprp/work.py``).
A cycle is one relayed packet: 102 (mail), 202 (accepted), delivery, 802 (confirmed). The node uses the first cores, the
load the last one. Each round measures every case once, so that other load on the machine affects all of them.
"""

import random
import signal
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any, Final
from urllib.parse import urlsplit

from bench.lprp import work as lprp_work
from bench.lprp.driver import Flow, Mail, Pair, Signer, close, make_mail, settle
from bench.lprp.floor import costs
from bench.lprp.hostile import GARBAGE, Hostile, attack
from bench.report import Bench, Figures, module, percentile, served, working
from tools.served import ServedNode, ServedProcess

NETWORKS: Final = 8
PAIRS: Final = 64
IN_FLIGHT: Final = 256
GARBAGE_KINDS: Final = 4_096
HOSTILE_PER_HONEST: Final = 10
GRACE_S: Final = 1.0
REPLAYS: Final = 512


def serve(kind: str, options: Any, *, limits: bool = False) -> AbstractContextManager[ServedProcess]:
    """Run a node that demands work of 0 bits, or the loop that only counts, on some cores."""
    bits = {f"lprp__pow_base_bits_{each}": 0 for each in ("relay", "lease", "whitelist")}
    settings: dict[str, Any] = bits | {
        "lprp__pow_adaptive": False,
        "admin__listen": "127.0.0.1:0",
        "limits__enabled": limits,
    }
    floor = module("bench.lprp.floor") if kind == "sink" else []
    return served("lprp", *floor, cores=range(options.cores), **settings)


def place_of(host: ServedProcess) -> tuple[str, int]:
    """Return where a host listens."""
    place = urlsplit(host.address_of("lprp"))
    return place.hostname or "", place.port or 0


def refused(host: ServedProcess) -> float:
    """Return how many datagrams a node has rejected; 0 for what is no node."""
    if not isinstance(host, ServedNode):
        return 0.0
    with urllib.request.urlopen(f"{host.address_of('admin')}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = 'waystation_refusals_total{protocol="lprp"'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def floors(core: int) -> Figures:
    """Measure what a cycle costs at least, where the node runs, with the other core as busy as it is then."""
    with working(costs, core) as pipe:
        while not pipe.poll():
            random.randbytes(1 << 16)
        found: Figures = pipe.recv()
    return found


def cycle(options: Any) -> Figures:
    """Relay packets as fast as they are accepted; return rates and what the parts cost."""
    count = options.cycles
    before_it = floors(0)
    with serve("node", options) as host:
        pairs = settle(place_of(host), host.public_key, PAIRS, NETWORKS)
        Flow(pairs, make_mail(pairs, count // 10)).run(IN_FLIGHT)
        mail = make_mail(pairs, count)
        before = host.cpu_s()
        flow = Flow(pairs, mail)
        seconds = flow.run(IN_FLIGHT)
        used_s = host.cpu_s() - before
        assert len(flow.delivered) == len(flow.accepted) == count
        close(pairs)
    after_it = floors(0)
    taken = {name: (before_it[name] + after_it[name]) / 2 for name in before_it}
    taken |= {"cycles/s": count / seconds, "node cpu us": used_s / count * 1e6, "cores used": used_s / seconds}
    ceiling = options.cores * 1e6 / taken["crypto us"]
    return taken | {"of the ceiling of crypto": count / seconds / ceiling, "sent again": float(flow.repeats)}


def garbage(options: Any, kind: str) -> Figures:
    """Send garbage as fast as one process can; return how much of it a server took in."""
    with serve(kind, options, limits=True) as host:
        key = host.public_key
        hostile = Hostile(place_of(host), key, [Signer(1, key).key], [], random.Random(1))
        datagrams = hostile.make(GARBAGE, GARBAGE_KINDS)
        before = (refused(host), host.cpu_s())
        began = time.perf_counter()
        while time.perf_counter() - began < options.seconds:
            hostile.send(datagrams)
        took_s, used_s = time.perf_counter() - began, host.cpu_s() - before[1]
        if isinstance(host, ServedNode):
            taken = refused(host) - before[0]  # the node answers after the datagrams that came before
        else:
            host.signal(signal.SIGTERM)
            taken = float(host.read_line())
            host.wait()
        hostile.close()
    assert hostile.came == 0, f"{hostile.came} answers to garbage"
    return {
        f"{kind} garbage/s": taken / took_s,
        f"{kind} garbage cpu us": used_s / taken * 1e6,
        "garbage sent/s": hostile.sent / took_s,
    }


def goodput(options: Any) -> Figures:
    """Relay at a fixed rate, alone and then under ten times as many hostile datagrams."""
    per_s, seconds = options.honest, options.seconds
    with serve("node", options, limits=True) as host:
        pairs = settle(place_of(host), host.public_key, PAIRS, NETWORKS)
        alone = make_mail(pairs, int(per_s * seconds), per_s)
        taken = paced(pairs, alone, seconds, "alone")
        tenants = [pair.tenant.key for pair in pairs]
        replays = [data for each in alone[:REPLAYS] for data in (each.relay, each.confirmation)]
        hostile_per_s = HOSTILE_PER_HONEST * 2 * per_s  # an honest cycle is two datagrams to the host
        attack_s = seconds + GRACE_S
        hostile = working(attack, place_of(host), host.public_key, tenants, replays, hostile_per_s, attack_s)
        with hostile as pipe:
            pipe.recv()
            mail = make_mail(pairs, int(per_s * seconds), per_s)
            pipe.send("go")
            before, cpu_s = refused(host), host.cpu_s()
            taken |= paced(pairs, mail, seconds, "under attack")
            sent, sent_bytes, came_bytes = pipe.recv()
        taken |= {"hostile sent": sent, "hostile refused": refused(host) - before}
        taken |= {"attack cores used": (host.cpu_s() - cpu_s) / attack_s}
        taken["bytes to the hostile, of theirs"] = came_bytes / sent_bytes
        close(pairs)
    return taken | {"goodput ratio": taken["goodput under attack/s"] / taken["goodput alone/s"]}


def paced(pairs: list[Pair], mail: list[Mail], seconds: float, name: str) -> Figures:
    """Relay mail when it is due; return what was delivered and accepted within a second, and how long it took."""
    flow = Flow(pairs, mail)
    flow.run_paced(GRACE_S)
    through = [
        flow.delivered[each.signature] - each.due_s
        for each in mail
        if each.signature in flow.accepted and flow.delivered.get(each.signature, float("inf")) - each.due_s <= GRACE_S
    ]
    taken = through or [float("inf")]
    return {
        f"goodput {name}/s": len(through) / seconds,
        f"delivery {name} p50 ms": percentile(taken, 0.5) * 1e3,
        f"delivery {name} p99 ms": percentile(taken, 0.99) * 1e3,
    }


CASES: Final = {
    "cycle": cycle,
    "garbage": lambda options: garbage(options, "node") | garbage(options, "sink"),
    "goodput": goodput,
    "work": lambda options: lprp_work.measure(options.hashes),
}
AIMS: Final[dict[str, Callable[[Figures], float]]] = {
    "cycles/s over the ceiling of crypto (at least 0.8)": lambda m: m["of the ceiling of crypto"],
    "CPU of crypto over the node's, per cycle": lambda m: m["crypto us"] / m["node cpu us"],
    "CPU of crypto and datagrams over the node's": lambda m: (m["crypto us"] + m["datagrams us"]) / m["node cpu us"],
    "garbage rejected per second (at least 100,000)": lambda m: m["node garbage/s"],
    "garbage over a loop that only counts": lambda m: m["node garbage/s"] / m["sink garbage/s"],
    "goodput under attack over alone (at least 0.90)": lambda m: m["goodput ratio"],
    **{f"search over {name} (at least 0.9)": itemgetter(f"{name} over search") for name in lprp_work.BARE},
}


if __name__ == "__main__":
    bench = Bench(
        __doc__, CASES, rounds=5, pins=True, cycles=20_000, seconds=5.0, honest=1_000.0, cores=1, hashes=300_000
    )
    bench.run(f"LPRP, {PAIRS} pairs, {bench.options.cores} cores for the node", AIMS)
