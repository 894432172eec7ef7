"""Searches files for planted marker strings (canaries), compressed content included.

Tests plant a canary in private data: a payload, a sender, or the secret that permits one request. They then search all
files that the pipeline wrote. The search covers plain text, hexadecimal, and base64 at any alignment. Parquet columns
are searched after decoding. Files of gzip, zstd, lz4 and snappy, and Spark's spill blocks, are unpacked. A file that
cannot be unpacked is reported too.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["UNREADABLE", "Find", "forms_of", "scan"]

UNREADABLE: Final = "unreadable"
"""Form of a find for a compressed file that could not be unpacked."""

_BLOCK_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 16
_PARQUET: Final = b"PAR1"
_STREAMS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_LZ4_BLOCKS: Final = b"LZ4Block"  # net.jpountz LZ4BlockOutputStream: token, sizes (LE), checksum, data
_SNAPPY_BLOCKS: Final = b"\x82SNAPPY\x00"  # org.xerial SnappyOutputStream: two versions, then size (BE), data
_SNAPPY_FRAMES: Final = b"\xff\x06\x00\x00sNaPpY"  # framing format: type, size (3 bytes LE), checksum, data
_STORED: Final = 0x10  # method of an LZ4 block that is not compressed


class Find(NamedTuple):
    """A canary in a file."""

    path: Path
    canary: str
    form: str
    """``plain``, ``hex``, ``base64``, ``bytes`` (what the canary is the hexadecimal of), or ``unreadable``."""
    where: str
    """``file``, or the compression or the column it was under."""


def forms_of(canary: str) -> dict[bytes, str]:
    """Return what to look for, with the name of each form."""
    raw = canary.encode()
    forms = {raw: "plain", raw.hex().encode(): "hex", raw.hex().upper().encode(): "hex"}
    for shift in range(3):
        # Characters at the ends share bits with unknown neighbours; those in between are certain.
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            skip = (0, 2, 3)[shift]
            text = encode(b"\x00" * shift + raw)
            forms.setdefault(text[skip : (shift + len(raw)) * 8 // 6], "base64")
    decoded = _from_hex(canary)
    if decoded:
        forms.setdefault(decoded, "bytes")
    return forms


def scan(paths: Iterable[Path], canaries: Iterable[str]) -> list[Find]:
    """Return every file below some folders that holds a canary, each form and place once.

    Args:
        paths: Files or folders.
        canaries: Words of at least eight characters, so that none can be there by chance.
    """
    needles = [(needle, form, canary) for canary in canaries for needle, form in forms_of(canary).items()]
    assert all(len(canary) >= 8 for _, _, canary in needles)
    return [find for path in _files(paths) for find in _scan_file(path, needles)]


_Needles = list[tuple[bytes, str, str]]


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(each for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


def _scan_file(path: Path, needles: _Needles) -> list[Find]:
    found: dict[Find, None] = {}
    try:
        for where, block in _blocks(path, max(len(needle) for needle, _, _ in needles)):
            for needle, form, canary in needles:
                if needle in block:
                    found[Find(path, canary, form, where)] = None
    except _UnreadableError as error:
        found[Find(path, "", UNREADABLE, str(error))] = None
    return list(found)


class _UnreadableError(Exception):
    """A compressed file that cannot be unpacked; says which compression."""


def _blocks(path: Path, overlap: int) -> Iterator[tuple[str, bytes]]:
    """Yield the file as it is, then what is inside; pieces overlap, so that nothing hides between two."""
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        file.seek(0)
        yield from (("file", block) for block in _overlapping(iter(lambda: file.read(_BLOCK_BYTES), b""), overlap))
    name, unpack = _unpacker(path, head)
    if unpack is None:
        return
    try:
        if name == "parquet":
            yield from _columns(path)
        else:
            yield from ((name, block) for block in _overlapping(unpack(path), overlap))
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise _UnreadableError(name) from error


def _overlapping(pieces: Iterator[bytes], overlap: int) -> Iterator[bytes]:
    held = b""
    for piece in pieces:
        block = held + piece
        yield block
        held = block[-overlap:]


def _unpacker(path: Path, head: bytes) -> tuple[str, Callable[[Path], Iterator[bytes]] | None]:
    if head.startswith(_PARQUET):
        return "parquet", _stream("parquet")
    for magic, name in _STREAMS.items():
        if head.startswith(magic):
            return name, _stream(name)
    if head.startswith(_LZ4_BLOCKS):
        return "lz4", _lz4_blocks
    if head.startswith(_SNAPPY_BLOCKS):
        return "snappy", _snappy_blocks
    if head.startswith(_SNAPPY_FRAMES):
        return "snappy", _snappy_frames
    return ("snappy", _snappy_raw) if path.suffix == ".snappy" else ("", None)


def _columns(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every buffer of every column: whatever the encoding, here are the values."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - part of an extra

    with pq.ParquetFile(path) as reader:
        for group in range(reader.metadata.num_row_groups):
            table = reader.read_row_group(group, use_threads=False)
            for name, column in zip(table.column_names, table.columns, strict=True):
                for buffer in (each for chunk in column.chunks for each in chunk.buffers() if each is not None):
                    yield f"column {name}", buffer.to_pybytes()


def _stream(codec: str) -> Callable[[Path], Iterator[bytes]]:
    def read(path: Path) -> Iterator[bytes]:
        import pyarrow as pa  # noqa: PLC0415 - part of an extra

        with pa.input_stream(str(path), compression=codec) as stream:
            yield from iter(lambda: stream.read(_BLOCK_BYTES), b"")

    return read


def _lz4_blocks(path: Path) -> Iterator[bytes]:
    data, place = path.read_bytes(), 0
    while place < len(data):
        if data[place : place + 8] != _LZ4_BLOCKS:
            raise ValueError("no block begins here")
        packed, size = (int.from_bytes(data[place + at : place + at + 4], "little") for at in (9, 13))
        body = data[place + 21 : place + 21 + packed]
        if size:  # the last block is empty
            yield body if data[place + 8] & 0xF0 == _STORED else _unpack("lz4_raw", body, size)
        place += 21 + packed


def _snappy_blocks(path: Path) -> Iterator[bytes]:
    data, place = path.read_bytes(), 16
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        yield _snappy(data[place + 4 : place + 4 + size])
        place += 4 + size


def _snappy_frames(path: Path) -> Iterator[bytes]:
    data, place = path.read_bytes(), 0
    while place < len(data):
        kind, size = data[place], int.from_bytes(data[place + 1 : place + 4], "little")
        body = data[place + 4 : place + 4 + size]
        if kind in {0, 1}:
            yield _snappy(body[4:]) if kind == 0 else body[4:]
        place += 4 + size


def _snappy_raw(path: Path) -> Iterator[bytes]:
    yield _snappy(path.read_bytes())


def _snappy(data: bytes) -> bytes:
    size = shift = 0
    for byte in data[:5]:  # the size comes first, seven bits a byte
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return _unpack("snappy", data, size)


def _unpack(codec: str, data: bytes, size: int) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - part of an extra

    unpacked: Any = pa.Codec(codec).decompress(data, size)
    return bytes(unpacked)


def _from_hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None
