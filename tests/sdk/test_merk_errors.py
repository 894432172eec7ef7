"""Laws of sdk.merk_errors."""

from waystation.core.errors import HostError, LocalError, RemoteError
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.merk_errors import (
    FileTooLargeError,
    HostileRelayError,
    KeyChangedError,
    KeyDiffersError,
    KeyUnknownError,
)


def test_each_error_says_whose_fault_it_is():
    """Whoever catches a branch of the tree gets what belongs to it."""
    assert issubclass(KeyUnknownError, RemoteError) and issubclass(KeyChangedError, RemoteError)
    assert issubclass(FileTooLargeError, LocalError)
    assert issubclass(HostileRelayError, RelayUnreachableError) and issubclass(HostileRelayError, HostError)


def test_changed_key_is_told_loudly_and_whole():
    """The sentence begins with a warning and names recipient and both keys, which the error also carries."""
    error = KeyChangedError(b"t" * 32, b"p" * 32, b"n" * 32)

    assert str(error).startswith("WARNING: " + (b"t" * 32).hex())
    assert (b"p" * 32).hex() in str(error) and (b"n" * 32).hex() in str(error)
    assert (error.target, error.pinned, error.told) == (b"t" * 32, b"p" * 32, b"n" * 32)


def test_unknown_key_names_the_recipient():
    """Who it is about stands in the sentence and on the error."""
    error = KeyUnknownError(b"t" * 32)

    assert (b"t" * 32).hex() in str(error)
    assert error.target == b"t" * 32
    assert "--key" in str(error) and "--mode signed" in str(error)


def test_wrong_key_is_the_givers_fault_and_the_way_out_is_named():
    """Nobody warns of the recipient; who handles changed keys handles this one too."""
    error = KeyDiffersError(b"t" * 32, b"g" * 32, b"n" * 32)

    assert str(error).startswith("the key given with --key differs from the one its owner has published")
    assert "--accept-new-key" in str(error)
    assert all(key.hex() in str(error) for key in (b"t" * 32, b"g" * 32, b"n" * 32))
    assert (error.target, error.pinned, error.told) == (b"t" * 32, b"g" * 32, b"n" * 32)
    assert isinstance(error, KeyChangedError)
