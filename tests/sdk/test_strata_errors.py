from waystation.core.errors import RemoteError
from waystation.sdk.strata_errors import OutcomeUnknownError, RelayLiedError, RequestRefusedError


def test_refusal_is_one_sentence_with_its_numbers():
    """Code, detail and wait are attributes; what the relay says cannot steer a terminal."""
    error = RequestRefusedError("wss://a", "rate_limited", "publish", 7, "slow\x1b[2J down")

    assert str(error) == "wss://a refused: rate_limited (publish): slow[2J down; ask again in 7 s"
    assert (error.code, error.detail, error.retry_after_s) == ("rate_limited", "publish", 7)


def test_tree_is_as_drawn():
    """All three are the other side's doing."""
    assert all(issubclass(each, RemoteError) for each in (OutcomeUnknownError, RelayLiedError, RequestRefusedError))
