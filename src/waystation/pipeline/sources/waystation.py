"""Spark data source ``waystation``: reads a node's segments in bulk or as a stream, open segments included.

``jobs.stream`` reads through it, and so may an operator's notebook. ``spark.read.format("waystation").load(folder)``
gives the valid lines as rows, with ``segment`` and ``event_date``. Option ``lines`` is ``journal`` or ``archive``.
Option ``form`` is ``rows``, or ``lines`` for every raw line with its file position. Option ``rowsPerBatch`` limits the
lines of a micro-batch.

Filters on ``kind``, ``relay_id`` and ``event_date`` are applied while reading. This needs the session setting
``spark.sql.python.filterPushdown.enabled``. A filter on dates skips whole files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from waystation.pipeline.journal_files import GrowingFile, GrowthReader
from waystation.pipeline.sources.offsets import Offset, Slice, advance, group, slices_between
from waystation.pipeline.sources.reading import FORMS, Form, Wanted, count_to, line_batches, row_batches

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PUSHDOWN", "ROWS_PER_BATCH", "SegmentReader", "SegmentStream", "WaystationSource"]

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""Setting of a session without which filters are applied by Spark, after reading."""
ROWS_PER_BATCH: Final = 50_000
"""Lines of a micro-batch unless ``rowsPerBatch`` says otherwise."""

_LINES_DDL: Final = "value string, segment string, begins_at bigint, ends_at bigint"


class WaystationSource(DataSource):
    """To register: ``spark.dataSource.register(WaystationSource)``."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` takes."""
        return "waystation"

    def schema(self) -> str:
        """Return the columns, by the options."""
        if self.options.get("form", "rows") == "lines":
            return _LINES_DDL
        return f"{_form(self.options).ddl}, segment string, event_date date"

    def reader(self, schema: StructType) -> "SegmentReader":
        """Return what reads everything there is."""
        return SegmentReader(self.options, schema)

    def streamReader(self, schema: StructType) -> "SegmentStream":  # noqa: N802 - Spark's name
        """Return what reads on."""
        return SegmentStream(self.options, schema)


class SlicePartition(InputPartition):
    """What one task reads."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        super().__init__(slices)


class _Segments:
    """What both readers share: the folder, and how its lines become batches."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._folder = Path(options["path"])
        self._lines = options.get("lines", "journal")
        self._as_lines = options.get("form", "rows") == "lines"
        self._schema = schema
        self._wanted = Wanted()

    def _look(self) -> GrowthReader:
        return GrowthReader(self._folder, FORMS[self._lines].line_format)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one partition."""
        slices: tuple[Slice, ...] = partition.value
        if self._as_lines:
            return line_batches(slices)
        return row_batches(slices, FORMS[self._lines], self._wanted, to_arrow_schema(self._schema))


class SegmentReader(_Segments, DataSourceReader):
    """Reads every segment of a folder once."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take over what can be decided while reading; return the rest."""
        if self._as_lines:
            return filters
        return [one for one in filters if not self._take_over(one)]

    def partitions(self) -> Sequence[InputPartition]:
        """Return the segments, put together until tasks are worth their start."""
        files = [file for file in self._look().look() if self._wanted.may_be_in(file)]
        slices = [Slice(str(file.path), file.segment, 0, file.ready_bytes) for file in files]
        return [SlicePartition(members) for members in group(slices)]

    def _take_over(self, one: Filter) -> bool:
        narrowed = narrow(self._wanted, one)
        self._wanted = narrowed or self._wanted
        return narrowed is not None


class SegmentStream(_Segments, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from an offset; see ``offsets``."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._rows_max = int(options.get("rowsperbatch", options.get("rowsPerBatch", str(ROWS_PER_BATCH))))
        self._growth = self._look()
        self._target: list[GrowingFile] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the beginning of everything."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many lines a micro-batch takes."""
        return ReadMaxRows(self._rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return how far the next micro-batch reads."""
        rows_max = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._rows_max)
        files = self._target if self._target is not None else self._growth.look()
        return advance(start, files, count_to, rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what there is now; nothing after it is read before the query ends."""
        self._target = self._growth.look()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what lies between two offsets."""
        return [SlicePartition(members) for members in group(slices_between(start, end, self._growth.look()))]


def narrow(wanted: Wanted, one: Filter) -> Wanted | None:
    """Return what is wanted when a filter holds too, or None for a filter that is left to Spark."""
    column = getattr(one, "attribute", None)
    values = {one.value} if isinstance(one, EqualTo) else set(one.value) if isinstance(one, In) else set()
    if values and None not in values and column == ("kind",):
        return replace(wanted, kinds=frozenset(values) & (wanted.kinds or values))
    if values and None not in values and column == ("relay_id",):
        return replace(wanted, relay_ids=frozenset(values) & (wanted.relay_ids or values))
    if column != ("event_date",) or getattr(one, "value", None) is None:
        return None
    if isinstance(one, (EqualTo, GreaterThanOrEqual)):
        wanted = replace(wanted, first=max(one.value, wanted.first or one.value))
    if isinstance(one, (EqualTo, LessThanOrEqual)):
        wanted = replace(wanted, last=min(one.value, wanted.last or one.value))
    return wanted if isinstance(one, (EqualTo, GreaterThanOrEqual, LessThanOrEqual)) else None


def _form(options: Mapping[str, str]) -> Form:
    return FORMS[options.get("lines", "journal")]
