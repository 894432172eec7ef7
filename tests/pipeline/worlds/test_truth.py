"""The whole pipeline against what is true of a generated world, number by number."""

import datetime
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import Recorded
from tests.pipeline.reading import rows_of
from tests.pipeline.worlds.world import hours, make_world, put_all, ship
from waystation.pipeline.canary import scan
from waystation.pipeline.jobs.ingest import ingest
from waystation.pipeline.jobs.taking import ARCHIVE
from waystation.pipeline.lake import Lake
from waystation.pipeline.run import Request, run_pipeline
from waystation.pipeline.settings import PipelineSettings
from waystation.pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_ABUSE_FINDINGS,
    GOLD_BSP_GROUPS,
    GOLD_BSP_INVALID,
    GOLD_CAPACITY,
    GOLD_CONSISTENCY,
    GOLD_MESH_TOPOLOGY,
    GOLD_OUTCOMES,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    GOLD_VERDICTS,
    OPS_QUARANTINE,
    OPS_RETENTION,
    SILVER_MESH_QUERIES,
    SILVER_PACKETS,
    Dataset,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PRECISE = 0.95
SETTINGS = PipelineSettings(recompute_days=13, witnesses=2, grace_s=3_600)


@dataclass(frozen=True)
class World:
    """A lake and what is true of the world it was made from."""

    base: Path
    lake: Lake
    truth: dict[str, Any]

    def kept_from_s(self, dataset: Dataset) -> int:
        """Return where the first date begins that a table may hold when the world ends."""
        return self.truth["end_us"] // 1_000_000 - dataset.retention_days * 86_400

    def rows(self, dataset: Dataset) -> list[dict[str, Any]]:
        """Return all rows of a table, times as seconds since 1970."""
        return [{name: _plain(value) for name, value in row.items()} for row in rows_of(self.lake, dataset)]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return int(value.replace(tzinfo=datetime.UTC).timestamp())
    return value.isoformat() if isinstance(value, datetime.date) else value


@pytest.fixture(scope="session")
def world(spark, tmp_path_factory) -> World:
    """Bring two shipments, the second one late, and run the pipeline over both."""
    base: Path = tmp_path_factory.mktemp("world")
    workload = make_world()
    shipments = ship(workload, base)
    request = Request(base / "journal", base / "lake", base / "report.html", settings=SETTINGS)
    put_all(shipments[1])
    ingest(spark, Lake(request.lake), request.journal)
    ingest(spark, Lake(request.lake), base / "archive", ARCHIVE)
    put_all(shipments.get(2, []))
    run_pipeline(request, Recorded())
    return World(base, Lake(base / "lake"), workload.truth())


def test_events_are_those_the_nodes_acknowledged(world: World) -> None:
    """Of every node and kind there are as many rows as its node wrote, no matter how often or late they came."""
    found: dict[str, Counter[str]] = {}
    for row in world.rows(BRONZE_EVENTS):
        found.setdefault(row["node_id"], Counter())[row["kind"]] += 1

    assert {node: dict(sorted(kinds.items())) for node, kinds in found.items()} == world.truth["counts"]["events"]


def test_outcomes_are_true(world: World) -> None:
    """Each hour, protocol and outcome has the attempts and bytes that were made."""
    found = {(r["hour"], r["protocol"], r["outcome"]): (r["n"], r["bytes"]) for r in world.rows(GOLD_OUTCOMES)}

    assert found == hours(world.truth["counts"]["deliveries"], "hour", "protocol", "outcome")


def test_verdicts_are_true(world: World) -> None:
    """Each hour, verdict and detail has the packets that were judged so."""
    found = {
        (r["hour"], r["protocol"], r["verdict"], r["detail"]): (r["n"], r["bytes"]) for r in world.rows(GOLD_VERDICTS)
    }

    assert found == hours(world.truth["counts"]["packets"], "hour", "protocol", "verdict", "detail")


def test_forged_packets_are_found(world: World) -> None:
    """Exactly the packets that were forged fail their check."""
    packets = {row["packet_id"].hex(): row["verdict"] for row in world.rows(SILVER_PACKETS)}
    archived = {each for days in world.truth["counts"]["archived"].values() for ids in days.values() for each in ids}

    assert set(packets) == archived
    assert sorted(key for key, verdict in packets.items() if verdict != "valid") == sorted(
        world.truth["counts"]["bad_signatures"]
    )


def test_relays_are_judged_by_what_they_are(world: World) -> None:
    """Bad relays are banned by the time they must be, good ones never, and none flickers."""
    moves: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(world.rows(GOLD_RELAY_TRANSITIONS), key=lambda row: row["at"]):
        moves.setdefault(row["relay_id"], []).append(row)
    state = {row["relay_id"]: row["state"] for row in world.rows(GOLD_RELAY_SCORES)}
    wrong = []
    for relay, truth in world.truth["relays"].items():
        bans = [row["at"] for row in moves.get(relay, []) if row["after"] == "blacklisted"]
        by_us, still = truth["blacklisted_by_us"], truth["active_at_end"]
        wrong += [(relay, truth["habit"], "banned late")] if by_us and not any(at <= by_us / 1e6 for at in bans) else []
        wrong += [(relay, truth["habit"], "banned")] if truth["never_blacklisted"] and bans else []
        wrong += [(relay, truth["habit"], state[relay])] if still and state[relay] != "active" else []
        most = truth["transitions_max"]
        wrong += [(relay, truth["habit"], "flickers")] if most is not None and len(moves.get(relay, [])) > most else []

    assert wrong == []
    assert set(state) == set(world.truth["relays"])


def test_findings_are_precise_and_complete(world: World) -> None:
    """Whom a rule names did it, and who did it is named: both in at least 95 of 100."""
    found = {(r["node_id"], r["rule"], r["actor_ref"].hex()) for r in world.rows(GOLD_ABUSE_FINDINGS)}
    actors = {(actor["node_id"], actor["rule"], actor["ref"]) for actor in world.truth["actors"]}

    assert len(found & actors) >= PRECISE * len(found), found - actors
    assert len(found & actors) >= PRECISE * len(actors), actors - found


def test_groups_are_true(world: World) -> None:
    """Every group has the messages, roots, gaps and shape that its authors gave it."""
    names = {f"n_{name}": name for name in ("messages", "delivered", "waiting", "deleted", "peers", "components")}
    names |= {name: name for name in ("depth", "fork_width", "converge_us")}
    names |= {"n_invalid_root": "invalid_root", "n_invalid_transitive": "invalid_transitive", "missing_deps": "missing"}
    found = {
        (r["node_id"], r["group_ref"].hex()): {said: r[name] for name, said in names.items()}
        for r in world.rows(GOLD_BSP_GROUPS)
    }
    true = {(t["node_id"], t["group_ref"]): {name: t[name] for name in names.values()} for t in world.truth["bsp"]}

    assert found == true


def test_invalid_messages_have_their_root(world: World) -> None:
    """Each invalid message names the message that it is invalid for, and how far away that is."""
    found = {
        (r["node_id"], r["group_ref"].hex(), r["message_ref"].hex(), r["root_ref"].hex(), r["distance"])
        for r in world.rows(GOLD_BSP_INVALID)
    }
    true = {
        (t["node_id"], t["group_ref"], i["message_ref"], i["root_ref"], i["distance"])
        for t in world.truth["bsp"]
        for i in t["invalid"]
    }

    assert found == true
    assert true


def test_mesh_is_drawn_as_it_was(world: World) -> None:
    """Each hour has its links, its parts and the servers that it depended on."""
    rows = world.rows(GOLD_MESH_TOPOLOGY)
    hours_kept = [each for each in world.truth["mesh"] if each["hour"] >= world.kept_from_s(SILVER_MESH_QUERIES)]
    assert len(hours_kept) > 100
    for hour in hours_kept:
        here = [row for row in rows if row["hour"] == hour["hour"]]
        links = {tuple(sorted((row["server"], other))) for row in here for other in row["neighbours"]}
        found = {row["server"] for row in here if row["is_articulation"]}

        assert links == {tuple(sorted(link)) for link in hour["links"]}, hour["hour"]
        assert found == set(hour["articulation"]), hour["hour"]
        assert sum(row["n_queries"] for row in here) == sum(each["n"] for each in hour["lookups"])


def test_silent_droppers_are_seen(world: World) -> None:
    """What a relay dropped is missing there and nowhere else."""
    dropped = {
        (node, packet) for node, days in world.truth["consistency"].items() for ids in days.values() for packet in ids
    }
    found = {(r["relay_id"], packet.hex()) for r in world.rows(GOLD_CONSISTENCY) for packet in r["suspicious"]}

    assert found <= dropped
    assert len(found) >= PRECISE * len(dropped)


def test_capacity_is_what_was_measured(world: World) -> None:
    """Each node and date has its peaks and sums."""
    names = ("peak_connections", "messages", "bytes_in", "bytes_out", "cpu_us", "memory_bytes")
    names += ("pow_accepted", "pow_turned_down", "pow_work")
    found = {(r["node_id"], r["day"]): {name: r[name] for name in names} for r in world.rows(GOLD_CAPACITY)}
    true = {(t["node_id"], t["day"]): {name: t[name] for name in names} for t in world.truth["capacity"]["days"]}

    assert {key: found[key] for key in true} == true


def test_bad_lines_are_in_quarantine(world: World) -> None:
    """Every line that was not taken is there with its reason."""
    found = Counter(row["reason"] for row in world.rows(OPS_QUARANTINE) if row["dataset"] == "bronze.events")

    assert dict(sorted(found.items())) == world.truth["rejections"]


def test_no_canary_sings(world: World) -> None:
    """Nothing of what must never be written down is in any byte of the lake, the published files or the report."""
    canaries = [each["canary"] for each in world.truth["canaries"]]

    assert scan([world.base / "lake", world.base / "report.html"], canaries) == []
    assert scan([world.base / "journal"], canaries) != []


def test_retention_proves_itself(world: World) -> None:
    """Every table with an age limit was looked through, and nothing is older."""
    proofs = world.rows(OPS_RETENTION)

    assert len(proofs) > 20
    assert all(row["holds"] for row in proofs)
