from waystation.cli.strata.show import ConnectionNews
from waystation.sdk.strata import Connected, Disconnected

URL = "wss://relay.example/strata"


def test_loss_and_return_are_said_once(capfd):
    """A relay that was there from the start is no news; each further attempt is none, either."""
    news = ConnectionNews()
    lost = Disconnected("r", f"the connection to {URL} ended", 5.0, 0.5)
    for event in (Connected("r", 1.0), lost, lost._replace(up_s=None), Connected("r", 1.0), Connected("r", 1.0)):
        news.show(URL, event)

    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"waystation: the connection to {URL} ended; trying again",
        f"waystation: connected to {URL}",
    ]
