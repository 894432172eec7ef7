"""``waystation check``: compares a home with what it remembers of its key and store, or accepts it as it is.

``home.json`` in the home remembers them (``server.home.mark``), so a lost or older store is noticed. ``doctor`` uses
the same checks. With ``--accept`` the present state becomes the remembered one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waystation.cli.home.deep import check_deep
from waystation.cli.machine_checks import Finding
from waystation.cli.options import JsonOption
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.core.errors import HostError, WaystationError

if TYPE_CHECKING:
    from waystation.server.home import Home
    from waystation.server.home.mark import HomeMark

__all__ = ["app", "check_mark", "check_store"]

app = typer.Typer(rich_markup_mode=None)

_STORE_WAY_OUT: Final = (
    "restore a backup, or move it away to begin without what it held, and run: waystation check --accept"
)


_DEEP: Final = "; waystation check --deep reads every row"


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="HOME", help="The home of a node.")],
    accept: Annotated[
        bool, typer.Option("--accept", help="Take what is there from now on; what is missing is given up.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every row of the store, and every sealed segment, and compare.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look whether a home has its key and its store as it remembers them, and whether the store is whole.

    Nothing is written without --accept, and the node may run meanwhile; with it the node must not run. With --deep
    every row is compared with its checksum, every packet with its id, and every sealed segment with its last line.
    Exit code 1 when something is wrong.

    Example: waystation check ./waystation
    """
    from waystation.server.home import Home  # noqa: PLC0415 - only this command needs it

    place = Home(folder)
    if not place.path.is_dir():
        raise HostError(f"there is no folder {folder}")
    given_up = _accept(place) if accept else []
    findings = list(_look(place, deep=deep))
    if deep:
        findings += check_deep(place, shown=not as_json)
    good = all(finding.good for finding in findings)
    if as_json:
        print_json({"good": good, "given_up": given_up, "findings": [finding._asdict() for finding in findings]})
    else:
        for sentence in given_up:
            typer.echo(f"given up  {sentence}")
        for finding in findings:
            typer.echo(f"{'ok  ' if finding.good else 'FAIL'}  {finding.name:<12} {finding.says}")
    if not good:
        raise typer.Exit(EXIT_FAILURE)


def check_mark(home: "Home") -> Finding:
    """Look whether a home has what it remembers."""
    from waystation.server.home.mark import HomeState, check_home  # noqa: PLC0415 - only this check needs it

    try:
        if lost := _lost_while_in_use(home):
            return Finding("mark", good=False, says=lost)
        state = check_home(home)
    except WaystationError as error:
        return Finding("mark", good=False, says=str(error))
    says = {
        HomeState.FRESH: "nothing is there yet",
        HomeState.UNMARKED: _without_mark(home) if state is HomeState.UNMARKED else "",
        HomeState.KNOWN: "all that the home remembers is there",
        HomeState.LOG_FOLDED: "all that the home remembers is there; another program folded the store's log in",
    }
    return Finding("mark", good=True, says=says[state], note=state in {HomeState.LOG_FOLDED, HomeState.UNMARKED})


def check_store(home: "Home", *, hint: bool = True) -> Finding:
    """Look whether a home's database has a whole structure and a layout that we know; nothing is written into it.

    Args:
        home: Of a node that runs or not.
        hint: Whether to say what reads the rows too.
    """
    from waystation.store.sqlite_layout import check_file  # noqa: PLC0415 - only this check needs it

    path, mark = home.store_path, _mark_of(home)
    if not path.exists() or not path.stat().st_size:
        what = "is empty" if path.exists() else "is missing"
        if mark is not None and mark.store is not None:
            return Finding("store", good=False, says=f"{path} {what}; {_STORE_WAY_OUT}")
        what = "is empty; the first start fills it" if path.exists() else "is not made yet"
        return Finding("store", good=True, says=f"{path} {what}")
    try:
        check_file(path)
    except HostError as error:
        return Finding("store", good=False, says=f"{error}; {_STORE_WAY_OUT}")
    return Finding("store", good=True, says=f"{path}: its structure is whole{_DEEP if hint else ''}")


def _look(home: "Home", *, deep: bool) -> Iterator[Finding]:
    yield _check_key(home)
    yield check_mark(home)
    yield check_store(home, hint=not deep)


def _check_key(home: "Home") -> Finding:
    try:
        home.check_secrets()
        if home.key_path.exists():
            return Finding("key", good=True, says=home.key_pair().public.hex())
    except WaystationError as error:
        return Finding("key", good=False, says=str(error))
    mark = _mark_of(home)
    if mark is not None and mark.public_key is not None:
        return Finding("key", good=False, says=f"{home.key_path} is missing")
    return Finding("key", good=True, says="not made yet")


def _mark_of(home: "Home") -> "HomeMark | None":
    """Return what the home remembers; None also where that cannot be read, which ``check_mark`` says."""
    from waystation.server.home.mark import read_mark  # noqa: PLC0415 - as above

    try:
        return read_mark(home)
    except HostError:
        return None


def _without_mark(home: "Home") -> str:
    """Return what is known of a home that has no mark."""
    from waystation.store.sqlite_layout import look_at_file  # noqa: PLC0415 - as above

    try:
        state = look_at_file(home.store_path) if home.store_path.exists() else None
    except HostError:
        state = None
    if state is not None:
        return (
            "home.json is missing, although nodes that write it have used this store;"
            " the next start writes one for what is there, and nothing shows whether that is all"
        )
    if home.store_path.exists():
        return "there is no home.json: the home is from before homes had a mark; the next start writes one"
    return "there is no home.json; the next start writes one"


def _lost_while_in_use(home: "Home") -> str:
    """Return what a home has lost under the node that runs on it, and what to do; "" when no node runs."""
    from waystation.server.home.mark import losses, read_mark  # noqa: PLC0415 - as above

    pid, mark = home.locked_by(), read_mark(home)
    lost = "; ".join(losses(home, mark)) if pid is not None and mark is not None else ""
    if not lost:
        return ""
    process = f" (process {pid})" if pid else ""
    return (
        f"{lost}; but a node runs on this home{process} and may have it open still: put it back as it was, or stop the"
        " node in order (SIGTERM), then start it; do not kill it"
    )


def _accept(home: "Home") -> list[str]:
    """Write a new mark for what is there; return what is given up by it."""
    from waystation.server.home.mark import accept_home, losses, read_mark  # noqa: PLC0415 - as above

    with home.lock():
        try:
            mark = read_mark(home)
            given_up = losses(home, mark) if mark is not None else []
        except HostError as error:
            given_up = [str(error)]
        accept_home(home)
    return given_up
