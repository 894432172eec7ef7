"""The audit finds what is wrong with a lake, and nothing in one that is right."""

import datetime
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.conftest import Ran
from waystation.pipeline.checks import audit, tie_out
from waystation.pipeline.lake import MANIFEST, Lake
from waystation.pipeline.manifest import Batch, Manifest
from waystation.pipeline.tables import GOLD_VERDICTS, OPS_RUNS

DAY = datetime.date(2026, 5, 29)
ENTRY = Batch(DAY, "one", 2)
HOUR = datetime.datetime(2026, 5, 29, 12, tzinfo=datetime.UTC)


def small_lake(tmp_path, **changed: pa.Array) -> Lake:
    """Return a lake of one batch of two rows, written without Spark."""
    lake = Lake(tmp_path)
    rows = [{"hour": HOUR, "protocol": "strata", "verdict": word, "detail": "", "n": 1, "bytes": 2} for word in "ab"]
    table = pa.Table.from_pylist(rows, GOLD_VERDICTS.arrow_schema())
    for name, column in changed.items():
        table = table.drop(name) if name in table.column_names else table
        table = table.append_column(name, column)
    folder = lake.folder(GOLD_VERDICTS) / ENTRY.folder
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet")
    list_batches(lake, ENTRY)
    lake.write_run(OPS_RUNS, "r1", DAY, {"run_id": "r1"})
    return lake


def list_batches(lake: Lake, *entries: Batch) -> None:
    """Replace the manifest."""
    manifest = replace(Manifest(), batches=entries)
    lake.storage.write_atomically(f"{GOLD_VERDICTS.folder}/{MANIFEST}", manifest.encode(GOLD_VERDICTS))


def failed(lake: Lake, as_of: datetime.date | None = None) -> dict[str, str]:
    """Return the checks that do not hold."""
    return {check.name: check.sentence for check in audit(lake, as_of) if not check.ok}


def test_good_lake_passes(tmp_path) -> None:
    """Every check holds, and says so in a sentence; an empty lake is a good one."""
    assert failed(small_lake(tmp_path / "lake")) == failed(Lake(tmp_path / "empty")) == {}
    assert [check.name for check in audit(Lake(tmp_path / "lake"))] == ["manifests", "rows", "columns", "ages", "files"]


def test_broken_manifest_is_found(tmp_path) -> None:
    """A manifest that cannot be read is named; the other datasets are still looked at."""
    lake = small_lake(tmp_path)
    (lake.folder(GOLD_VERDICTS) / MANIFEST).write_text("{")

    assert "gold/packet_verdicts/v=1/MANIFEST.json cannot be read" in failed(lake)["manifests"]


def test_missing_rows_and_files_are_found(tmp_path) -> None:
    """A batch with other rows than promised, without files, or with a file that is none, is named."""
    lake = small_lake(tmp_path)
    torn = lake.folder(GOLD_VERDICTS) / "event_date=2026-05-29/batch=torn/part-0.parquet"
    torn.parent.mkdir()
    torn.write_bytes(b"PAR1")
    list_batches(lake, ENTRY._replace(rows=3), ENTRY._replace(batch="gone"), ENTRY._replace(batch="torn"))
    sentence = failed(lake)["rows"]

    assert "batch=one has 2 rows, not 3" in sentence
    assert "batch=gone has 0 rows, not 2" in sentence
    assert "batch=torn cannot be read" in sentence


def test_columns_outside_the_contract_are_found(tmp_path) -> None:
    """A file with a column more is named with the column."""
    assert "payload" in failed(small_lake(tmp_path, payload=pa.array(["x", "y"])))["columns"]


def test_old_partitions_are_found(tmp_path) -> None:
    """A date past its retention is named once the moment is far enough."""
    lake = small_lake(tmp_path)
    kept = datetime.timedelta(days=GOLD_VERDICTS.retention_days)

    assert failed(lake, DAY + datetime.timedelta(days=OPS_RUNS.retention_days)) == {}
    assert "older than 365 days" in failed(lake, DAY + kept + datetime.timedelta(days=1))["ages"]


def test_foreign_files_are_found(tmp_path) -> None:
    """A file that no manifest lists is named; many are counted."""
    lake = small_lake(tmp_path)
    for name in "abcde":
        (lake.folder(GOLD_VERDICTS) / f"{name}.txt").write_text("")

    assert failed(lake)["files"].endswith("and 2 more")


@pytest.mark.slow
@pytest.mark.spark
def test_lake_of_a_rough_journal_passes_and_ties(spark, ran: Ran) -> None:
    """After a run over a journal with everything wrong in it, the audit finds nothing and every count ties."""
    assert failed(ran.lake) == {}
    assert [check for check in tie_out(spark, ran.lake) if not check.ok] == []
