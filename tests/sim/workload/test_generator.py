"""What a workload promises: the same bytes, and a truth that plain reading confirms."""

import hashlib
import json
from collections import Counter

import pytest

from tests.sim.workload.build import archive_rows, hour_of, journal_rows, made, rows_of
from waystation.core.errors import LocalError
from waystation.sim.workload import ALL_SCENARIOS, Workload

PINNED = "18df1336622b6b1c0951fccf160a9184da83e36d9e7334a230d2197941ad8fdc"
"""SHA-256 over paths, shipments and bytes of the small workload with every scenario."""


def fingerprint(files):
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.shipment} {file.path} {len(file.data)}\n".encode() + file.data)
    return digest.hexdigest()


def test_same_seed_gives_same_bytes():
    """Every byte is decided by the arguments, today and on every machine."""
    assert fingerprint(made("all").files) == PINNED


def test_another_seed_gives_other_bytes():
    """The seed decides who the nodes are and what happens to them."""
    one, other = (Workload(seed, 1, 1, 100) for seed in (1, 2))

    assert fingerprint(one.files()) != fingerprint(other.files())


def test_files_can_be_made_again():
    """A second pass yields the same files and the same truth."""
    workload = Workload(3, 2, 1, 500, ALL_SCENARIOS)
    first = fingerprint(workload.files())
    truth = workload.truth()

    assert fingerprint(workload.files()) == first
    assert workload.truth() == truth


def test_truth_is_known_at_the_end():
    """Whoever asks before the last file is told so."""
    workload = Workload(3, 1, 1, 100)
    next(workload.files())

    with pytest.raises(LocalError, match="all of its files"):
        workload.truth()


def test_truth_is_plain_json():
    """The truth survives being written to a file."""
    truth = made("all").truth

    assert json.loads(json.dumps(truth)) == truth


def test_events_are_what_the_truth_counts(workload):
    """Every node has as many events of every kind as the truth says."""
    files, truth = workload
    counted = {node["node_id"]: Counter() for node in truth["nodes"]}
    for row in journal_rows(files):
        counted[row["node_id"]][row["kind"]] += 1

    assert {node: dict(kinds) for node, kinds in counted.items()} == truth["counts"]["events"]


def test_deliveries_are_what_the_truth_counts(workload):
    """Attempts by hour, protocol and outcome come to the truth's numbers, unfinished ones included."""
    files, truth = workload
    attempts, counted = {}, {}
    for row in rows_of(files, "delivery_accepted", "delivery_finished"):
        attempts.setdefault((row["node_id"], row["protocol"], row["attrs"]["attempt_ref"]), {})[row["kind"]] = row
    for kinds in attempts.values():
        accepted, finished = kinds.get("delivery_accepted"), kinds.get("delivery_finished")
        began_us = accepted["ts"] if accepted else finished["ts"] - (finished["latency_us"] or 0)
        at_once = finished is not None and finished["latency_us"] is None
        key = (hour_of(began_us), (accepted or finished)["protocol"], finished["outcome"] if finished else "unfinished")
        entry = counted.setdefault(key, [0, 0])
        entry[0] += int(finished["attrs"]["tries"]) if at_once else 1
        entry[1] += sum(row["bytes"] for row in kinds.values())
    told = {
        (row["hour"], row["protocol"], row["outcome"]): [row["n"], row["bytes"]]
        for row in truth["counts"]["deliveries"]
    }

    assert counted == told
    assert {"ok", "unfinished", "cached", "bad_capability"} <= {outcome for _, _, outcome in told}


def test_verdicts_are_what_the_truth_counts(workload):
    """Packets by hour, verdict and detail come to the truth's numbers."""
    files, truth = workload
    counted = {}
    for row in rows_of(files, "packet_judged"):
        entry = counted.setdefault((hour_of(row["ts"]), row["outcome"], row["reason"] or ""), [0, 0])
        entry[0] += int(row["attrs"]["n"])
        entry[1] += row["bytes"]

    assert counted == {
        (row["hour"], row["verdict"], row["detail"]): [row["n"], row["bytes"]] for row in truth["counts"]["packets"]
    }


def test_connections_are_what_the_truth_counts(workload):
    """Openings and ends of connections come to the truth's numbers, by node and protocol."""
    files, truth = workload
    counted = {node: Counter() for node in truth["counts"]["connections"]}
    words = {"peer_identified": "opened", "peer_left": "closed"}
    for row in rows_of(files, *words):
        counted[row["node_id"]][f"{row['protocol']}_{words[row['kind']]}"] += 1

    assert counted == truth["counts"]["connections"]


def test_archives_are_what_the_truth_counts(workload):
    """Every node archived exactly the packets of the truth."""
    files, truth = workload
    counted = {node: set() for node in truth["counts"]["archived"]}
    for row in archive_rows(files):
        counted[row["node_id"]].add(row["packet_id"])

    assert counted == {
        node: {packet for ids in days.values() for packet in ids} for node, days in truth["counts"]["archived"].items()
    }


def test_honest_workload_has_nobody_to_find():
    """Without scenarios there is no actor, nothing invalid, nothing dropped, no canary, and every relay is good."""
    _, truth = made()

    assert not truth["actors"] and not truth["consistency"] and not truth["canaries"] and not truth["rejections"]
    assert not truth["counts"]["bad_signatures"]
    assert not any(group["invalid_root"] or group["invalid_transitive"] for group in truth["bsp"])
    assert {relay["habit"] for relay in truth["relays"].values()} == {"good"}
    assert {file["state"] for file in truth["segments"]} == {"complete", "unsealed"}


def test_events_are_about_as_many_as_asked_for():
    """The honest load comes within a fifth of the number it was asked for."""
    _, truth = made(nodes=3, events=6_000)

    total = sum(sum(kinds.values()) for kinds in truth["counts"]["events"].values())

    assert abs(total - 6_000) < 1_200


ADDITIVE = (
    *("slow_relay", "flapping_relay", "tampering_relay", "dead_relay", "replay_attacker", "burst_flooder"),
    *("work_farmer", "spent_capabilities", "bsp_invalid_root", "bad_signatures"),
)


def lines_of(files):
    """Return every line without its number and what depends on other lines."""
    rows = journal_rows(files)
    skip = ("segment_opened", "segment_sealed")
    plain = [{key: value for key, value in row.items() if key != "seq"} for row in rows if row["kind"] not in skip]
    for row in plain:
        if row["kind"] == "packet_judged":
            row["attrs"] = {key: value for key, value in row["attrs"].items() if key != "store_seq"}
    return Counter(json.dumps(row, sort_keys=True) for row in plain)


@pytest.mark.parametrize("scenario", ADDITIVE)
def test_scenario_adds_to_the_honest_load_and_takes_nothing_away(scenario):
    """What honest people do stays the same, event by event, when somebody misbehaves beside them."""
    size = {"nodes": 2, "days": 2, "events": 1_200}
    honest, with_it = made(**size), made(scenario, **size)

    assert not lines_of(honest.files) - lines_of(with_it.files)
    assert with_it.truth["scenarios"].keys() == {scenario}


@pytest.mark.parametrize("scenario", ["duplicates", "out_of_order", "late_segments"])
def test_transport_changes_no_event(scenario):
    """Segments that arrive twice, shuffled or late say what they said."""
    size = {"nodes": 2, "days": 3, "events": 1_200}
    honest, with_it = made(**size), made(scenario, **size)

    assert lines_of(honest.files) == lines_of(with_it.files)
    assert honest.truth["counts"] == with_it.truth["counts"]
