"""One browser, one pair of nodes and two people for each module that asks for them."""

import pytest
from playwright.sync_api import sync_playwright

from tests.console.build import Room, launch, linked_nodes


@pytest.fixture(scope="module")
def chromium():
    """A browser; ended with the module, because Playwright's loop keeps others from running one."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two linked nodes."""
    with linked_nodes(tmp_path_factory.mktemp("nodes")) as pair:
        yield pair


@pytest.fixture(scope="module")
def house(chromium, nodes):
    """A room with Alice at the first node and Bob at the second."""
    room = Room(chromium)
    yield room, room.person(nodes[0]), room.person(nodes[1])
    room.leave(0)


@pytest.fixture
def room(house):
    """Browser profiles; a violation of the policy, an error or a warning in any page fails the test."""
    room = house[0]
    yield room
    room.leave(2)
    seen, room.problems = room.problems, []
    assert seen == []


@pytest.fixture
def alice(room, house):
    """Somebody at the first node, with an empty form."""
    return house[1].starts_over()


@pytest.fixture
def bob(room, house):
    """Somebody at the second node, with an empty form."""
    return house[2].starts_over()
