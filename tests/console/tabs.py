"""Tabs that know when they are behind another one.

Playwright keeps each of its own pages visible for ever, so these are opened past it, in a profile that it does not
know; what they are asked goes through the browser's own debugging connection.
"""

import json
from itertools import count

from tests.server.build import until


class Window:
    """A browser window with tabs, one of which is in front."""

    def __init__(self, browser):
        self._session = browser.new_browser_cdp_session()
        self._session.on("Target.receivedMessageFromTarget", self._hear)
        self._context = self._session.send("Target.createBrowserContext")["browserContextId"]
        self._answers = {}
        self._ids = count(1)

    def open(self, address):
        """Open a tab in front of the others; return its name."""
        wanted = {"url": address, "browserContextId": self._context}
        return self._session.send("Target.createTarget", wanted)["targetId"]

    def bring(self, tab):
        """Bring a tab to the front."""
        self._session.send("Target.activateTarget", {"targetId": tab})

    def attach(self, tab):
        """Return a session with a tab."""
        return self._session.send("Target.attachToTarget", {"targetId": tab, "flatten": False})["sessionId"]

    def command(self, session, method, **params):
        """Send a command to a tab and return its result."""
        number = next(self._ids)
        message = json.dumps({"id": number, "method": method, "params": params})
        self._session.send("Target.sendMessageToTarget", {"sessionId": session, "message": message})
        said = until(lambda: self._answer(number), method)
        assert "error" not in said, said
        return said["result"]

    def _answer(self, number):
        if number not in self._answers:
            self._session.send("Browser.getVersion")  # lets Playwright's loop hear what has come
        return self._answers.pop(number, None)

    def _hear(self, event):
        said = json.loads(event["message"])
        if "id" in said:
            self._answers[said["id"]] = said

    def close(self):
        """Close every tab."""
        self._session.send("Target.disposeBrowserContext", {"browserContextId": self._context})
        self._session.detach()


class Tab:
    """A page in a window, and an empty tab that can stand before it."""

    def __init__(self, browser, address):
        self._window = Window(browser)
        self._tab = self._window.open("about:blank")
        self._session = self._window.attach(self._tab)
        self._window.command(self._session, "Page.navigate", url=address)

    def ask(self, expression):
        """Return the value of an expression in the page, awaited."""
        how = {"returnByValue": True, "awaitPromise": True}
        told = self._window.command(self._session, "Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def waits_for(self, expression):
        """Wait until an expression is true in the page."""
        return until(lambda: self.ask(expression), expression)

    def sees(self, text):
        """Wait for a message that came."""
        self.waits_for(f"document.querySelector('#conversations')?.textContent.includes({json.dumps(text)})")

    def connected(self):
        """Wait until the page says so."""
        self.waits_for("document.querySelector('#state')?.dataset.phase === 'ready'")
        return self

    @property
    def key(self):
        """The person's key, as the page shows it."""
        return self.ask("document.querySelector('#key-hex').textContent")

    def go_behind(self):
        """Open another tab before this one."""
        self._window.open("about:blank")
        self.waits_for("document.visibilityState === 'hidden'")

    def freeze(self):
        """Stop the page's clock and scripts, as a phone does with what nobody looks at."""
        self._window.command(self._session, "Page.setWebLifecycleState", state="frozen")

    def return_to_front(self):
        """Wake the page and look at it again."""
        self._window.command(self._session, "Page.setWebLifecycleState", state="active")
        self._window.bring(self._tab)
        self.waits_for("document.visibilityState === 'visible'")

    def close(self):
        """Close the window."""
        self._window.close()
