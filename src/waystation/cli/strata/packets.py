"""``waystation strata export`` and ``import``: write a node's packets as JSON lines, and read them back.

One line is one packet with the time at which the node received it. Import applies the same checks as to packets from
another relay, so a file is trusted no more than a relay.
"""

import dataclasses
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from waystation.cli.options import ConfigOption, HomeOption, JsonOption, SetOption
from waystation.cli.output import EXIT_FAILURE, print_json, split_settings
from waystation.cli.strata.input import TIME_HELP, parse_authors, parse_since, parse_until
from waystation.core.errors import HostError, LocalError
from waystation.core.packets import PacketQuery
from waystation.core.records import Store
from waystation.protocols.strata.relay.offline import Importer
from waystation.protocols.strata.settings import StrataSettings
from waystation.server.config.load import load_config
from waystation.server.config.values import Config
from waystation.server.home import Home
from waystation.server.home.mark import prepare_home
from waystation.server.registry import packet_check
from waystation.server.strata.bootstrap import read_bootstrap, with_bootstrap
from waystation.server.strata.operator_keys import read_operator_keys
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_packets import PACKETS_TABLE

__all__ = ["export_packets", "import_packets"]

_PAGE_ROWS: Final = 500
_FOR_EVER_S: Final = 31_536_000 * 100
_FINE: Final = {"accepted", "duplicate", "invalid_timestamp:expired"}  # an export holds what has expired since
_LINE_BYTES_MAX: Final = 4_194_304
_BATCH_LINES: Final = 200
_NAMED_MAX: Final = 20

_FileArgument = Annotated[Path, typer.Argument(help="JSON lines; - is stdin or stdout.")]


def export_packets(
    file: _FileArgument = Path("-"),
    home: HomeOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    author: Annotated[list[str] | None, typer.Option("--author", help="Only this DID; may repeat.")] = None,
    content_type: Annotated[
        list[str] | None, typer.Option("--type", help="Only this content type; may repeat.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"Least timestamp, {TIME_HELP}")] = None,
    until: Annotated[str | None, typer.Option("--until", help=f"Greatest timestamp, {TIME_HELP}")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a node's stored packets as JSON lines; the node may run meanwhile.

    Example: waystation strata export packets.jsonl --home ./waystation --type POST
    """
    place = Home(_config_of(home, config, settings).node.home)
    authors, first_s, last_s = parse_authors(author), parse_since(since), parse_until(until)
    query = PacketQuery(authors, tuple(content_type or ()), first_s, last_s, by_seq=True, rows_max=_PAGE_ROWS)
    with _store_of(place) as store, _opened(file, "wb") as out, _progress("export") as bar:
        newest = store.packets.newest_seq()
        task = bar.add_task("packets", total=newest)
        written = 0
        for row_bytes, seq in _lines(store, query._replace(seq_max=newest)):
            out.write(row_bytes)
            written += 1
            bar.update(task, completed=seq)
        bar.update(task, completed=newest)
    if as_json and str(file) != "-":
        print_json({"written": written, "file": str(file)})
    else:
        typer.echo(f"{written} packets written", err=True)


def import_packets(
    file: _FileArgument,
    home: HomeOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the packets of a file and store the good ones; the node must not run.

    Example: waystation strata import packets.jsonl --home ./waystation
    """
    loaded = _config_of(home, config, settings)
    place = Home(loaded.node.home)
    _refuse_absent(place)
    prepare_home(place)
    settings_in_force = loaded.of(StrataSettings)
    settings_in_force = with_bootstrap(settings_in_force, read_bootstrap(settings_in_force, int(time.time())))
    strata = dataclasses.replace(settings_in_force, max_backfill_s=_FOR_EVER_S, upstreams=[], public_url="")
    with place.lock(), _store_of(place) as store, _opened(file, "rb") as lines, _progress("import") as bar:
        importer = Importer(strata, place.key_pair(), store, *read_operator_keys(settings_in_force), int(time.time()))
        size = file.stat().st_size if str(file) != "-" else None
        task = bar.add_task("bytes", total=size)
        batches = _Batches(importer, file)
        for number, line in enumerate(lines, 1):
            if len(line) > _LINE_BYTES_MAX:
                raise LocalError(f"{file}:{number}: a line of over {_LINE_BYTES_MAX} bytes is no packet")
            if line.strip():
                batches.add(number, line)
            bar.advance(task, len(line))
        batches.finish()
    _report(batches.verdicts, as_json=as_json)
    if set(batches.verdicts) - _FINE:
        raise typer.Exit(EXIT_FAILURE)


class _Batches:
    """Feeds an importer, and names the lines that it refuses.

    An importer counts verdicts and does not say whose they are, so that a batch with a bad line is judged again line by
    line. The good ones are known by then and cost next to nothing; once enough are named, nothing is judged twice.
    """

    def __init__(self, importer: Importer, file: Path) -> None:
        self._importer = importer
        self._file = file
        self._batch: list[tuple[int, bytes]] = []
        self._named = 0
        self.verdicts: Counter[str] = Counter()

    def add(self, number: int, line: bytes) -> None:
        self._batch.append((number, line))
        if len(self._batch) >= _BATCH_LINES:
            self.finish()

    def finish(self) -> None:
        found = self._judge(self._batch)
        self.verdicts += found
        if set(found) - _FINE:
            self._name_refused()
        self._batch.clear()

    def _judge(self, batch: list[tuple[int, bytes]]) -> Counter[str]:
        before = self._importer.verdicts.copy()
        for _, line in batch:
            self._importer.add(line)
        self._importer.finish()
        return self._importer.verdicts - before

    def _name_refused(self) -> None:
        for number, line in self._batch:
            if self._named >= _NAMED_MAX:
                return
            for verdict in set(self._judge([(number, line)])) - _FINE:
                self._named += 1
                typer.echo(f"{self._file}:{number}: {verdict}", err=True)
                if self._named == _NAMED_MAX:
                    typer.echo("further lines that are refused are only counted", err=True)


def _report(verdicts: Counter[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"verdicts": dict(sorted(verdicts.items()))})
        return
    width = max(map(len, verdicts), default=0)
    for verdict, count in sorted(verdicts.items()):
        typer.echo(f"{verdict:<{width}}  {count:>10,}")


def _lines(store: Store, query: PacketQuery) -> Iterator[tuple[bytes, int]]:
    while True:
        page = store.packets.page(query)
        for row in page.rows:
            yield b'{"packet":%b,"received_at":%d}\n' % (row.canonical, row.received_at), row.seq
        if page.position is None:
            return
        query = query._replace(start=page.position)


def _config_of(home: str | None, config: str | None, settings: list[str] | None) -> Config:
    return load_config(Path(config) if config else None, os.environ, split_settings(settings, home=home))


def _refuse_absent(place: Home) -> None:
    if not place.path.exists():
        raise HostError(f"{place.path} is no home of a node; `waystation init` makes one")


@contextmanager
def _store_of(place: Home) -> Iterator[Store]:
    _refuse_absent(place)
    store = SqliteStore(place.store_path, check=packet_check())
    try:
        yield store
    finally:
        store.close()
        if lost := store.damage.totals().get(PACKETS_TABLE):
            typer.echo(f"{lost} packets are damaged on the disk and left out; see: waystation check --deep", err=True)


@contextmanager
def _opened(file: Path, mode: Literal["rb", "wb"]) -> Iterator[IO[bytes]]:
    """Open a file, or give stdin or stdout for -."""
    if str(file) == "-":
        yield sys.stdin.buffer if mode == "rb" else sys.stdout.buffer
        return
    try:
        with file.open(mode) as stream:
            yield stream
    except OSError as error:
        raise HostError(f"cannot {'read' if mode == 'rb' else 'write'} {file}: {error.strerror}") from error


def _progress(what: str) -> Progress:
    columns: Any = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
