"""A small client of Chromium's DevTools protocol: open a page, ask it, look at it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
from matplotlib.image import imread
from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
WHY = "no Chromium: apt-get install chromium, or another package that has one of " + ", ".join(
    NAMES
)
PATIENCE = 60.0
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-port=0 "
    "--no-first-run --disable-background-networking --disable-extensions --mute-audio "
    "--hide-scrollbars --force-device-scale-factor=1"
)


class Page:
    """One tab. ``errors`` are those of its console, ``asked`` all addresses that it fetched."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Any) -> None:
        self._loop, self._socket, self._number = loop, socket, 0
        self.errors: list[str] = []
        self.asked: list[str] = []

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method, and take what comes until its answer does."""
        self._number += 1
        number = self._number
        message = json.dumps({"id": number, "method": method, "params": parameters})
        self._loop.run_until_complete(_write(self._socket, message))
        while True:
            told = self._read(PATIENCE)
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]

    def _read(self, seconds: float) -> Any:
        told = self._loop.run_until_complete(_read(self._socket, seconds))
        assert told is not None, "Chromium has ended"
        told = json.loads(told)
        self._note(told.get("method"), told.get("params", {}))
        return told

    def _note(self, method: str | None, told: Any) -> None:
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(str([one.get("value", one) for one in told["args"]]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])

    def view(self, width: int, height: int, dark: bool = False) -> None:
        """How large the window is, and which scheme the reader prefers."""
        is_phone = width < 500
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Go there, and wait until all is drawn."""
        self.send("Page.navigate", url=address)
        self.wait("document.documentElement?.dataset.ready === 'yes'", 20)
        self.settle()

    def settle(self) -> None:
        """Wait until figures are painted."""
        self.ask("new Promise(done => requestAnimationFrame(() => setTimeout(done, 150)))")

    def ask(self, expression: str) -> Any:
        """The value of an expression, or of its promise."""
        told = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE) -> None:
        """Until it is true."""
        until = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < until, (expression, self.errors)
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        """A key, down and up again."""
        for kind in ("keyDown", "keyUp"):
            told = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type=kind, **told)

    def column(self, source: str, name: str) -> list[Any]:
        """A column of a source of the figures."""
        model = f"Bokeh.documents[0].get_model_by_name({json.dumps(source)})"
        found = self.ask(f"Array.from({model}.data[{json.dumps(name)}])")
        assert isinstance(found, list)
        return found

    def picture(self, path: Path, selector: str | None = None, whole: bool = False) -> Any:
        """A screenshot, also as an array of (height, width, 4)."""
        more: dict[str, Any] = {}
        if selector is not None:
            self.ask(f"document.querySelector({json.dumps(selector)}).scrollIntoView()")
            self.settle()
            box = self.ask(
                f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
                ".getBoundingClientRect();"
                " return [b.x + scrollX, b.y + scrollY, b.width, b.height]; })()"
            )
            more["clip"] = dict(zip(("x", "y", "width", "height"), box, strict=True), scale=1)
        elif whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {**size, "scale": 1}
        told = self.send("Page.captureScreenshot", captureBeyondViewport=True, **more)
        path.write_bytes(base64.b64decode(told["data"]))
        return np.asarray(imread(path))


class Browser:
    """One Chromium without a window."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()

    def page(self) -> Page:
        """A new tab; nothing outside of this machine can be reached from it."""
        request = Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urlopen(request) as answer:
            address = json.load(answer)["webSocketDebuggerUrl"]
        socket = self._loop.run_until_complete(_connect(address))
        page = Page(self._loop, socket)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        return page

    def close(self) -> None:
        """No more pages."""
        self._loop.close()


async def _connect(address: str) -> Any:
    return await websocket_connect(address, max_message_size=1 << 28)


async def _write(socket: Any, message: str) -> None:
    await socket.write_message(message)


async def _read(socket: Any, seconds: float) -> Any:
    return await asyncio.wait_for(socket.read_message(), timeout=seconds)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; it and its folder are gone afterwards."""
    assert FOUND is not None, WHY
    folder = Path(tempfile.mkdtemp())
    program = subprocess.Popen(
        [FOUND, *FLAGS.split(), f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port, until = folder / "DevToolsActivePort", time.monotonic() + PATIENCE
        while not (port.exists() and port.read_text().count("\n")):
            assert program.poll() is None, "Chromium has ended"
            assert time.monotonic() < until, "Chromium does not start"
            time.sleep(0.05)
        browser = Browser(int(port.read_text().split("\n")[0]))
        try:
            yield browser
        finally:
            browser.close()
    finally:
        program.terminate()
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        shutil.rmtree(folder, ignore_errors=True)
