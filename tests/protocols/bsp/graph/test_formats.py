"""Laws of protocols.bsp.formats."""

import random

import pytest

from tests.protocols.bsp.build import SEED_VECTORS, id_at, ids, pattern
from waystation.core.errors import LocalError, RemoteError
from waystation.protocols.bsp.graph.formats import (
    FORMATS,
    ClientFormat,
    Context,
    DepsV1,
    InvalidMessageError,
    Opaque,
    deps_v1_body,
    deps_v1_content,
)

CONTEXT = Context(id_at(0), id_at(1), 7, b"anything", ids(2), lambda _: None)


@pytest.mark.parametrize("entry", SEED_VECTORS["deps_v1"], ids=lambda entry: entry["body"][:12])
def test_vector_of_a_body(entry):
    """Dependencies and content stand where the digest says, and are written there again."""
    body, dependencies = bytes.fromhex(entry["body"]), tuple(map(bytes.fromhex, entry["deps"]))
    content = deps_v1_content(body)

    assert DepsV1().parse(body) == dependencies
    assert content == (b"child" if dependencies else b"root")
    assert deps_v1_body(dependencies, content) == body


@pytest.mark.parametrize("count", [0, 1, 2, 64, 65, 1_023])
@pytest.mark.parametrize("size", [0, 1, 31, 32])
def test_what_is_made_is_parsed(count, size):
    """Any number that fits a body, also one that a device will refuse: to judge that is not the format's."""
    body = deps_v1_body(ids(count), pattern(size))

    assert len(body) == 3 + 32 * count + size
    assert DepsV1().parse(body) == ids(count)
    assert deps_v1_content(body) == pattern(size)


def test_repeats_are_given_as_they_stand():
    """The graph makes one of them."""
    assert DepsV1().parse(deps_v1_body(ids(1) * 3, b"")) == ids(1) * 3


def test_body_cut_at_every_byte():
    """Whatever is lost of the dependencies, the body is invalid; content may be any length."""
    body = deps_v1_body(ids(2), b"content")
    for size in range(3 + 64):
        with pytest.raises(InvalidMessageError):
            DepsV1().parse(body[:size])
        with pytest.raises(InvalidMessageError):
            deps_v1_content(body[:size])
    for size in range(3 + 64, len(body)):
        assert DepsV1().parse(body[:size]) == ids(2)


@pytest.mark.parametrize("count", [3, 4, 255, 256, 1_024, 65_535])
def test_count_above_what_is_there_is_invalid(count):
    """It is compared with the body before anything is made of it."""
    body = b"\x01" + count.to_bytes(2, "big") + b"".join(ids(2)) + b"x" * 31
    with pytest.raises(InvalidMessageError, match=f"{count} dependencies in 98 bytes"):
        DepsV1().parse(body)


@pytest.mark.parametrize("count", [0, 1])
def test_count_below_what_is_there_leaves_content(count):
    """Identifiers behind the last dependency are the application's bytes."""
    body = b"\x01" + count.to_bytes(2, "big") + b"".join(ids(2))

    assert DepsV1().parse(body) == ids(count)
    assert deps_v1_content(body) == b"".join(ids(2)[count:])


@pytest.mark.parametrize("version", [0, 2, 255])
def test_other_version_is_invalid(version):
    """Only 01 is ours."""
    with pytest.raises(InvalidMessageError, match=f"version {version}"):
        DepsV1().parse(bytes((version, 0, 0)))


def test_any_bytes_are_parsed_or_invalid():
    """Nothing else comes out of a body, and what is parsed is what is there."""
    rng = random.Random(3)
    for _ in range(2_000):
        body = rng.choice((b"", b"\x01", b"\x01\x00", b"\x01\x00\x02")) + rng.randbytes(rng.randrange(100))
        try:
            found = DepsV1().parse(body)
        except InvalidMessageError:
            found = None

        is_good = len(body) >= 3 and body[0] == 1 and len(body) >= 3 + 32 * int.from_bytes(body[1:3], "big")
        assert (found is not None) == is_good
        assert found is None or b"".join(found) == body[3 : 3 + 32 * len(found)]


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33)])
def test_dependency_of_another_length_is_not_written(bad):
    """It is the caller's mistake."""
    with pytest.raises(LocalError, match="32 bytes"):
        deps_v1_body((id_at(0), bad), b"")


def test_more_dependencies_than_the_count_can_say_are_not_written():
    """Two bytes say 65,535."""
    with pytest.raises(LocalError, match="65535"):
        deps_v1_body((id_at(0),) * 65_536, b"")


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x01\xff\xff", bytes(100)])
def test_opaque_takes_anything(body):
    """It depends on nothing and is always valid."""
    assert Opaque().parse(body) == ()
    assert Opaque().validate(CONTEXT)


@pytest.mark.parametrize("name", FORMATS)
def test_our_formats_need_not_be_asked(name):
    """Who may say no says so, that others cost nothing; asked all the same they say yes."""
    form: ClientFormat = FORMATS[name]

    assert not form.judges
    assert form.validate(CONTEXT)


def test_formats_are_those_of_the_configuration():
    """[[bsp.groups]] format = "opaque" or "deps_v1"."""
    assert {name: type(form) for name, form in FORMATS.items()} == {"opaque": Opaque, "deps_v1": DepsV1}


def test_invalid_message_is_the_other_sides_fault():
    """A device turns it into a mark, never into a crash."""
    assert issubclass(InvalidMessageError, RemoteError)
