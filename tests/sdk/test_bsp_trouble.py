"""What a carrier says when something goes wrong."""

from waystation.core.errors import RemoteError
from waystation.core.ids import PublicKey
from waystation.sdk.bsp_trouble import NotCarriedError


def test_error_names_relay_peer_and_reason():
    """The sentence says which way, whom and why, and the number is kept as an attribute."""
    error = NotCarriedError("MERK", PublicKey(b"\xab" * 32), "nobody is there")

    assert isinstance(error, RemoteError)
    assert str(error) == "MERK has not carried a bundle to abababab: nobody is there"
    assert error.peer == b"\xab" * 32
