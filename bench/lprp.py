"""The LPRP host against bare signatures, bare sockets and itself without an enemy, in one run.

Usage: python -m bench.lprp [--cycles 20000] [--rounds 5] [--json FILE] [--only cycle,garbage,goodput,work]

A cycle is one relayed packet: 102, 202, delivery, 802. The node runs on the first cores, the load on the last one; each
round measures everything once, so that what else the machine does falls on all of it.
"""

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from bench import lprp_work
from bench.bhumi import cpu_seconds
from bench.lprp_driver import Flow, Line, Mail, Pair, Party, lease, let_in, make_mail
from bench.lprp_hostile import GARBAGE, Hostile

CASES: Final = ("cycle", "garbage", "goodput", "work")
NETWORKS: Final = 8
PAIRS: Final = 64
IN_FLIGHT: Final = 256
GARBAGE_KINDS: Final = 4_096
HOSTILE_PER_HONEST: Final = 10
GRACE_S: Final = 1.0
REPLAYS: Final = 512
_STOP_S: Final = 20.0


class Served(NamedTuple):
    """A host, or something that only counts."""

    place: tuple[str, int]
    key: bytes
    admin: str
    process: subprocess.Popen[str]

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process and those it started."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(map(cpu_seconds, (pid, *map(int, children))))

    def refused(self) -> float:
        """Return how many datagrams the host has turned down."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = 'waystation_refusals_total{protocol="lprp"'
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def command_of(kind: str, home: Path, *, limits: bool) -> list[str]:
    """Return the command line of a server."""
    if kind == "sink":
        return [sys.executable, "-m", "bench.lprp_floor", "count"]
    settings = {"lprp.udp": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "lprp.pow_adaptive": "false"}
    settings |= {f"lprp.pow_base_bits_{each}": "0" for each in ("relay", "lease", "whitelist")}
    settings |= {f"{name}.enabled": "false" for name in ("bhumi", "bsp", "merk", "strata")}
    settings |= {"limits.enabled": str(limits).lower()}
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "waystation", "serve", "--home", str(home), *flags, "--log-level", "error"]


@contextmanager
def server(kind: str, cores: set[int], *, limits: bool = False) -> Iterator[Served]:
    """Run a node, or the loop that only counts, on some cores."""
    ours = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as home:
        os.sched_setaffinity(0, cores)  # inherited by all threads and processes of the server
        process = subprocess.Popen(command_of(kind, Path(home), limits=limits), stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(0, ours)
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            place = urlsplit(ready["listeners"]["lprp"])
            key = bytes.fromhex(ready.get("node", {}).get("public_key", ""))
            yield Served((place.hostname or "", place.port or 0), key, ready["listeners"].get("admin", ""), process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_STOP_S)


def floors(cores: set[int]) -> dict[str, float]:
    """Measure what a cycle costs at least, where the node runs, with the other core as busy as it is then."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    command = [sys.executable, "-m", "bench.lprp_floor", "costs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(0, ours)
        while process.poll() is None:
            random.randbytes(1 << 16)
        assert process.stdout is not None
        told: dict[str, float] = json.loads(process.stdout.read())
    return told


def settle(host: Served, count: int = PAIRS) -> list[Pair]:
    """Give so many tenants a lease and one friend each."""
    lines = [Line(host.place, f"127.0.{1 + number}.1") for number in range(NETWORKS)]
    pairs = []
    for number in range(count):
        line = lines[number % NETWORKS]
        pair = Pair(Party(2 * number + 1, host.key), line, Party(2 * number + 2, host.key), line)
        lease(line, pair.tenant)
        let_in(line, pair.tenant, (), [pair.sender.key])
        pairs.append(pair)
    return pairs


def close(pairs: list[Pair]) -> None:
    """Close the sockets of all pairs."""
    for line in {id(line): line for pair in pairs for line in (pair.tenant_line, pair.sender_line)}.values():
        line.close()


def cycle(count: int, cores: set[int]) -> dict[str, float]:
    """Relay so many packets as fast as they are accepted; return rates and what the parts cost."""
    before_it = floors(cores)
    with server("node", cores) as host:
        pairs = settle(host)
        Flow(pairs, make_mail(pairs, count // 10)).run(IN_FLIGHT)
        mail = make_mail(pairs, count)
        before = host.cpu_s()
        flow = Flow(pairs, mail)
        seconds = flow.run(IN_FLIGHT)
        used_s = host.cpu_s() - before
        assert len(flow.delivered) == len(flow.accepted) == count
        close(pairs)
    after_it = floors(cores)
    taken = {name: (before_it[name] + after_it[name]) / 2 for name in before_it}
    taken |= {"cycles/s": count / seconds, "node cpu us": used_s / count * 1e6, "cores used": used_s / seconds}
    ceiling = len(cores) * 1e6 / taken["crypto us"]
    return taken | {"of the ceiling of crypto": count / seconds / ceiling, "said again": float(flow.repeats)}


def garbage(seconds: float, cores: set[int], kind: str) -> dict[str, float]:
    """Send garbage as fast as one process can; return how much of it a server took in."""
    with server(kind, cores, limits=True) as host:
        key = host.key or bytes(32)
        hostile = Hostile(host.place, key, [Party(1, key).key], [], random.Random(1))
        datagrams = hostile.make(GARBAGE, GARBAGE_KINDS)
        before = (host.refused() if host.admin else 0.0, host.cpu_s())
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            hostile.send(datagrams)
        took_s, used_s = time.perf_counter() - began, host.cpu_s() - before[1]
        if host.admin:
            taken = host.refused() - before[0]  # the node answers after the datagrams that came before
        else:
            host.process.send_signal(signal.SIGTERM)
            assert host.process.stdout is not None
            taken = float(json.loads(host.process.stdout.readline())["taken"])
        hostile.close()
    assert hostile.came == 0, f"{hostile.came} answers to garbage"
    return {
        f"{kind} garbage/s": taken / took_s,
        f"{kind} garbage cpu us": used_s / taken * 1e6,
        "garbage sent/s": hostile.sent / took_s,
    }


def goodput(per_s: float, seconds: float, cores: set[int]) -> dict[str, float]:
    """Relay at a fixed rate, alone and then under ten times as many hostile datagrams."""
    with server("node", cores, limits=True) as host:
        pairs = settle(host)
        alone = make_mail(pairs, int(per_s * seconds), per_s)
        taken = paced(pairs, alone, seconds, "alone")
        asked = {
            "host": host.place[0],
            "port": host.place[1],
            "host_key": host.key.hex(),
            "tenants": [pair.tenant.key.hex() for pair in pairs],
            "replays": [data.hex() for each in alone[:REPLAYS] for data in (each.relay, each.confirmation)],
            "per_s": HOSTILE_PER_HONEST * 2 * per_s,  # an honest cycle is two datagrams to the host
            "seconds": seconds + GRACE_S,
            "seed": 1,
        }
        with subprocess.Popen(
            [sys.executable, "-m", "bench.lprp_hostile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as hostile:
            assert hostile.stdin is not None
            assert hostile.stdout is not None
            hostile.stdin.write(json.dumps(asked) + "\n")
            hostile.stdin.flush()
            hostile.stdout.readline()
            mail = make_mail(pairs, int(per_s * seconds), per_s)
            hostile.stdin.write("\n")
            hostile.stdin.flush()
            before, cpu_s = host.refused(), host.cpu_s()
            taken |= paced(pairs, mail, seconds, "under attack")
            told: dict[str, Any] = json.loads(hostile.stdout.readline())
        taken |= {"hostile sent": told["sent"], "hostile refused": host.refused() - before}
        taken |= {"attack cores used": (host.cpu_s() - cpu_s) / (seconds + GRACE_S)}
        taken["bytes to the hostile, of theirs"] = told["came_bytes"] / told["sent_bytes"]
        close(pairs)
    return taken | {"goodput ratio": taken["goodput under attack/s"] / taken["goodput alone/s"]}


def paced(pairs: list[Pair], mail: list[Mail], seconds: float, name: str) -> dict[str, float]:
    """Relay mail when it is due; return what was delivered and accepted within a second, and how long it took."""
    flow = Flow(pairs, mail)
    flow.run_paced(GRACE_S)
    through = [
        flow.delivered[each.signature] - each.due_s
        for each in mail
        if each.signature in flow.accepted and flow.delivered.get(each.signature, float("inf")) - each.due_s <= GRACE_S
    ]
    ordered = sorted(through) or [float("inf")]
    return {
        f"goodput {name}/s": len(through) / seconds,
        f"delivery {name} p50 ms": ordered[len(ordered) // 2] * 1e3,
        f"delivery {name} p99 ms": ordered[int(len(ordered) * 0.99)] * 1e3,
    }


def run_round(cases: set[str], options: argparse.Namespace, cores: set[int]) -> dict[str, float]:
    """Measure everything once."""
    taken: dict[str, float] = {}
    if "cycle" in cases:
        taken |= cycle(options.cycles, cores)
    for kind in ("node", "sink") if "garbage" in cases else ():
        taken |= garbage(options.seconds, cores, kind)
    if "goodput" in cases:
        taken |= goodput(options.honest, options.seconds, cores)
    if "work" in cases:
        taken |= {f"work: {name}": value for name, value in lprp_work.ratios(lprp_work.measure(100_000, 3)).items()}
    return taken


def ratios(medians: dict[str, float]) -> dict[str, float]:
    """Return what the aims speak of, as far as it was measured."""
    found = {}
    if "cycles/s" in medians:
        crypto, node = medians["crypto us"], medians["node cpu us"]
        found["cycles/s over the ceiling of crypto (at least 0.8)"] = medians["of the ceiling of crypto"]
        found["CPU of crypto over the node's, per cycle"] = crypto / node
        found["CPU of crypto and datagrams over the node's"] = (crypto + medians["datagrams us"]) / node
    if "node garbage/s" in medians:
        found["garbage rejected per second (at least 100,000)"] = medians["node garbage/s"]
        found["garbage over a loop that only counts"] = medians["node garbage/s"] / medians["sink garbage/s"]
    if "goodput ratio" in medians:
        found["goodput under attack over alone (at least 0.90)"] = medians["goodput ratio"]
    for name in [each for each in medians if each.startswith("work: ")]:
        found[f"search over {name.removeprefix('work: ')} (at least 0.9)"] = medians[name]
    return found


def spread(values: list[float]) -> str:
    """Return median, least and most."""
    return f"{statistics.median(values):12,.2f}   {min(values):12,.2f} to {max(values):,.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of garbage, and of each half of goodput")
    parser.add_argument("--honest", type=float, default=1_000.0, help="cycles per second for goodput")
    parser.add_argument("--cores", type=int, default=1, help="how many the node may use")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = set(range(options.cores))
    print(f"LPRP, {PAIRS} pairs; {os.cpu_count()} cores, {len(cores)} for the node; {platform.platform()}")
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    rounds = [run_round(set(options.only.split(",")), options, cores) for _ in range(options.rounds)]
    medians = {name: statistics.median(taken[name] for taken in rounds) for name in rounds[0]}
    for name in medians:
        print(f"  {name:34} {spread([taken[name] for taken in rounds])}")
    found = ratios(medians)
    for name, value in found.items():
        print(f"  {name:50} {value:,.2f}")
    if options.json:
        options.json.write_text(json.dumps({"medians": medians, "ratios": found, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
