"""``waystation bsp box``: manages and uses the blind box of a node, for its operator, its owners and their contacts.

A blind box stores sealed files for an owner who is offline; the node cannot read them. ``setup``, ``forget`` and
``owners`` work on the home of a node, the other commands ask the box over HTTP (``server.box.server``).
"""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from waystation.cli.bsp.place import refuse_elsewhere
from waystation.cli.loop import run as run_loop
from waystation.cli.options import CaOption, ConfigOption, HomeOption, InsecureOption, JsonOption, ca_or_local
from waystation.cli.output import print_result
from waystation.core.errors import HostError, LocalError
from waystation.sdk.bsp.box import FILE_BYTES_MAX, BoxClient, BoxFile
from waystation.sdk.errors import BoxRefusedError
from waystation.transport.tls import client_context

__all__ = ["app"]

TOKEN_VARIABLE: Final = "WAYSTATION_BOX_TOKEN"  # noqa: S105 - a name
_ID_DIGITS: Final = 64
_PREFIX_DIGITS_MIN: Final = 4
_Result = TypeVar("_Result")

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Leave sealed files in a node's box, and take those left for you.",
)

UrlOption = Annotated[str, typer.Option("--url", help="Address of the box, https://host:port.")]
TokenOption = Annotated[
    Path | None, typer.Option("--token-file", help=f"File with your token; - is stdin. Default: {TOKEN_VARIABLE}.")
]
FolderOption = Annotated[
    str | None,
    typer.Option(
        "--folder",
        help="Folder, or the first digits of it; owners find them with contacts. Default: your own, as a contact.",
    ),
]
NameArgument = Annotated[str, typer.Argument(help="For the operator: 1 to 32 of a-z, 0-9, - and _.")]
FileIdArgument = Annotated[str, typer.Argument(help="File, as list shows it: 64 hexadecimal digits.")]


# The operator


@app.command()
def setup(
    name: NameArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Let somebody use this node's box: prints a token for the new owner, which is kept nowhere; a running node knows.

    The box is served once bsp.box names an address in the node's configuration.

    Example: waystation bsp box setup alice --home ./waystation
    """
    from waystation.server.box.store import add_owner  # noqa: PLC0415 - only operators have this

    token = add_owner(_box_of(home, config), name)
    print_result({"name": name, "token": token}, token, as_json=as_json)
    if not as_json:
        typer.echo(f"note: this is the token of {name}; it is shown this once", err=True)


@app.command()
def forget(name: NameArgument, home: HomeOption = None, config: ConfigOption = None) -> None:
    """Take the box from an owner, with all its contacts and files.

    Example: waystation bsp box forget alice --home ./waystation
    """
    from waystation.server.box.store import remove_owner  # noqa: PLC0415

    remove_owner(_box_of(home, config), name)


@app.command()
def owners(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show who may use this node's box.

    Example: waystation bsp box owners --home ./waystation
    """
    from waystation.server.box.store import owner_names  # noqa: PLC0415

    names = owner_names(_box_of(home, config))
    print_result({"owners": names}, *names, as_json=as_json)


# Owners


@app.command()
def invite(
    url: UrlOption,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a contact: prints its token, which is shown this once and goes to it alone, and its two folders.

    Example: waystation bsp box invite --url https://node.example:7444 --token-file my.token
    """
    made = _run(url, token_file, ca, insecure, BoxClient.add_contact)
    lines = f"token       {made.token}", f"to you      {made.to_owner}", f"to contact  {made.to_contact}"
    print_result(made._asdict(), *lines, as_json=as_json)


@app.command()
def contacts(
    url: UrlOption,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show your contacts' folders, and what waits there.

    Example: waystation bsp box contacts --url https://node.example:7444 --token-file my.token
    """
    found = _run(url, token_file, ca, insecure, BoxClient.contacts)
    lines = (
        f"to you      {each.to_owner}  {each.files_count} files, {each.size_bytes} bytes\nto contact  {each.to_contact}"
        for each in found
    )
    print_result({"contacts": [contact._asdict() for contact in found]}, *lines, as_json=as_json)


@app.command()
def remove(
    contact: Annotated[str, typer.Argument(help="Its folder to you, or the first digits of it.")],
    url: UrlOption,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Forget a contact with its token and all files of both folders.

    Example: waystation bsp box remove 8a1f --url https://node.example:7444 --token-file my.token
    """

    async def work(box: BoxClient) -> None:
        await box.remove_contact(_one_of(contact, [each.to_owner for each in await box.contacts()]))

    _run(url, token_file, ca, insecure, work)


# Files


@app.command()
def put(
    file: Annotated[Path, typer.Argument(help="Sealed file, such as bsp export writes; at most 1 MiB.")],
    url: UrlOption,
    folder: FolderOption = None,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Leave a file; exit code 0 means that it is on the box's disk.

    A contact's token has one folder to write to. An owner's has one for each contact, and names it with --folder: the
    line "to contact" of waystation bsp box contacts.

    Example: waystation bsp box put to-alice.bsp --url https://node.example:7444 --token-file my.token
    """
    data = _read(file)

    async def work(box: BoxClient) -> BoxFile:
        return await box.put(await _folder(box, folder, writes=True), data)

    left = _run(url, token_file, ca, insecure, work)
    print_result({"id": left.file_id, "bytes": left.size_bytes}, left.file_id, as_json=as_json)


@app.command("list")
def list_files(
    url: UrlOption,
    folder: FolderOption = None,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what waits for you, oldest first.

    Example: waystation bsp box list --url https://node.example:7444 --token-file my.token
    """

    async def work(box: BoxClient) -> list[BoxFile]:
        return await box.files(await _folder(box, folder, writes=False))

    found = _run(url, token_file, ca, insecure, work)
    document = {"files": [{"id": each.file_id, "bytes": each.size_bytes} for each in found]}
    print_result(document, *(f"{each.file_id}  {each.size_bytes} bytes" for each in found), as_json=as_json)


@app.command()
def get(
    file_id: FileIdArgument,
    url: UrlOption,
    out: Annotated[Path, typer.Option("--out", help="Where to write it; a file that is there is not overwritten.")],
    folder: FolderOption = None,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Take a copy of a file; it stays in the box until it is deleted.

    Example: waystation bsp box get 8a1f…64 digits… --out from-alice.bsp --url https://node.example:7444
    """

    async def work(box: BoxClient) -> bytes:
        return await box.get(await _folder(box, folder, writes=False), file_id)

    _write(out, _run(url, token_file, ca, insecure, work))


@app.command()
def delete(
    file_id: FileIdArgument,
    url: UrlOption,
    folder: FolderOption = None,
    token_file: TokenOption = None,
    ca: CaOption = None,
    insecure: InsecureOption = False,
) -> None:
    """Remove a file, once what was in it is safe with you.

    Example: waystation bsp box delete 8a1f…64 digits… --url https://node.example:7444 --token-file my.token
    """

    async def work(box: BoxClient) -> None:
        await box.delete(await _folder(box, folder, writes=False), file_id)

    _run(url, token_file, ca, insecure, work)


def _run(
    url: str, token_file: Path | None, ca: Path | None, insecure: bool, work: Callable[[BoxClient], Awaitable[_Result]]
) -> _Result:
    """Do what a command says with the box at ``url``."""
    context = client_context(ca_or_local(ca), verify=not insecure) if url.startswith("https:") else None
    box = BoxClient(url, _token(token_file), context=context)

    async def main() -> _Result:
        return await work(box)

    return run_loop(main())


async def _folder(box: BoxClient, text: str | None, *, writes: bool) -> str:
    """Return the folder that is meant: a contact's own, or one of an owner's by its first digits."""
    if text is not None:
        if len(text) == _ID_DIGITS:
            return text
        return _one_of(text, [name for each in await box.contacts() for name in (each.to_owner, each.to_contact)])
    try:
        folders = await box.folders()
    except BoxRefusedError as error:
        if error.refusal != "not_allowed":
            raise
        raise LocalError("an owner says which --folder; `waystation bsp box contacts` shows them") from error
    return folders.to_owner if writes else folders.to_contact


def _one_of(text: str, names: list[str]) -> str:
    found = [name for name in names if len(text) >= _PREFIX_DIGITS_MIN and name.startswith(text)]
    if len(found) != 1:
        raise LocalError(f"{len(found)} folders begin with {text!r}; give {_PREFIX_DIGITS_MIN} digits or more of one")
    return found[0]


def _token(path: Path | None) -> str:
    if path is None:
        text = os.environ.get(TOKEN_VARIABLE, "")
        if not text:
            raise LocalError(f"who are you? give --token-file, or set {TOKEN_VARIABLE}")
        return text.strip()
    if str(path) == "-":
        return sys.stdin.read().strip()
    return _read(path).decode("ascii", errors="replace").strip()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from error


def _write(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError as error:
        raise LocalError(f"{path} is there already; it is not overwritten") from error
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from error


def _box_of(home: str | None, config: str | None) -> Path:
    from waystation.server.config.load import load_config  # noqa: PLC0415 - only operators have this

    overrides = {"node.home": home} if home is not None else {}
    found = load_config(Path(config) if config else None, os.environ, overrides).node.home
    if config is not None and home is None and not found.exists():
        refuse_elsewhere(Path(config), found)
    return found / "box"
