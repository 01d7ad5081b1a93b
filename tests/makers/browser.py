"""Chromium without a window, spoken to over a pipe by its devtools protocol: loads pages as they are."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any  # a protocol of JSON

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_CHROMIUM = "no chromium is installed"

OVERLAPS = """
(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const words = [];
  for (let node; (node = walker.nextNode()); ) {
    if (!node.textContent.trim() || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const within = node.parentElement.closest('.wide')?.getBoundingClientRect();
    for (const {left, top, right, bottom} of range.getClientRects()) {
      const box = {left, right, top, bottom};
      if (within) box.left = Math.max(left, within.left), box.right = Math.min(right, within.right);
      if (box.right - box.left > 1 && bottom - top > 1) words.push([node.textContent.trim(), box]);
    }
  }
  for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) {
    const [a, b] = [words[i][1], words[j][1]];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 0.3 * Math.min(a.bottom - a.top, b.bottom - b.top))
      found.push(words[i][0] + ' | ' + words[j][0]);
  }
  return found;
})()
"""
"""Pairs of texts whose boxes cover each other, as far as a table that scrolls shows them."""
OUTSIDE = """
(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    if (!node.textContent.trim() || node.parentElement.closest('.wide')) continue;
    if (!node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects())
      if (box.width > 1 && (box.left < -0.5 || box.right > document.documentElement.clientWidth + 0.5))
        found.push(node.textContent.trim());
  }
  return found;
})()
"""
"""Texts that stick out of the page, other than in a table that scrolls."""


class Browser:
    """A tab of a browser. What a page writes to the console, and what it is refused, is kept."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out = os.fdopen(to_browser, "wb", buffering=0)
        self._in = os.fdopen(from_browser, "rb")
        self._number = 0
        self._session = ""
        self._loaded = False
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, page: Path, width: int, *, is_dark: bool = False, height: int = 900) -> None:
        """Load a file at a width in pixels; returns when it is drawn."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self._call("Page.navigate", url=page.absolute().as_uri())
        while not self._loaded:
            self._read()

    def evaluate(self, script: str) -> Any:
        """The value of a script, which the page's policy does not bind."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, milliseconds: float) -> None:
        """Let the page run for so long by its own clock."""
        self._call(
            "Runtime.evaluate",
            expression=f"new Promise(r => setTimeout(r, {milliseconds}))",
            awaitPromise=True,
        )

    def picture(self, *, is_whole: bool = True) -> bytes:
        """The page as PNG."""
        found = self._call("Page.captureScreenshot", captureBeyondViewport=is_whole, **self._clip(is_whole))
        return base64.b64decode(found["data"])

    def _clip(self, is_whole: bool) -> dict[str, Any]:
        if not is_whole:
            return {}
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _call(self, method: str, **arguments: Any) -> Any:
        self._number += 1
        number = self._number
        of_session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": arguments, **of_session}
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        taken = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser ended"
            taken += byte
        message: dict[str, Any] = json.loads(taken)
        method, values = message.get("method", ""), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(one.get("value")) for one in values["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(values["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(values["exceptionDetails"]["text"])
        return message


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    assert CHROMIUM, NO_CHROMIUM
    to_browser, from_us = os.pipe()[::-1], os.pipe()
    with TemporaryDirectory(prefix="gputui-", ignore_cleanup_errors=True) as profile:
        words = [
            CHROMIUM,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        write, read = to_browser
        answers, answered = from_us

        def onto_3_and_4() -> None:
            first, second = os.dup(read), os.dup(answered)
            os.dup2(first, 3)
            os.dup2(second, 4)

        process = subprocess.Popen(
            words,
            preexec_fn=onto_3_and_4,
            close_fds=False,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(answered)
        try:
            yield Browser(write, answers)
        finally:
            process.terminate()
            process.wait()
