"""A planted word is found wherever it hides."""

import base64
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from waystation.pipeline.canary import UNREADABLE, Find, forms_of, scan

WORD = "canary-7f3a9c-wren"
PLAIN = b"." * 1_000 + WORD.encode() + b"." * 1_000


def packed(codec: str, data: bytes) -> bytes:
    """Compress one block."""
    return pa.Codec(codec).compress(data, asbytes=True)


def stream(codec: str, data: bytes) -> bytes:
    """Compress a whole file."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        out.write(data)
    return sink.getvalue().to_pybytes()


def lz4_block(data: bytes, method: int = 0x20) -> bytes:
    """Return a block as Java's LZ4BlockOutputStream writes it."""
    body = packed("lz4_raw", data) if method == 0x20 else data
    sizes = len(body).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return b"LZ4Block" + bytes([method | 6]) + sizes + bytes(4) + body


def snappy_block(data: bytes) -> bytes:
    """Return a block as Java's SnappyOutputStream writes it."""
    body = packed("snappy", data)
    return len(body).to_bytes(4, "big") + body


def frame(kind: int, body: bytes) -> bytes:
    """Return a chunk of snappy's framing format."""
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


FILES = {
    "plain": (PLAIN, "plain", "file"),
    "hex": (b"x" + WORD.encode().hex().encode(), "hex", "file"),
    "upper": (WORD.encode().hex().upper().encode(), "hex", "file"),
    "gz": (gzip.compress(PLAIN), "plain", "gzip"),
    "zst": (stream("zstd", PLAIN), "plain", "zstd"),
    "lz4": (stream("lz4", PLAIN), "plain", "lz4"),
    "spill": (lz4_block(b"." * 900) + lz4_block(PLAIN) + lz4_block(b"", 0x10), "plain", "lz4"),
    "xerial": (b"\x82SNAPPY\x00" + bytes(8) + snappy_block(b"." * 99) + snappy_block(PLAIN), "plain", "snappy"),
    "frames": (frame(255, b"sNaPpY") + frame(0, bytes(4) + packed("snappy", PLAIN)), "plain", "snappy"),
    "raw.snappy": (packed("snappy", PLAIN), "plain", "snappy"),
}


@pytest.mark.parametrize("name", FILES)
def test_canary_is_found_in_every_kind_of_file(tmp_path, name) -> None:
    """As it is, in hexadecimal, or under a compression: there is one find that says where."""
    data, form, where = FILES[name]
    path = tmp_path / "deep" / name
    path.parent.mkdir()
    path.write_bytes(data)

    finds = scan([tmp_path], [WORD])
    assert Find(path, WORD, form, where) in finds
    assert scan([path], ["another-word"]) == []


def test_stored_blocks_are_looked_at_as_they_are(tmp_path) -> None:
    """A block that was not worth compressing is searched too."""
    path = tmp_path / "spill"
    path.write_bytes(lz4_block(PLAIN, 0x10))

    assert {find.where for find in scan([path], [WORD])} == {"file", "lz4"}


def test_canary_between_two_pieces_is_found(tmp_path) -> None:
    """No border of a read hides a word."""
    path = tmp_path / "long"
    path.write_bytes(b"." * ((1 << 20) - 5) + WORD.encode())

    assert [find.form for find in scan([path], [WORD])] == ["plain"]


@pytest.mark.parametrize("shift", range(3))
def test_base64_is_found_at_any_alignment(shift) -> None:
    """Whatever stands before and behind, a part of the text is certain and is looked for."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"\xfb" * (3 + shift) + WORD.encode() + b"\xef\xfe")
        assert any(needle in text for needle, form in forms_of(WORD).items() if form == "base64")


def test_canary_in_parquet_is_found_under_every_encoding(tmp_path) -> None:
    """Strings, bytes, lists, map values and dictionaries are looked at unpacked, and the column is named."""
    hexed = b"\x01\x23\x45\x67\x89\xab\xcd\xef".hex()
    columns = {
        "text": pa.array([WORD] * 50),
        "bytes": pa.array([bytes.fromhex(hexed)] * 50),
        "list": pa.array([["a", WORD]] * 50),
        "map": pa.array([[("k", WORD)]] * 50, pa.map_(pa.string(), pa.string())),
        "clean": pa.array(["harmless"] * 50),
    }
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", write_statistics=False, row_group_size=20)

    assert {(find.canary, find.form, find.where) for find in scan([path], [WORD, hexed])} >= {
        (WORD, "plain", "column text"),
        (hexed, "bytes", "column bytes"),
        (WORD, "plain", "column list"),
        (WORD, "plain", "column map"),
    }
    assert not [find for find in scan([path], [WORD]) if find.where == "column clean"]


@pytest.mark.parametrize(
    "data",
    [b"PAR1 torn", gzip.compress(PLAIN)[:40], b"LZ4Block" * 9, b"\x82SNAPPY\x00" * 9],
    ids=["parquet", "gzip", "lz4", "snappy"],
)
def test_file_that_cannot_be_unpacked_is_reported(tmp_path, data) -> None:
    """What cannot be looked into is a find of its own: it proves nothing."""
    (tmp_path / "torn").write_bytes(data)

    assert [find.form for find in scan([tmp_path], [WORD])] == [UNREADABLE]
