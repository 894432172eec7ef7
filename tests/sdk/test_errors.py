"""Laws of sdk.errors: one tree, drawn once, and each sentence says what is to be done."""

import inspect
import pkgutil
import re
from importlib import import_module

import pytest

import waystation.sdk
from waystation.core.errors import HostError, LocalError, RemoteError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.lprp.client.events import RequestOutcome
from waystation.sdk import errors
from waystation.sdk.errors import (
    KeyChangedError,
    KeyDiffersError,
    KeyUnknownError,
    LeaseRefusedError,
    NotCarriedError,
    RequestRefusedError,
    WhitelistFailedError,
)


def test_tree_is_the_one_in_the_docstring():
    """Each error stands under the class that the module's drawing shows, and no error is missing there."""
    drawn, above = {}, {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ([ │├└─]*)(\w+Error)\b", line)
        if found:
            depth = len(found[1]) // 4
            above[depth] = found[2]
            drawn[found[2]] = above.get(depth - 1)
    actual = {name: getattr(errors, name).__base__.__name__ for name in errors.__all__}

    assert drawn == actual | {"WaystationError": None}


def test_no_other_module_of_the_sdk_has_errors_of_its_own():
    """Whoever reads ``waystation.errors`` has read all that a client raises on purpose."""
    names = [each.name for each in pkgutil.walk_packages(waystation.sdk.__path__, "waystation.sdk.")]
    elsewhere = {
        f"{name}.{each.__name__}"
        for name in names
        for _, each in inspect.getmembers(import_module(name), inspect.isclass)
        if issubclass(each, WaystationError) and each.__module__.startswith("waystation.sdk.")
        if each.__module__ != errors.__name__
    }

    assert elsewhere == set()


def test_three_branches_say_who_has_to_act():
    """Each error is the caller's, the other side's, or the machine's, and never two of them."""
    for name in set(errors.__all__) - {"WaystationError"}:
        assert sum(issubclass(getattr(errors, name), each) for each in (LocalError, RemoteError, HostError)) == 1


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (RequestOutcome.REFUSED, "closed to newcomers"),
        (RequestOutcome.REFUSED, "has a list and this key is not on it"),
        (RequestOutcome.WORK_FAILED, "more work"),
        (RequestOutcome.UNANSWERED, "no answer"),
    ],
)
def test_lease_refused_says_why(outcome, said):
    """The sentence names the host and the reason; the outcome is an attribute."""
    error = LeaseRefusedError("lprp://x", outcome)

    assert said in str(error) and "lprp://x" in str(error)
    assert error.outcome is outcome


def test_whitelist_failed_says_that_the_wish_is_kept():
    """Nothing that was wished is lost."""
    error = WhitelistFailedError("lprp://x", RequestOutcome.UNANSWERED)

    assert "unanswered" in str(error) and "kept" in str(error)
    assert error.outcome is RequestOutcome.UNANSWERED


def test_changed_key_is_told_loudly_and_whole():
    """The sentence begins with a warning and names recipient and both keys, which the error also carries."""
    error = KeyChangedError(b"t" * 32, b"p" * 32, b"n" * 32)

    assert str(error).startswith("WARNING: " + (b"t" * 32).hex())
    assert (b"p" * 32).hex() in str(error) and (b"n" * 32).hex() in str(error)
    assert (error.target, error.pinned, error.published) == (b"t" * 32, b"p" * 32, b"n" * 32)


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
    assert (error.target, error.pinned, error.published) == (b"t" * 32, b"g" * 32, b"n" * 32)
    assert isinstance(error, KeyChangedError)


def test_refusal_is_one_sentence_with_its_numbers():
    """Code, detail and wait are attributes; what the relay says cannot steer a terminal."""
    error = RequestRefusedError("wss://a", "rate_limited", "publish", 7, "slow\x1b[2J down")

    assert str(error) == "wss://a refused: rate_limited (publish): slow[2J down; ask again in 7 s"
    assert (error.code, error.detail, error.retry_after_s) == ("rate_limited", "publish", 7)


def test_error_names_relay_peer_and_reason():
    """The sentence says which way, whom and why, and the number is kept as an attribute."""
    error = NotCarriedError("MERK", PublicKey(b"\xab" * 32), "nobody is there")

    assert isinstance(error, RemoteError)
    assert str(error) == "MERK has not carried a bundle to abababab: nobody is there"
    assert error.peer == b"\xab" * 32
