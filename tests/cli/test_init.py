"""Laws of ``waystation init``."""

import json

import pytest
from cryptography import x509
from typer.testing import CliRunner

from waystation.cli import app
from waystation.core.ids import decode_id52
from waystation.crypto.certificates import read_certificate

RUNNER = CliRunner()


def _init(home, *more):
    return RUNNER.invoke(app, ["init", "--home", str(home), *more])


def test_init_makes_a_home_and_tells_what_to_type_next(tmp_path):
    """Every file made is named, and the last line is a command."""
    home = tmp_path / "home"
    result = _init(home)

    assert result.exit_code == 0
    assert all(
        f"made   {home / name}\n" in result.stdout for name in ("node.key", "tls/ca.key", "tls/cert.pem", "tls/key.pem")
    )
    assert result.stdout.endswith(f"next   waystation serve --home {home}\n")


def test_init_again_keeps_the_key(tmp_path):
    """A second init makes nothing and shows the same identity."""
    first = json.loads(_init(tmp_path / "home", "--json").stdout)
    second = json.loads(_init(tmp_path / "home", "--json").stdout)

    assert len(first["made"]) == 8
    assert second == first | {"made": []}
    assert "has everything already" in _init(tmp_path / "home").stdout


def test_json_names_one_key_in_three_spellings(tmp_path):
    """hex, id52 and DID belong to the same key."""
    document = json.loads(_init(tmp_path / "home", "--json").stdout)

    assert decode_id52(document["id52"]).hex() == document["public_key"]
    assert document["did"].startswith("did:strata:z6Mk")


def test_home_may_come_from_the_configuration(tmp_path):
    """Both init and serve agree about where the home is, and the next command says how."""
    path = tmp_path / "node.toml"
    path.write_text(f'[node]\nhome = "{tmp_path / "there"}"\n')
    result = RUNNER.invoke(app, ["init", "--config", str(path)])

    assert result.exit_code == 0
    assert (tmp_path / "there" / "node.key").exists()
    assert result.stdout.endswith(f"next   waystation serve --config {path}\n")


@pytest.mark.parametrize(("more", "code"), [(["--set", "node.nmae=x"], 3), ([], 1)])
def test_refusals_are_sentences(tmp_path, more, code):
    """A bad setting exits 3, a home that cannot be made exits 1."""
    (tmp_path / "file").write_text("")
    result = _init(tmp_path / "file" / "home", *more)

    assert result.exit_code == code
    assert result.stderr.startswith("waystation: ")


def test_given_names_are_in_the_certificate(tmp_path):
    """A client that dials the address or the name can check it."""
    _init(tmp_path / "home", "--name", "192.0.2.10", "--name", "relay.example.org")
    leaf = x509.load_pem_x509_certificate((tmp_path / "home" / "tls" / "cert.pem").read_bytes())
    held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert {"localhost", "relay.example.org"} <= set(held.get_values_for_type(x509.DNSName))
    assert "192.0.2.10" in map(str, held.get_values_for_type(x509.IPAddress))


def _held(home):
    """Return the names in the home's certificate."""
    return read_certificate((home / "tls" / "cert.pem").read_bytes()).names


def test_names_are_added_by_the_same_authority(tmp_path):
    """Clients keep their ca.pem, the names from before stay, and the note says who notices."""
    home = tmp_path / "home"
    _init(home, "--name", "192.0.2.10")
    before = [(home / "tls" / name).read_bytes() for name in ("ca.pem", "ca.key", "key.pem")]
    result = _init(home, "--name", "relay.example.org", "--name", "192.0.2.10")
    again = _init(home, "--name", "relay.example.org")

    assert {"localhost", "192.0.2.10", "relay.example.org"} <= set(_held(home))
    assert [(home / "tls" / name).read_bytes() for name in ("ca.pem", "ca.key", "key.pem")] == before
    assert "note   the certificate is for relay.example.org too; clients keep their ca.pem" in result.stdout
    assert "note   the certificate has these names already" in again.stdout


def test_names_for_a_certificate_that_nobody_is_shown(tmp_path):
    """With a certificate of one's own the names belong in that one."""
    own = ["--set", f"node.cert={tmp_path / 'own.crt'}", "--set", f"node.key={tmp_path / 'own.key'}"]
    result = _init(tmp_path / "home", "--name", "relay.example.org", *own)

    assert f"note   node.cert names {tmp_path / 'own.crt'}, so listeners do not show" in result.stdout


def test_name_that_no_certificate_can_hold_changes_nothing(tmp_path):
    """It is refused before anything is signed."""
    home = tmp_path / "home"
    _init(home)
    before = (home / "tls" / "cert.pem").read_bytes()
    result = _init(home, "--name", "not a name")

    assert result.exit_code == 2
    assert (home / "tls" / "cert.pem").read_bytes() == before


def test_home_without_the_key_of_its_authority_says_how_to_have_names(tmp_path):
    """The certificate stays, and the note says how to have another."""
    home = tmp_path / "home"
    _init(home)
    (home / "tls" / "ca.key").unlink()
    before = (home / "tls" / "cert.pem").read_bytes()
    result = _init(home, "--name", "192.0.2.10")

    assert (result.exit_code, (home / "tls" / "cert.pem").read_bytes()) == (0, before)
    assert "note   the certificate stays as it is" in result.stdout
    assert f"move {home / 'tls'} away and run this again" in result.stdout
