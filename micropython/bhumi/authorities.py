"""Whom the certificate of a relay must come from: one or two authorities in a file, the one in use first.

So a relay's next authority can be added before its present one ends. The file is written anew under another name first.
"""

import errno

from .port import SetupError, keep, replace
from .tls import context_of

__all__ = ["add_authority", "authorities", "is_authority", "prefer_second"]


def is_authority(ca: bytes) -> bool:
    """Return whether these bytes are a certificate in DER."""
    try:
        context_of(ca)
    except (OSError, ValueError):
        return False
    return True


def authorities(path: str) -> list:
    """Return the one or two certificates in DER of a relay's file, the one in use first; raises SetupError."""
    data = None
    for name in (path, path + ".new"):  # on FAT the power may have gone between removing and renaming
        try:
            with open(name, "rb") as file:
                data = file.read()
                break
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise SetupError("cannot read %s: %s" % (name, error))
    if data is None:
        raise SetupError("%s, which settings.py names, is missing" % (path or "the certificate of a tls:// relay"))
    size = _size_of(data)
    if not 0 < size < len(data):
        return [data]
    return [data[:size], data[size:]]


def add_authority(path: str, ca: bytes) -> bool:
    """Trust one more authority for the relay of this file, and return whether it is new.

    The one in use stays; the other one, if there is one, is replaced. So a relay's next authority is to be told over a
    connection that the present one vouches for.

    Raises:
        SetupError: The bytes are no certificate, or the file cannot be read.
        OSError: The file system fails; what was there before still is.
    """
    known = authorities(path)
    if ca in known:  # nearly always, and a certificate takes memory to be read
        return False
    if _size_of(ca) != len(ca) or not is_authority(ca):
        raise SetupError("not a certificate in DER")
    _keep(path, [known[0], ca])
    return True


def prefer_second(path: str) -> None:
    """Note that the second authority of a file is the one in use now; raises OSError."""
    known = authorities(path)
    _keep(path, known[1:] + known[:1])


def _size_of(data: bytes) -> int:
    """Return how many bytes the first structure of DER data takes, as its head says; 0 when there is none."""
    if len(data) < 4 or data[0] != 0x30:
        return 0
    if data[1] < 0x80:
        return 2 + data[1]
    count = data[1] & 0x7F
    return 2 + count + int.from_bytes(data[2 : 2 + count], "big") if count in (1, 2) else 0


def _keep(path: str, certificates: list) -> None:
    keep(path + ".new", certificates)
    replace(path + ".new", path)
