"""The page over plain HTTP from another machine, where browsers lend no cryptography."""

import pytest
from playwright.sync_api import expect

from tests.console.build import NOBODY, PATIENCE_MS, USUAL, merk_node, page_of

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("public_url", "links"), [("wss://relay.example/merk", 1), ("", 0)])
def test_page_without_cryptography_leads_to_https(chromium, tmp_path, public_url, links):
    """The page says why it makes no keys, and links to the node's own page over https where the node has one."""
    node = merk_node(tmp_path, merk__public_url=public_url).start()
    context = chromium.new_context(**USUAL)
    try:
        page = context.new_page()
        page.goto(page_of(node, "relay.test") + "#to=" + NOBODY)
        expect(page.locator("#notices")).to_contain_text("plain http", timeout=PATIENCE_MS)

        assert page.evaluate("window.isSecureContext") is False
        assert page.locator("#notices a").count() == links
        if links:
            assert page.locator("#notices a").get_attribute("href") == "https://relay.example/#to=" + NOBODY
    finally:
        context.close()
        node.stop()
