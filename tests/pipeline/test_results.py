"""What a run tells about itself."""

import json
from pathlib import Path

from waystation.pipeline.jobs.step import Counts, Problem, Rejection
from waystation.pipeline.results import Result, StepReport
from waystation.pipeline.tables import OPS_RUNS

COUNTS = Counts(1_200, 1_190, 10, (Problem("a", "torn"),), (Rejection("a", "unparsable", "00"),))


def test_document_has_the_columns_of_ops_runs() -> None:
    """The run report is JSON, begins with the dataset's columns and keeps every count."""
    step = StepReport("ingest", COUNTS, 1.5)
    result = Result("r", "s", "f", "a", "Spark", (step,), {"bronze.events": 5}, Path("x.html"), Path("r.json"))
    document = json.loads(json.dumps(result.document()))

    assert list(document)[: len(OPS_RUNS.names())] == OPS_RUNS.names()
    assert document["steps"] == [
        {"name": "ingest", "rows_in": 1_200, "rows_out": 1_190, "rows_rejected": 10, "seconds": 1.5}
    ]
    assert document["rejections"] == [{"segment": "a", "reason": "unparsable", "hash": "00"}]
