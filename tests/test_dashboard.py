"""The page on the scheduler's dashboard: on real clusters, and in a real browser."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bokeh.document import Document
from distributed import Client, LocalCluster
from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import websocket_connect

from dshift import dashboard, dashboard_html
from dshift.dashboard import TOPIC, JobBoard, block_event, end_event, stage_event, start_event

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)
# The page's text, that in Bokeh's shadow roots too.
TEXT = """(function text(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.data;
  if (/^(SCRIPT|STYLE)$/.test(node.nodeName)) return '';
  return [...(node.shadowRoot ?? node).childNodes].map(text).join(' ');
})(document)"""
FIND = """(function find(node, query) {
  return [...node.querySelectorAll(query), ...[...node.querySelectorAll('*')].flatMap(
    child => child.shadowRoot ? find(child.shadowRoot, query) : [])];
})"""
# Chart canvases that hold a pixel of the curves' colour (#3b6ea5).
DRAWN = (
    FIND
    + """(document, 'canvas').filter(canvas => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 4)
    if (data[i] === 59 && data[i + 1] === 110 && data[i + 2] === 165) return true;
  return false;
}).length"""
)


class Browser:
    """One page of a headless Chromium, over its DevTools protocol."""

    def __init__(self, profile: str) -> None:
        self.profile = Path(profile)
        self.errors: list[str] = []
        self._n_sent = 0

    async def __aenter__(self) -> Browser:
        command = [CHROMIUM or "chromium", *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)
        try:
            await self._connect()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    async def _connect(self) -> None:
        port_file = self.profile / "DevToolsActivePort"
        await until(lambda: port_file.exists() and len(port_file.read_text().split()) == 2)
        port = port_file.read_text().split()[0]
        listed = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
        page = next(t for t in json.loads(listed.body) if t["type"] == "page")
        self.socket = await websocket_connect(page["webSocketDebuggerUrl"])
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")

    async def __aexit__(self, *error: object) -> None:
        # No answer is waited for: the browser may be gone before it comes.
        await self.socket.write_message(json.dumps({"id": 0, "method": "Browser.close"}))
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.close()

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._n_sent += 1
        message = {"id": self._n_sent, "method": method, "params": params}
        await self.socket.write_message(json.dumps(message))
        while True:
            answer = json.loads(await self.socket.read_message())
            if answer.get("id") == self._n_sent:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer["method"], answer["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        bad = {
            "Runtime.exceptionThrown": True,
            "Runtime.consoleAPICalled": params.get("type") in ("error", "assert", "warning"),
            "Log.entryAdded": params.get("entry", {}).get("level") in ("error", "warning"),
        }
        if bad.get(method):
            self.errors.append(json.dumps(params))

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        answer = await self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self) -> str:
        return " ".join((await self.evaluate(TEXT)).split())

    async def number(self, name: str) -> int:
        """Return the whole number that the page shows in the element `name`."""
        shown = await self.evaluate(f"{FIND}(document, '#{name}').map(e => e.textContent).join()")
        return int(shown.replace(",", "") or -1)

    async def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)

    async def screenshot(self, path: str | Path) -> None:
        shot = await self.send("Page.captureScreenshot")
        Path(path).write_bytes(base64.b64decode(shot["data"]))


async def until(true: Callable[[], Any], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while True:
        found = true()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        await asyncio.sleep(0.1)


def start(job: str, n_seeds: int = 1000, **more: Any) -> dict[str, Any]:
    about = {"source": f"/data/{job}.zarr", "bandwidth": "4", "metric": "wasserstein", **more}
    return start_event(job, n_samples=5000, n_bins=64, n_seeds=n_seeds, n_blocks=10, **about)


def block(job: str, n_modes: int, reused: bool = False) -> dict[str, Any]:
    work = {"n_iter_sum": 1700, "share_evaluated": 0.0625, "reused": reused}
    return block_event(job, n_seeds=100, n_modes=n_modes, **work)


def post(board: JobBoard, *events: dict[str, Any]) -> None:
    for event in events:
        board.log_event(TOPIC, event)


def rendered(board: JobBoard, now: float) -> str:
    """Return the page's text parts as HTML, as the page renders them."""
    jobs = list(board.jobs)[::-1]
    head = dashboard_html.template(dashboard_html.JOB_HTML)(job=jobs[0] if jobs else None, now=now)
    return head + dashboard_html.template(dashboard_html.CLUSTER_HTML)(
        workers=[], jobs=jobs[1:], now=now
    )


class TestJobBoard:
    def test_rate_and_time_left_are_of_fresh_blocks_only(self) -> None:
        board = JobBoard()
        post(board, {**start("a"), "time": 0.0}, {**block("a", 2, reused=True), "time": 1.0})
        assert rendered(board, time.time()).count('id="rate">-<') == 1
        post(board, {**stage_event("a", "shift"), "time": 2.0})
        post(board, *({**block("a", 3), "time": t} for t in (4.0, 6.0)))
        (job,) = board.jobs
        assert job.rate() == 50
        assert job.n_done == 300
        assert job.time_left(job.received) == 14
        assert job.time_left(job.received + 1) == 13
        assert job.time_left(job.received + 60) == 12  # a stall
        assert job.elapsed(job.received + 4) == 10

    def test_end_is_final_and_the_same_job_may_run_again(self) -> None:
        board = JobBoard()
        post(board, start("a"), block("a", 3), end_event("a", "done", n_modes=3, n_clusters=2))
        post(board, block("a", 9), end_event("a", "failed"))
        post(board, start("a"), start("a"))
        assert [(j.state, j.n_modes) for j in board.jobs] == [
            ("done", 3),
            ("interrupted", 0),
            ("running", 0),
        ]

    def test_departed_client_interrupts_its_jobs(self) -> None:
        board = JobBoard()
        post(board, start("a", client="one"), start("b", client="two"), start("c"))
        board.remove_client(None, client="one")
        assert [job.state for job in board.jobs] == ["interrupted", "running", "running"]

    def test_records_are_bounded(self) -> None:
        board = JobBoard()
        for i in range(dashboard.MAX_JOBS + 5):
            post(board, start(f"job {i}"))
        post(board, *(block(board.jobs[-1].token, 1) for _ in range(dashboard.MAX_POINTS + 5)))
        assert len(board.jobs) == dashboard.MAX_JOBS
        assert len(board.jobs[-1].points) == dashboard.MAX_POINTS
        assert len(board.jobs[-1].recent) == dashboard.RECENT + 1

    def test_other_topics_and_unknown_jobs_are_ignored(self) -> None:
        board = JobBoard()
        board.log_event("all", {"action": "add-worker"})
        post(board, block("unknown", 1))
        assert not board.jobs

    def test_every_string_is_escaped(self) -> None:
        bad = "<script>alert('&')</script>"
        board = JobBoard()
        for _ in range(2):
            post(board, start(bad, source=bad, bandwidth=bad, metric=bad), stage_event(bad, bad))
            post(board, end_event(bad, bad, error=bad))
        html = rendered(board, time.time())
        assert "<script" not in html
        # Newest: state twice, source, metric, bandwidth, error; older: state twice, source.
        assert html.count("&lt;script&gt;") == 9

    def test_one_cluster_is_no_plural(self) -> None:
        board = JobBoard()
        post(board, start("a"), end_event("a", "done", n_modes=3, n_clusters=1))
        assert "<small>in 1 cluster</small>" in rendered(board, time.time())

    def test_a_job_that_told_of_no_blocks_is_done_all_the_same(self) -> None:
        """As a sweep, whose tasks are bandwidths."""
        board = JobBoard()
        for _ in range(2):
            post(board, start("a", n_seeds=1000), stage_event("a", "shift"))
            half = " ".join(rendered(board, time.time()).split())
            post(board, end_event("a", "done"))
        html = " ".join(rendered(board, time.time()).split())
        assert '<b id="seeds">0</b> of 1,000 seeds stationary (0%)' in half
        assert '<b id="seeds">1,000</b> of 1,000 seeds stationary (100%)' in html
        assert "<td>1,000 of 1,000 <td>-<td>-" in html
        assert '<b id="modes">-</b>' in html
        assert "so far" in half
        assert "so far" not in html

    def test_the_charts_of_a_short_job_are_filled_when_it_has_ended(self) -> None:
        begun = start("a")
        ended = {**end_event("a", "done"), "time": begun["time"] + 1}
        ends = []
        for events in ([begun], [begun, ended]):
            board, doc = JobBoard(), Document()
            post(board, *events)
            dashboard._make_page(board, SimpleNamespace(workers={}), {}, doc)
            figures = doc.roots[0].children[1].children
            assert all(figure.xaxis[0].ticker.min_interval == 1 for figure in figures)
            ends.append({figure.x_range.end for figure in figures})
        (running,), (ended_at,) = ends
        assert running >= 2
        assert ended_at == pytest.approx(1.02, abs=1e-5)

    def test_job_without_seeds_renders(self) -> None:
        board = JobBoard()
        post(board, start("a", n_seeds=0))
        assert "0 seeds stationary" in " ".join(rendered(board, time.time()).split())


def memory_shown(names: list[Any]) -> str:
    """Return the HTML of a page for workers of these names, each fuller than the one before."""
    workers = {
        f"tcp://{i}": SimpleNamespace(
            name=name,
            address=f"tcp://{i}",
            memory=SimpleNamespace(process=(i + 1) * 2**20),
            memory_limit=2**30,
        )
        for i, name in enumerate(names)
    }
    doc = Document()
    dashboard._make_page(JobBoard(), SimpleNamespace(workers=workers), {}, doc)
    return doc.roots[0].children[1].text


class TestMemory:
    def test_few_workers_are_in_the_order_of_their_names(self) -> None:
        shown = re.findall(r'class="name">(.*?)<', memory_shown([10, 2, 0, "<b>"]))
        assert shown == ["0", "2", "10", "&lt;b&gt;"]

    def test_of_many_workers_the_fullest_are_shown(self) -> None:
        n = dashboard_html.MAX_WORKERS
        html = memory_shown(list(range(n + 5)))
        shown = re.findall(r'class="name">(.*?)<', html)
        assert shown == [str(i) for i in reversed(range(5, n + 5))]
        assert f"the {n} fullest of {n + 5}" in " ".join(html.split())

    def test_nearly_full_worker_stands_out(self) -> None:
        assert memory_shown([0] * 10).count("memory high") == 0
        assert memory_shown([0] * 900).count("memory high") == dashboard_html.MAX_WORKERS


def fetch(url: str) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=120) as answer:
        assert answer.status == 200
        return answer.read().decode()


@contextmanager
def watched_cluster(**more: Any) -> Iterator[Client]:
    size = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**size, **more) as cluster, Client(cluster) as client:
        client.register_plugin(JobBoard())
        yield client


@pytest.fixture
def client() -> Iterator[Client]:
    with watched_cluster(processes=False) as client:
        yield client


def site(client: Client) -> str:
    return f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}"


def menu_entries(url: str) -> int:
    return fetch(f"{url}/status").count('<a href="dshift">')


class TestPage:
    def test_is_in_the_menu_once_however_often_registered(self, client: Client) -> None:
        client.register_plugin(JobBoard())
        assert menu_entries(site(client)) == 1
        page = fetch(f"{site(client)}/dshift")
        assert '<a href="status">' in page

    def test_board_set_up_late_knows_what_was_posted(self, client: Client) -> None:
        for event in (start("early"), "not an event", {"job": "early", "what": "block"}):
            client.log_event(TOPIC, event)
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin(JobBoard.name))
        client.register_plugin(JobBoard())
        client.log_event(TOPIC, block("early", 7))

        def jobs(dask_scheduler: Any) -> list[tuple[str, int]]:
            board = dask_scheduler.plugins["dshift-board"]
            return [(job.source, job.n_modes) for job in board.jobs]

        assert client.run_on_scheduler(jobs) == [("/data/early.zarr", 7)]
        assert menu_entries(site(client)) == 1

    def test_no_dashboard_is_no_error(self) -> None:
        quiet = {"dashboard_address": None, "processes": False}
        with LocalCluster(n_workers=0, **quiet) as cluster, Client(cluster) as client:
            client.register_plugin(JobBoard())
            client.log_event(TOPIC, start("a"))
            assert len(cluster.scheduler.plugins["dshift-board"].jobs) == 1

    def test_preloaded_by_the_scheduler_command_under_a_prefix(self, tmp_path: Path) -> None:
        card = tmp_path / "scheduler.json"
        options = "--host 127.0.0.1 --port 0 --dashboard-address 127.0.0.1:0 --dashboard-prefix /me"
        command = [sys.executable, "-m", "dask", "scheduler", *options.split()]
        command += ["--scheduler-file", str(card), "--preload", "dshift.dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, **quiet) as process:
            try:
                asyncio.run(until(card.exists))
                with Client(scheduler_file=str(card)) as client:
                    client.register_plugin(JobBoard())
                    url = f"{site(client)}/me"
                    assert menu_entries(url) == 1
                    assert "/me/static/js/bokeh.min.js" in fetch(f"{url}/dshift")
            finally:
                process.terminate()


async def watch(client: Client, profile: Path) -> None:
    """Run a job's events past an open page; all that it should show is asserted on the way."""
    async with Browser(str(profile)) as browser:
        await browser.resize(1400, 1000)
        await browser.open(f"{site(client)}/dshift")

        async def shows(text: str) -> bool:
            return text in await browser.text()

        await until(lambda: shows("No dshift job has run on this cluster yet"))
        await until(lambda: shows("Memory per worker 0"))
        client.log_event(TOPIC, start("<i>tricky</i> $$x$$"))
        client.log_event(TOPIC, stage_event("<i>tricky</i> $$x$$", "shift"))
        await until(lambda: shows("/data/<i>tricky</i> $$x$$.zarr"))
        for n in range(1, 6):
            client.log_event(TOPIC, block("<i>tricky</i> $$x$$", n_modes=2 * n, reused=n == 1))
            await until(lambda n=n: shows(f"{100 * n} of 1,000 seeds stationary ({10 * n}%)"))
            assert await browser.number("modes") == 2 * n
        for text in (
            "Rate",
            "Time left",
            "17.0 per seed",
            "6.2% of the data",
            "100 from the store",
        ):
            assert await shows(text), text

        async def charts_drawn() -> bool:
            return await browser.evaluate(DRAWN) == 4

        await until(charts_drawn)
        done = end_event("<i>tricky</i> $$x$$", "done", n_modes=10, n_clusters=4)
        client.log_event(TOPIC, done)
        await until(lambda: shows("in 4 clusters"))
        assert not await shows("Time left")
        client.log_event(TOPIC, start("next"))
        client.log_event(TOPIC, end_event("next", "failed", error="block 3 (seeds 300 to 399)"))
        await until(lambda: shows("failed /data/next.zarr"))
        assert await shows("block 3 (seeds 300 to 399)")
        # Another element of the page, which may be drawn a moment later.
        await until(lambda: shows("Earlier jobs"))
        await until(lambda: shows("/data/<i>tricky</i> $$x$$.zarr done 1,000 of 1,000 10 4 17.0"))
        await browser.resize(500, 1000)
        await until(lambda: browser.evaluate("document.documentElement.scrollWidth <= 500"))
        assert browser.errors == []


def test_page_lives_in_a_browser(tmp_path: Path) -> None:
    if CHROMIUM is None and "CI" not in os.environ:
        pytest.skip("no chromium on this machine")
    assert CHROMIUM is not None, "CI needs a browser: apt-get install chromium"
    with watched_cluster(processes=True) as client:
        asyncio.run(watch(client, tmp_path / "profile"))
