"""Laws of transport.tls: which versions are spoken, and how a certificate is replaced."""

import asyncio
import datetime
import hashlib
import ssl

import pytest
from cryptography.hazmat.primitives import serialization

from waystation.core.errors import HostError, LocalError
from waystation.crypto.certificates import make_local_certificates
from waystation.transport.listen import Listener
from waystation.transport.tls import (
    KeyFileError,
    authority_der,
    client_context,
    leaf_sha256,
    read_pems,
    reload_certificate,
    server_context,
)


class Echo:
    """Says back what it hears."""

    def connected(self, pipe):
        pass

    def received(self, pipe, data):
        pipe.write([data])

    def congested(self, pipe):
        pass

    def drained(self, pipe):
        pass

    def lost(self, pipe, error):
        pass


def make(folder, names=("localhost",)):
    """Write fresh certificates into ``folder`` and return it."""
    folder.mkdir(exist_ok=True)
    made = make_local_certificates(list(names), datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (folder / name).write_bytes(pem)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """One authority with its certificate."""
    return make(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """Another authority with its certificate."""
    return make(tmp_path_factory.mktemp("second"))


async def echo_once(reader, writer, text):
    """Say ``text`` and return what comes back."""
    writer.write(text)
    async with asyncio.timeout(20):
        return await reader.readexactly(len(text))


async def dialled(port, context):
    """Return the streams of a TLS connection to localhost."""
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")


def certificate_of(writer):
    """Return the DER certificate that the other side showed."""
    return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


def der_of(folder):
    """Return the leaf certificate in a folder, as it stands on the wire."""
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert((folder / "cert").read_text().partition(end)[0] + end)


async def listening(context):
    """Return an echoing listener on a free port."""
    listener = Listener(Echo(), lambda _: True, lambda _: None, context)
    await listener.open("127.0.0.1", 0)
    return listener


@pytest.mark.parametrize(
    ("version", "name"), [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]
)
def test_both_versions_are_spoken_with_the_p256_certificate(first, version, name):
    """A client that speaks only 1.2 and one that speaks only 1.3 both get through."""

    async def story():
        listener = await listening(server_context(first / "cert", first / "key"))
        client = client_context(first / "ca")
        client.minimum_version = client.maximum_version = version
        reader, writer = await dialled(listener.port, client)
        echoed = await echo_once(reader, writer, b"hello")
        spoken = writer.get_extra_info("ssl_object").version()
        writer.close()
        listener.close()
        return echoed, spoken

    assert asyncio.run(story()) == (b"hello", name)


def test_older_versions_are_refused(first):
    """TLS 1.1 is below what a listener offers."""
    context = server_context(first / "cert", first / "key")

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_COMPRESSION


def test_reload_keeps_peers_and_shows_the_new_certificate(first, second, tmp_path):
    """A connection from before the reload goes on; one from after it sees the new certificate."""

    async def story():
        context = server_context(first / "cert", first / "key")
        listener = await listening(context)
        old_reader, old_writer = await dialled(listener.port, client_context(first / "ca"))
        before = await echo_once(old_reader, old_writer, b"one")
        reload_certificate(context, read_pems(second / "cert", second / "key"))
        after = await echo_once(old_reader, old_writer, b"two")
        new_reader, new_writer = await dialled(listener.port, client_context(second / "ca"))
        new = await echo_once(new_reader, new_writer, b"three")
        shown = certificate_of(old_writer), certificate_of(new_writer)
        with pytest.raises(ssl.SSLCertVerificationError):
            await dialled(listener.port, client_context(first / "ca"))
        old_writer.close()
        new_writer.close()
        listener.close()
        return before, after, new, shown

    before, after, new, shown = asyncio.run(story())

    assert (before, after, new) == (b"one", b"two", b"three")
    assert shown == (der_of(first), der_of(second))


def test_pair_that_was_read_is_shown_whatever_the_files_hold_by_then(first, second, tmp_path):
    """Who renews the files between reading and showing cannot leave one listener with the old and one with the new."""
    cert, key = tmp_path / "moving.crt", tmp_path / "moving.key"
    cert.write_bytes((second / "cert").read_bytes())
    key.write_bytes((second / "key").read_bytes())
    pems = read_pems(cert, key)
    cert.write_text("half a certificate")
    key.unlink()

    async def story():
        context = server_context(first / "cert", first / "key")
        reload_certificate(context, pems)
        listener = await listening(context)
        reader, writer = await dialled(listener.port, client_context(second / "ca"))
        echoed = await echo_once(reader, writer, b"hello")
        shown = certificate_of(writer)
        writer.close()
        listener.close()
        return echoed, shown

    assert asyncio.run(story()) == (b"hello", der_of(second))


def test_key_is_in_no_description_of_its_pair(first):
    """A log line or a traceback with a pair shows nothing of it."""
    assert "PRIVATE" not in repr(read_pems(first / "cert", first / "key"))


def test_bad_reload_leaves_the_old_pair_in_force(first, second):
    """A key that does not belong to its certificate is refused before anything is changed."""

    async def story():
        context = server_context(first / "cert", first / "key")
        listener = await listening(context)
        with pytest.raises(HostError, match="cannot use the certificate"):
            reload_certificate(context, read_pems(second / "cert", first / "key"))
        reader, writer = await dialled(listener.port, client_context(first / "ca"))
        echoed = await echo_once(reader, writer, b"still")
        writer.close()
        listener.close()
        return echoed

    assert asyncio.run(story()) == b"still"


@pytest.mark.parametrize("broken", ["cert", "key"])
def test_missing_file_is_one_sentence(first, broken):
    """A file that is not there is named with its pair."""
    files = {"cert": first / "cert", "key": first / "key"} | {broken: first / "nowhere"}

    with pytest.raises(HostError, match=r"cannot use the certificate .* with the key .*nowhere|nowhere.* with the key"):
        server_context(files["cert"], files["key"])


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        (b"rubbish", None, "cert holds no certificate in PEM"),
        (
            b"-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n",
            None,
            "the certificate in .*cert is damaged",
        ),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None, "the certificate in .* is damaged"),
        (None, b"rubbish", "key holds no private key in PEM"),
        (b"", b"", "cert holds no certificate in PEM"),
    ],
)
def test_file_with_something_else_is_one_sentence(first, tmp_path, cert, key, words):
    """What a file lacks is said by its name, not in words of OpenSSL or Python."""
    for name, data in (("cert", cert), ("key", key)):
        (tmp_path / name).write_bytes((first / name).read_bytes() if data is None else data)

    with pytest.raises(HostError, match=words) as caught:
        server_context(tmp_path / "cert", tmp_path / "key")
    assert "PEM lib" not in str(caught.value)


def test_exchanged_files_are_noticed(first):
    """A certificate in the place of the key, and the key in its place, is the usual mistake."""
    with pytest.raises(HostError, match="are the two exchanged"):
        server_context(first / "key", first / "cert")


def test_leaf_of_a_file_without_one_is_a_sentence(first):
    """Nothing about substrings."""
    with pytest.raises(HostError, match="holds no certificate in PEM"):
        leaf_sha256(first / "key")


def test_encrypted_key_is_refused_and_nobody_is_asked_for_a_passphrase(first, tmp_path):
    """A server has nobody at its terminal."""
    key = serialization.load_pem_private_key((first / "key").read_bytes(), password=None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "key").write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))

    with pytest.raises(KeyFileError, match=r"has a passphrase.*openssl pkey -in .*key"):
        server_context(first / "cert", tmp_path / "key")


def test_authority_that_is_none_is_one_sentence(first):
    """A file without a certificate is refused as an authority."""
    with pytest.raises(HostError, match=r"cannot use .*key as a certificate authority"):
        client_context(first / "key")


def test_authority_in_der(first, tmp_path):
    """A board's copy of the authority serves a client, too."""
    (tmp_path / "ca.der").write_bytes(authority_der(first / "ca"))

    told = [context.get_ca_certs() for context in (client_context(first / "ca"), client_context(tmp_path / "ca.der"))]

    assert told[0] == told[1]


def test_unverified_context_takes_any_certificate(first):
    """``verify=False`` connects to a relay whose authority nobody knows."""

    async def story():
        listener = await listening(server_context(first / "cert", first / "key"))
        reader, writer = await dialled(listener.port, client_context(verify=False))
        echoed = await echo_once(reader, writer, b"hello")
        writer.close()
        listener.close()
        return echoed

    assert asyncio.run(story()) == b"hello"


def tls13(folder, *protocols):
    """Return a listener's context that speaks nothing older than 1.3."""
    return server_context(folder / "cert", folder / "key", only_tls13=True, protocols=protocols)


@pytest.mark.parametrize(("asked", "agreed"), [(["other", "bsp/1"], "bsp/1"), (["other"], None), ([], None)])
def test_name_of_the_protocol_is_agreed_on_where_it_is_asked_for(first, asked, agreed):
    """Who names ours gets it; who names none, or another, is served all the same."""

    async def story():
        listener = await listening(tls13(first, "bsp/1"))
        reader, writer = await dialled(listener.port, client_context(verify=False, only_tls13=True, protocols=asked))
        echoed = await echo_once(reader, writer, b"hello")
        tls = writer.get_extra_info("ssl_object")
        facts = echoed, tls.selected_alpn_protocol(), tls.version(), tls.session_reused
        writer.close()
        listener.close()
        return facts

    assert asyncio.run(story()) == (b"hello", agreed, "TLSv1.3", False)


def test_context_of_tls_13_refuses_12_on_either_side(first):
    """A 1.2 client is turned away by such a listener, and such a client by a 1.2 listener."""

    async def story(server, client):
        listener = await listening(server)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await dialled(listener.port, client)
        listener.close()

    old_client = client_context(verify=False)
    old_client.maximum_version = ssl.TLSVersion.TLSv1_2
    old_server = server_context(first / "cert", first / "key")
    old_server.maximum_version = ssl.TLSVersion.TLSv1_2

    asyncio.run(story(tls13(first), old_client))
    asyncio.run(story(old_server, client_context(verify=False, only_tls13=True)))
    assert tls13(first).num_tickets == 0


def test_hash_is_that_of_the_leaf(first, tmp_path):
    """The first certificate of a chain counts, as it stands on the wire; text around it does not."""
    chain = tmp_path / "chain"
    chain.write_bytes(b"leaf:\n" + (first / "cert").read_bytes() + (first / "ca").read_bytes())

    assert leaf_sha256(chain) == leaf_sha256(first / "cert") == hashlib.sha256(der_of(first)).digest()


@pytest.mark.parametrize("text", ["", "nothing"])
def test_hash_of_what_is_no_certificate_is_one_sentence(tmp_path, text):
    """A file that is missing or holds something else is named."""
    (tmp_path / "cert").write_text(text)

    with pytest.raises(HostError, match=r"cannot use the certificate .*cert"):
        leaf_sha256(tmp_path / "cert")
    with pytest.raises(HostError, match=r"cannot use the certificate .*nowhere"):
        leaf_sha256(tmp_path / "nowhere")


def test_one_authority_in_either_form(first, tmp_path):
    """A PEM file, with text around it or none, and a DER file give the same certificate in DER."""
    pem = (first / "ca").read_bytes()
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    (tmp_path / "text.pem").write_bytes(b"for people\n" + pem)
    (tmp_path / "ca.der").write_bytes(der)

    assert [authority_der(path) for path in (first / "ca", tmp_path / "text.pem", tmp_path / "ca.der")] == [der] * 3


def test_file_that_is_not_one_authority_is_one_sentence(first, tmp_path):
    """None, two, a broken one and a missing file are told apart."""
    pem = (first / "ca").read_bytes()
    for name, content, sentence in (
        ("two.pem", pem * 2, "holds 2 certificates"),
        ("none.pem", b"hello", "no certificate"),
        ("empty.pem", b"", "no certificate"),
        ("broken.pem", pem[:100], "no certificate"),
        ("odd.pem", pem[:100] + b"\xff" + pem[100:], "no certificate"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LocalError, match=sentence):
            authority_der(tmp_path / name)
    with pytest.raises(HostError, match="cannot read"):
        authority_der(tmp_path / "missing.pem")
