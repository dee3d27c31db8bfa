"""Pictures of a web page that never ends to load: Chromium by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
WIDTH, HEIGHT = 1200, 800
SECONDS = 60  # to wait for the browser to start
LOADING, PAUSE = 2.0, 0.2  # seconds before the first picture, and between two


@contextmanager
def photographed(url: str, target: Path) -> Iterator[None]:
    """Photograph a page again and again while the block runs; the last picture stays.

    Without a Chromium nothing happens, but for a word about it.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("there is no chromium here, so no picture of the dashboard is taken")
        yield
        return
    over, ready = threading.Event(), threading.Event()

    def work() -> None:
        try:
            asyncio.run(_photograph(browser, url, target, over, ready))
        except Exception as error:  # no picture is worth a failed fit
            print(f"no picture of the dashboard was taken: {error!r}")
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(SECONDS)
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _photograph(
    browser: str, url: str, target: Path, over: threading.Event, ready: threading.Event
) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, **quiet)
        try:
            page = await _connect(Path(profile) / "DevToolsActivePort")
            size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
            await _send(page, "Emulation.setDeviceMetricsOverride", **size)
            await _send(page, "Page.navigate", url=url)
            await asyncio.sleep(LOADING)
            ready.set()
            while not over.is_set():
                await asyncio.sleep(PAUSE)
                shot = await _send(page, "Page.captureScreenshot")
                # After the end it is no picture of a run any more, but better than none.
                if not over.is_set() or not target.is_file():
                    target.write_bytes(base64.b64decode(shot["data"]))
            page.close()
        finally:
            process.terminate()
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _connect(port_file: Path) -> WebSocketClientConnection:
    """Wait until the browser says where it listens, and open its page."""
    for _ in range(10 * SECONDS):
        if port_file.exists() and len(port_file.read_text().split()) == 2:
            break
        await asyncio.sleep(0.1)
    else:
        raise TimeoutError(f"the browser did not start within {SECONDS} s")
    port = port_file.read_text().split()[0]
    listed = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
    page = next(one for one in json.loads(listed.body) if one["type"] == "page")
    return await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=2**26)


async def _send(page: WebSocketClientConnection, method: str, **params: Any) -> dict[str, Any]:
    await page.write_message(json.dumps({"id": 1, "method": method, "params": params}))
    while True:
        message = await page.read_message()
        if message is None:
            raise OSError("the browser went away")
        answer = json.loads(message)
        if answer.get("id") == 1:
            return answer.get("result", {})
