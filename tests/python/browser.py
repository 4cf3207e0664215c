"""A page in Chromium, by the protocol of WebDriver (https://www.w3.org/TR/webdriver2/) and nothing but its driver."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Why no page can be opened here; nothing if one can.
MISSING = "" if shutil.which("chromedriver") else "Debian's package chromium-driver is not installed"

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of a reference to an element, a constant of the protocol

# As root, and with no network to ask for updates.
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)


class Page:
    """A file that is open in a browser."""

    def __init__(self, session: str) -> None:
        """`session` is the address of one that was begun."""
        self._session = session

    def open(self, path: Path) -> None:
        """Opens a file, and forgets what was typed in another."""
        _ask(f"{self._session}/url", {"url": path.resolve().as_uri()})

    def click(self, selector: str) -> None:
        """Clicks on the element, which has to be where a click reaches it."""
        _ask(f"{self._session}/element/{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Types a text where the element is."""
        _ask(f"{self._session}/element/{self._element(selector)}/value", {"text": text})

    def value(self, script: str) -> Any:
        """What a JavaScript expression gives in the page."""
        return _ask(f"{self._session}/execute/sync", {"script": f"return {script}", "args": []})

    def _element(self, selector: str) -> str:
        found: dict[str, str] = _ask(f"{self._session}/element", {"using": "css selector", "value": selector})
        return found[_ELEMENT]


@contextlib.contextmanager
def browser(profile: Path, *, width: int | None = None) -> Iterator[Page]:
    """Chromium with a profile of its own; of a phone that is so many pixels wide, if a `width` is given."""
    options: dict[str, Any] = {"args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
    if width is not None:
        options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": 2 * width, "pixelRatio": 2.0}}
    with _driver() as address:
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        session = f"{address}/session/{_ask(f'{address}/session', wanted)['sessionId']}"
        try:
            yield Page(session)
        finally:
            _ask(session, None, method="DELETE")


@contextlib.contextmanager
def _driver() -> Iterator[str]:
    """The address of a driver at a port that was free."""
    process = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        ports = (re.search(r"started successfully on port (\d+)", line) for line in process.stdout)
        yield f"http://127.0.0.1:{next(port[1] for port in ports if port)}"
    finally:
        process.terminate()
        process.communicate()


def _ask(address: str, body: object, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]
