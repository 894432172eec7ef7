"""BSP against what its bytes and rows cost at least, in one run.

Usage: python -m bench.bsp [--messages 10000] [--bytes 1024] [--rounds 5] [--json FILE] [--only bytes,sync,graph]

``bytes``: what loss-free scenarios put on the wire, over the optimum of bsp 8. ``sync``: two devices in two processes
over loopback TLS, durable on both sides, over copying the same rows through a bare socket (``bsp_floor.py``).
``graph``: how a chain of messages grows (``bsp_graph.py``).
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench import bsp_bytes, bsp_graph

CASES: Final = ("bytes", "sync", "graph")


def driver(*arguments: object) -> list[str]:
    """Return the command of one device."""
    return [sys.executable, "-m", "bench.bsp_driver", *map(str, arguments)]


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of a device."""
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def sync(folder: Path, messages: int, body_bytes: int) -> dict[str, float]:
    """Sync a full home into an empty one; return how long that took, and the floor of the same rows and commits."""
    full, empty = folder / "full", folder / "empty"
    keys = {
        home: subprocess.run(driver("key", home), check=True, capture_output=True, text=True).stdout.strip()
        for home in (full, empty)
    }
    subprocess.run(driver("prepare", full, keys[empty], messages, body_bytes), check=True)
    subprocess.run(driver("prepare", empty, keys[full], 0, body_bytes), check=True)
    receiving = subprocess.Popen(
        driver("receive", empty, messages), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    ready = told(receiving)
    with subprocess.Popen(driver("send", full, ready["url"]), stdout=subprocess.PIPE, text=True) as sending:
        sent = told(sending)
    assert receiving.stdin is not None
    receiving.stdin.write("\n")
    receiving.stdin.close()
    received = told(receiving)
    assert receiving.wait(20) == 0
    floor_s = floor(folder, full / "bsp.db", empty, messages, received["commits"])
    return {
        "sync s": sent["seconds"],
        "messages/s": messages / sent["seconds"],
        "floor s": floor_s,
        "commits": received["commits"],
        "sender cpu us": sent["cpu_s"] / messages * 1e6,
        "receiver cpu us": received["cpu_s"] / messages * 1e6,
        "floor over sync": floor_s / sent["seconds"],
    }


def floor(folder: Path, source: Path, certified: Path, messages: int, commits: int) -> float:
    """Copy the same rows without a protocol; return the seconds that took."""
    cert, key = certified / "bsp-tls.pem", certified / "bsp-tls-key.pem"
    command = [sys.executable, "-m", "bench.bsp_floor"]
    arguments = [folder / "floor.db", cert, key, messages, commits]
    with subprocess.Popen([*command, "receive", *map(str, arguments)], stdout=subprocess.PIPE, text=True) as receiving:
        assert receiving.stdout is not None
        port = receiving.stdout.readline().strip()
        sent = subprocess.run(
            [*command, "send", str(source), port, str(messages)], check=True, capture_output=True, text=True
        )
    return float(sent.stdout)


def run_round(cases: set[str], options: argparse.Namespace) -> dict[str, float]:
    """Measure everything that varies once."""
    if "sync" not in cases:
        return {}
    folder = Path(tempfile.mkdtemp(prefix="bench-bsp-"))
    try:
        return sync(folder, options.messages, options.bytes)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1_024, help="of a body")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = set(options.only.split(","))
    print(f"BSP, {options.messages} messages of {options.bytes} bytes; {os.cpu_count()} cores; {platform.platform()}")
    found: dict[str, float] = {}
    if "bytes" in cases:
        found |= bsp_bytes.ratios()
    rounds = [run_round(cases, options) for _ in range(options.rounds)]
    medians = {name: statistics.median(taken[name] for taken in rounds) for name in rounds[0]}
    for name, value in medians.items():
        values = [taken[name] for taken in rounds]
        print(f"  {name:34} {value:12,.2f}   {min(values):12,.2f} to {max(values):,.2f}")
    if medians:
        found["copying the rows over syncing them (at least 0.5)"] = medians["floor over sync"]
    if "graph" in cases:
        figures = bsp_graph.measure(10_000, 100_000, options.rounds)
        found |= {f"100,000 over 10,000 messages, {each.name} (at most 12)": each.ratio for each in figures}
    for name, value in found.items():
        print(f"  {name:70} {value:,.3f}")
    if options.json:
        options.json.write_text(json.dumps({"medians": medians, "ratios": found, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
