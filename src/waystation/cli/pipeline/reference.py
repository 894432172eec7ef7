"""``waystation pipeline reference``: computes the keyed hash that identifies a peer in journal, findings and policy.

Journal and published tables name nobody; with this an operator who knows a key finds its rows. The hash needs the
home's reference key, which changes weekly, so it holds for rows of one week.
"""

import datetime
from typing import Annotated, Final, NamedTuple

import typer

from waystation.cli.options import HomeOption, JsonOption
from waystation.cli.output import print_result
from waystation.cli.pipeline.options import home_of
from waystation.core.dids import is_did, key_of_did
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.core.networks import network_of
from waystation.crypto.hashing import keyed_reference

__all__ = ["reference"]

_WEEK: Final = datetime.timedelta(weeks=1)
_EPOCH: Final = datetime.date(1970, 1, 1)


class _Subject(NamedTuple):
    """One thing that a reference may stand for."""

    kind: str
    """As findings name it: ``peer``, ``author`` or ``source``."""
    hashed: bytes


def reference(
    subject: Annotated[str, typer.Argument(help="A key (64 hexadecimal digits), an id52, a DID or an IP address.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which reference a key, an author or an address's network has, to find it in findings and policy.

    References are keyed hashes: nobody can read them backwards, and the node's key for them changes each week, so
    that this answers for the week it names only.

    Example: waystation pipeline reference 203.0.113.7 --home ./waystation
    """
    from waystation.server.home import Home  # noqa: PLC0415 - only this command needs it

    subjects = _subjects(subject)
    place = home_of(home)
    key = Home(place).kept_reference_key()
    if key is None:
        raise HostError(f"{place} has no key for references yet: start the node first, or name its home with --home")
    begins = _EPOCH + key.week * _WEEK
    found = {each.kind: keyed_reference(key.key, each.hashed).hex() for each in subjects}
    ends = begins + _WEEK
    lines = f"from {begins} to {ends} (UTC)", *(f"{kind:<7} {text}" for kind, text in found.items())
    document = {"week_from": begins.isoformat(), "week_to": ends.isoformat(), "references": found}
    print_result(document, *lines, as_json=as_json)


def _subjects(text: str) -> list[_Subject]:
    """Return what a text may stand for; an author's reference is made of the DID's text (PIPE-REFS).

    Raises:
        LocalError: It is nothing that has a reference.
    """
    if is_did(text):
        key = key_of_did(text)
        peer = [] if key is None else [_Subject("peer", key)]
        return [_Subject("author", text.encode()), *peer]
    network = network_of(text)
    if network:
        return [_Subject("source", network.encode())]
    try:
        return [_Subject("peer", PublicKey.parse(text))]
    except LocalError as error:
        raise LocalError(f"{text!r} is no key, id52, DID or IP address: {error}") from error
