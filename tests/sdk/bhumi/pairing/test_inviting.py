import asyncio
import datetime
import hashlib
import ssl
from dataclasses import replace

import pytest

from tests.sdk.build import RunningDevice, echo
from waystation.core.errors import HostError, LocalError
from waystation.crypto.certificates import make_local_certificates
from waystation.protocols.bhumi.payload.invite import decode_invite
from waystation.sdk.bhumi.pairing.inviting import authority_of, check_end, home_context, invitation, learn_authority
from waystation.sdk.bhumi.state import BhumiState
from waystation.sdk.errors import InviteRefusedError, RelayUnreachableError
from waystation.transport.dial import RelayUrl, dial
from waystation.transport.tls import client_context, server_context

NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def state(tmp_path):
    opened = BhumiState(tmp_path / "home")
    yield opened
    opened.close()


@pytest.fixture
def made():
    """Return an authority and the certificate of a relay."""
    return make_local_certificates(["127.0.0.1"], NOW)


def der_of(made):
    """Return an authority in DER."""
    return ssl.PEM_cert_to_DER_cert(made.ca_pem.decode())


class TlsRelay:
    """A TLS listener that shows a chain, and keeps what anybody says."""

    def __init__(self, tmp_path, made, *, with_authority=True):
        (tmp_path / "chain.pem").write_bytes(made.cert_pem + (made.ca_pem if with_authority else b""))
        (tmp_path / "key.pem").write_bytes(made.key_pem)
        self._context = server_context(tmp_path / "chain.pem", tmp_path / "key.pem")
        self.said = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.url = f"tls://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        try:
            self.said.append(await reader.read(100))
        except OSError:
            self.said.append(b"")
        writer.close()


class Sink:
    """Takes whatever a pipe reports."""

    def __getattr__(self, _name):
        return lambda *_: None


def test_invitation_names_relays_and_authority(state, made):
    """The text has everything; the authority is left out where no relay is tls, and relays beyond eight are cut."""
    fingerprint = hashlib.sha256(der_of(made)).digest()
    invite = decode_invite(
        invitation(state, "bob", ["tls://a:1", "tls://a:1", "tcp://b:2"], fingerprint, allow={"led"})
    )
    plain = decode_invite(invitation(state, "bob", ["tcp://b:2"], fingerprint))
    many = decode_invite(invitation(state, "bob", [f"tls://a:{number}" for number in range(1, 12)], b""))

    assert (invite.relays, invite.authority) == (("tls://a:1", "tcp://b:2"), fingerprint)
    assert (plain.authority, len(many.relays)) == (b"", 8)
    assert state.grant_of(invite.preimage).allow == {"led"}


def test_address_that_is_none_leaves_no_invite(state):
    """What cannot be written into the text is refused before an invite is made."""
    with pytest.raises(LocalError, match="no relay's address"):
        invitation(state, "bob", ["http://x"], b"")

    assert state.invites() == []


def test_authority_of_a_context(tmp_path, made):
    """The one authority that a program adds is named; none, several, and the system's are not."""
    (tmp_path / "one.pem").write_bytes(made.ca_pem)
    (tmp_path / "two.pem").write_bytes(made.ca_pem + make_local_certificates(["x"], NOW).ca_pem)

    assert authority_of(client_context(tmp_path / "one.pem")) == hashlib.sha256(der_of(made)).digest()
    assert authority_of(client_context(tmp_path / "two.pem")) == b""
    assert authority_of(client_context()) == authority_of(None) == b""


def test_authority_is_found_and_kept(tmp_path, state, made):
    """The relay shows the authority that the token names: it is kept once, and verifies the next connection."""

    async def scenario():
        async with TlsRelay(tmp_path, made) as relay:
            fingerprint = hashlib.sha256(der_of(made)).digest()
            invite = decode_invite(invitation(state, "", [relay.url], fingerprint))
            found = [await learn_authority(state, invite, 5.0) for _ in range(2)]
            pipe = await dial(RelayUrl.parse(relay.url), Sink(), home_context(state), 5.0)
            pipe.abort()
            return found, set(relay.said)

    found, said = asyncio.run(scenario())

    assert found == [der_of(made), None]
    assert said <= {b""}
    assert state.authorities() == [der_of(made)]


@pytest.mark.parametrize("case", ["another authority", "no authority in the chain"])
def test_wrong_authority_is_refused(tmp_path, state, made, case):
    """A relay that shows something else is refused with a sentence; nothing is kept, and nothing was said to it."""

    async def scenario():
        fingerprint = hashlib.sha256(der_of(make_local_certificates(["127.0.0.1"], NOW))).digest()
        if case != "another authority":
            fingerprint = hashlib.sha256(der_of(made)).digest()
        async with TlsRelay(tmp_path, made, with_authority=case == "another authority") as relay:
            invite = decode_invite(invitation(state, "", [relay.url], fingerprint))
            with pytest.raises(RelayUnreachableError, match="does not show the authority that the invitation names"):
                await learn_authority(state, invite, 5.0)
            with pytest.raises(HostError):
                await dial(RelayUrl.parse(relay.url), Sink(), home_context(state), 5.0)
            return relay.said

    assert set(asyncio.run(scenario())) <= {b""}
    assert state.authorities() == []


def test_relay_that_is_not_there_is_named(state):
    """When no relay of the token can be reached, the reason of each is said."""
    invite = decode_invite(invitation(state, "", ["tls://127.0.0.1:1", "tls://127.0.0.1:2"], bytes(32)))

    with pytest.raises(RelayUnreachableError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
        asyncio.run(learn_authority(state, invite, 5.0))


def test_nothing_is_asked_without_need(state):
    """A token without an authority, or without a tls relay, needs no connection."""
    plain = decode_invite(invitation(state, "", ["tcp://127.0.0.1:1"], bytes(32)))
    public = decode_invite(invitation(state, "", ["tls://127.0.0.1:1"], b""))

    assert asyncio.run(learn_authority(state, plain, 5.0)) is asyncio.run(learn_authority(state, public, 5.0)) is None
    assert home_context(state) is None


def test_ended_invitation_is_refused_at_home(state):
    """Who accepts too late is told so, with the time, and nothing is sent."""
    invite = decode_invite(invitation(state, "", [], b""))

    check_end(invite)
    check_end(replace(invite, expires_s=0))
    with pytest.raises(InviteRefusedError, match="the invitation ended on 2001-09-09 at 01:46 UTC"):
        check_end(replace(invite, expires_s=1_000_000_000))


def test_device_invites(tmp_path):
    """A device makes the whole text itself, with its relays."""

    async def scenario():
        async with RunningDevice(tmp_path / "alice", ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], echo) as alice:
            invite = decode_invite(alice.device.invite("bob", expires_s=60, allow={"led"}))
            return invite, alice.state.invites()

    invite, (waiting,) = asyncio.run(scenario())

    assert invite.relays == ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    assert (waiting.alias, waiting.allow, waiting.expires_s) == ("bob", {"led"}, invite.expires_s)
