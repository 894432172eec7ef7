"""``waystation bhumi`` invite, invites, peers, unpair, block and unblock: who may reach this identity, and how."""

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.bhumi.ways import DEFAULT_RELAY, RelayOption
from waystation.cli.options import JsonOption, ca_or_local, home_option
from waystation.cli.output import print_json
from waystation.cli.program import own_program
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.protocols.bhumi.payload.pairing import PairedSuite
from waystation.sdk.bhumi import BhumiState, Dialect, PeerRecord, encode_invite
from waystation.sdk.bhumi.pairing.admission import OpenInvite
from waystation.sdk.bhumi.pairing.inviting import LEGACY_INVITE, authority_of, invitation
from waystation.sdk.bhumi.seeds import seed_relays
from waystation.sdk.qr import draw_qr
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import client_context

__all__ = ["DEFAULT_HOME", "HomeOption", "check_existing", "register", "span_seconds"]

DEFAULT_HOME: Final = Path("bhumi-me")
HomeOption = Annotated[Path, home_option("its key and its peers")]
AliasOption = Annotated[str, typer.Option("--alias", help="How to call the peer from now on.")]
PeerArgument = Annotated[str, typer.Argument(help="Alias or id52.")]
AllowOption = Annotated[
    str | None,
    typer.Option(
        "--allow", help="What the peer may send: commands, text, binary, with commas between; * for everything."
    ),
]
_EVERYTHING: Final = "*"
_SPAN: Final = re.compile(r"(\d{1,6})(s|min|h|d)")
_SECONDS: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_SUITES: Final = {Dialect.SUITE_3: PairedSuite.CHACHA, Dialect.SUITE_4: PairedSuite.AES_CTR}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (invite, invites, peers, unpair, block, unblock):
        app.command()(command)


def invite(
    relay: RelayOption = None,
    home: HomeOption = DEFAULT_HOME,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", help="PEM file of the relay's authority; that of the last listen unless given."),
    ] = None,
    alias: AliasOption = "",
    expires: Annotated[str, typer.Option("--expires", help="How long it is good: 30min, 12h, 7d, or never.")] = "7d",
    allow: AllowOption = None,
    e2e: Annotated[
        Dialect, typer.Option("--e2e", help="suite-3, or suite-4 for a device that prefers AES.")
    ] = Dialect.SUITE_3,
    legacy: Annotated[
        bool,
        typer.Option("--legacy", help="A token without a secret, for programs that know no other; a relay can use it."),
    ] = False,
    qr: Annotated[bool, typer.Option("--qr", help="Show the token as a QR code, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a token that lets one person pair with this identity, once.

    Works while ``listen`` runs. The token contains all that the other side needs: key, relays, their authority, what
    the pairing is sealed in, and its end. Hand it over by a way that others cannot read.

    Example: waystation bhumi invite --alias bob --allow led,reading
    """
    role = _role(allow)
    ends_in_s = span_seconds(expires)
    if not legacy and e2e not in _SUITES:
        raise LocalError(
            f"an invitation is for suite-3 or suite-4, not {e2e.value}; --legacy makes a token for the others"
        )
    with _opened(home) as state:
        relays, authority = _where(state, relay, ca)
        if legacy:
            made = state.make_invite(alias, expires_s=ends_in_s, allow=role, suite=None)
            token, words = encode_invite(made), ["--relay", relays[0], *([] if ca is None else ["--ca", str(ca)])]
        else:
            suite = _SUITES[e2e]
            token = invitation(state, alias, relays, authority, expires_s=ends_in_s, allow=role, suite=suite)
            words = []
        id52 = encode_id52(state.identity)
    line = shlex.join([*own_program(), "bhumi", "accept", token, *words])
    if as_json:
        ends_s = int(time.time()) + ends_in_s if ends_in_s else None
        facts = {"relays": relays, "expires": ends_s, "legacy": legacy, "allow": None if role is None else sorted(role)}
        print_json({"token": token, "id52": id52, "alias": alias, "accept": line, **facts})
    else:
        typer.echo(token)
        typer.echo(f"\nThis identity is {id52}. The other side runs:\n\n  {line}\n", err=True)
        if qr:
            typer.echo(draw_qr(token), err=True)
    if legacy:
        typer.echo(f"waystation: {LEGACY_INVITE}", err=True)


def invites(
    cancel: Annotated[
        list[str] | None, typer.Option("--cancel", help="Cancel the invites of this alias or name; may repeat.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the invites that wait to be used, or cancel some.

    Example: waystation bhumi invites --cancel bob
    """
    check_existing(home)
    with _opened(home) as state:
        shown = [each for name in cancel for each in state.cancel_invites(name)] if cancel else state.invites()
    for each in shown:
        if as_json:
            print_json(_document(each, cancelled=bool(cancel)))
        else:
            typer.echo(("cancelled " if cancel else "") + _line(each))
    if not shown and not as_json:
        typer.echo("no invite waits to be used", err=True)


def peers(
    peer: Annotated[str | None, typer.Argument(help="Only this one: alias or id52.")] = None,
    allow: AllowOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List whom this identity can talk to, or change what one of them may send.

    Example: waystation bhumi peers bob --allow led,reading
    """
    check_existing(home)
    with _opened(home) as state:
        if allow is not None:
            if peer is None:
                raise LocalError("--allow changes one peer: waystation bhumi peers PEER --allow led,reading")
            state.allow(state.find_peer(peer).identity, _role(allow))
        known = state.peers() if peer is None else [state.find_peer(peer)]
    for each in known:
        if as_json:
            print_json(_peer_document(each))
        else:
            typer.echo(_peer_line(each))
    program = shlex.join(own_program())
    if not known and not as_json:
        typer.echo(f"no peers yet: `{program} bhumi invite` makes a token for somebody", err=True)
    if any(each.is_legacy for each in known) and not as_json:
        typer.echo(
            "legacy: paired without a secret, so a relay that carried the invite may have used it; bhumi-v1 and none "
            f"let a relay write requests too. Pair anew with `{program} bhumi invite`",
            err=True,
        )


def unpair(peer: PeerArgument, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Forget a peer: it can reach this identity no more, nor this identity the peer, until one invites the other again.

    A device that listens revokes the peer's permissions at its relay within a second.

    Example: waystation bhumi unpair bob
    """
    with _changed(home, peer, "unpaired", as_json=as_json) as (state, known):
        state.unpair(known.identity)


def block(peer: PeerArgument, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Take no request of a peer, and let it use no invite, until it is unblocked.

    Example: waystation bhumi block bob
    """
    with _changed(home, peer, "blocked", as_json=as_json) as (state, known):
        state.block(known.identity)


def unblock(peer: PeerArgument, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Take the requests of a blocked peer again.

    Example: waystation bhumi unblock bob
    """
    with _changed(home, peer, "unblocked", as_json=as_json) as (state, known):
        state.unblock(known.identity)


def check_existing(home: Path) -> None:
    """Raise LocalError unless there is an identity in a folder."""
    if not (home / "node.key").exists():
        program = shlex.join(own_program())
        raise LocalError(f"there is no identity in {home}; `{program} bhumi listen`, invite and accept make one")


@contextmanager
def _opened(home: Path) -> Iterator[BhumiState]:
    state = BhumiState(home)
    try:
        yield state
    finally:
        state.close()


@contextmanager
def _changed(home: Path, name: str, done: str, *, as_json: bool) -> Iterator[tuple[BhumiState, PeerRecord]]:
    """Give a folder and the peer of a name; say what was done to it afterwards."""
    check_existing(home)
    with _opened(home) as state:
        known = state.find_peer(name)
        yield state, known
    id52 = encode_id52(known.identity)
    if as_json:
        print_json({"status": done, "peer": id52, "alias": known.alias})
    else:
        typer.echo(f"{done} {known.name} ({id52})")


def _where(state: BhumiState, given: list[str] | None, ca: Path | None) -> tuple[list[str], bytes]:
    """Return the relays of an invitation and the SHA-256 of their authority."""
    place, authority = state.own_place()
    place = place or state.place_of(state.identity)  # what earlier versions kept
    named = given or ([place] if place else seed_relays(state.home)) or [DEFAULT_RELAY]
    relays = [str(RelayUrl.parse(text)) for text in named]
    if ca is None and authority and relays == [place]:
        return relays, authority
    file = ca_or_local(ca)
    if file is None or not any(relay.startswith("tls://") for relay in relays):
        return relays, b""
    found = authority_of(client_context(file))
    if not found:
        typer.echo(
            f"waystation: {file} does not have exactly one authority of its own, so the token names none, and the "
            "other side needs --ca",
            err=True,
        )
    return relays, found


def _role(text: str | None) -> frozenset[str] | None:
    """Return what --allow says; None for everything."""
    if text is None or text == _EVERYTHING:
        return None
    return frozenset(name for name in (part.strip() for part in text.split(",")) if name)


def span_seconds(text: str) -> int:
    """Return the seconds of a span such as 7d; 0 for never."""
    if text == "never":
        return 0
    found = _SPAN.fullmatch(text)
    if found is None or not int(found[1]):
        raise LocalError(f"--expires is a time such as 30min, 12h or 7d, or never; not {text!r}")
    return int(found[1]) * _SECONDS[found[2]]


def _document(each: OpenInvite, *, cancelled: bool) -> dict[str, object]:
    return {
        "invite": each.name,
        "alias": each.alias,
        "created": int(each.created_s),
        "expires": each.expires_s or None,
        "allow": None if each.allow is None else sorted(each.allow),
        "legacy": each.is_legacy,
        "cancelled": cancelled,
    }


def _line(each: OpenInvite) -> str:
    left_s = int(each.expires_s - time.time())
    left = "never ends" if not each.expires_s else f"ends in {left_s // 86_400} d {left_s % 86_400 // 3_600} h"
    return f"{each.alias or '-':<16} {each.name}  {left}{_marks(each.allow, each.is_legacy)}"


def _peer_document(peer: PeerRecord) -> dict[str, object]:
    return {
        "peer": encode_id52(peer.identity),
        "alias": peer.alias,
        "url": peer.url,
        "e2e": peer.dialect.value,
        "rights": peer.rights,
        "issued": peer.issued,
        "legacy": peer.is_legacy,
        "allow": None if peer.allow is None else sorted(peer.allow),
        "blocked": peer.is_blocked,
    }


def _peer_line(peer: PeerRecord) -> str:
    counted = f"{peer.rights} to send, {peer.issued} given out"
    blocked = "  blocked" if peer.is_blocked else ""
    marks = _marks(peer.allow, peer.is_legacy) + blocked
    return (
        f"{peer.alias or '-':<16} {encode_id52(peer.identity)}  {peer.dialect.value:<8}  {counted}  {peer.url}{marks}"
    )


def _marks(allow: frozenset[str] | None, is_legacy: bool) -> str:
    role = "" if allow is None else f"  may send {', '.join(sorted(allow)) or 'nothing'}"
    return role + ("  legacy" if is_legacy else "")
