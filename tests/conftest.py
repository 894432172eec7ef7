"""How the suite is spread over processes."""

import pytest

SPARK = "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each file into one process, for its fixtures' sake, and all Spark into one, since a JVM is dear.

    Spark goes first: what takes longest must not begin when the rest is nearly done.
    """
    items.sort(key=lambda item: item.get_closest_marker(SPARK) is None)
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(SPARK if item.get_closest_marker(SPARK) else file))
