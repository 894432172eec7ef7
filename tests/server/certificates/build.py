"""Certificates for tests, and what a TLS listener shows of them."""

import datetime
import socket
import ssl
from urllib.parse import urlsplit

from waystation.crypto.certificates import make_local_certificates
from waystation.server.home import TlsFiles

EVERY_TLS_LISTENER = {
    "bhumi__tls": "127.0.0.1:0",
    "bhumi__upstream_listen": "0.0.0.0:0",
    "bsp__tls": "127.0.0.1:0",
    "bsp__box": "0.0.0.0:0",
    "merk__ws": "127.0.0.1:0",
    "merk__tls": "true",
    "strata__ws": "127.0.0.1:0",
    "strata__tls": "true",
}
SETTINGS = ("bhumi.tls", "bhumi.upstream_listen", "bsp.box", "bsp.tls", "merk.ws", "strata.ws")
"""That name the addresses above."""
LISTENERS = ("bhumi", "bhumi_upstream", "bsp", "bsp_box", "merk", "strata")
"""Their names in the ready line."""


def write_pair(folder, name="relay", names=("relay.example.org", "localhost"), now=None):
    """Write a fresh chain and its key into a folder, one file after the other; return the files."""
    folder.mkdir(exist_ok=True)
    made = make_local_certificates(list(names), now or datetime.datetime.now(datetime.UTC))
    files = TlsFiles(folder / f"{name}.crt", folder / f"{name}.key")
    files.cert.write_bytes(made.cert_pem + made.ca_pem)
    files.key.write_bytes(made.key_pem)
    files.key.chmod(0o640)
    return files


def leaf_der(cert):
    """Return the first certificate of a PEM file as it goes over the wire."""
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(cert.read_text().partition(end)[0] + end)


def shown_at(url):
    """Return what a listener shows to whoever takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", urlsplit(url).port), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True)
