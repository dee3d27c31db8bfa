"""The report: what it says, that it is one safe file, and that a browser draws it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.stats import wasserstein_distance
from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import websocket_connect

import dshift
from dshift import report_findings, report_scan, report_study
from dshift.demo import synthetic
from dshift.metrics import Metric, make_embedding
from dshift.report_alike import alike_order, place_on_plane
from dshift.report_figures import N_COLORS, cluster_color
from dshift.report_map import make_maps
from dshift.report_ruler import Ruler
from dshift.report_text import Names, percent
from dshift.sources import Samples

report = dshift.report

EVIL = "<script>alert(1)</script><img src=x onerror=pwned=1>$$x^2$$'\"&amp;"
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
]


def humps(centers: Any, n_bins: int = 24, width: float = 1.5) -> np.ndarray:
    gaps = (np.arange(n_bins) - np.asarray(centers)[..., None]) / width
    return np.rint(1000 * np.exp(-0.5 * gaps**2)).astype(np.int64)


def fit(data: Any, bandwidth: Any = 2, **options: Any) -> xr.Dataset:
    return dshift.fit(data, bandwidth, progress=False, **options)


def make_cube() -> xr.DataArray:
    lat, lon = np.arange(60.0, -61, -10), np.arange(0.0, 360, 15)
    counts = humps(6 + 6.0 * (lat > 5)[:, None] + 5 * (lon > 170) + 0.01 * np.arange(len(lon)))
    counts[0, :3] = 0  # masked
    edges = np.linspace(0, 12, 25)
    speed = ("speed", edges[:-1] + 0.25, {"units": "m/s", "long_name": "wind speed"})
    coords = {"lat": lat, "lon": lon, "speed": speed}
    return xr.DataArray(counts, coords, ("lat", "lon", "speed"), attrs={"edges": edges.tolist()})


def make_evil() -> xr.DataArray:
    names = [f"{EVIL}{i}" for i in range(12)]
    attrs = {"long_name": EVIL, "units": EVIL}
    return xr.DataArray(
        humps(np.r_[np.linspace(5, 6, 6), np.linspace(15, 16, 6)]),
        {EVIL: names, "b": ("b", np.arange(24.0), attrs)},
        (EVIL, "b"),
        name=EVIL,
        attrs={"edges": list(range(25))},
    )


def make_sweep() -> xr.Dataset:
    widths = np.geomspace(0.5, 8, 9)
    curves = {
        "n_clusters": np.r_[90, 40, 9, 4, 4, 4, 2, 1, 1],
        "largest_share": np.linspace(0.1, 1, 9),
        "singletons_share": np.linspace(0.4, 0, 9),
        "agreement": np.r_[np.full(8, 0.95), np.nan],
    }
    plateaus = {"start": widths[[3, 7]], "stop": widths[[5, 8]], "length": [3, 2]}
    variables = {name: ("bandwidth", values) for name, values in curves.items()}
    variables |= {f"plateau_{name}": ("plateau", values) for name, values in plateaus.items()}
    return xr.Dataset(variables, {"bandwidth": widths})


def make_stack() -> xr.DataArray:
    """Rain and temperature of four kinds of places."""
    rng, kind = np.random.default_rng(0), np.arange(40) % 4
    rain = humps(5 + 8 * (kind < 2) + rng.normal(0, 0.3, 40), n_bins=20)
    warm = humps(8 + 9 * (kind % 2) + rng.normal(0, 0.3, 40), n_bins=30)
    parts = {}
    for name, counts, edges, unit in (
        ("rain", rain, np.linspace(0, 10, 21), "mm"),
        ("warmth", warm, np.geomspace(260, 320, 31), "K"),
    ):
        about = {"edges": edges.tolist(), "edges_units": unit}
        parts[name] = xr.DataArray(counts, dims=("place", "bin"), attrs=about)
    return dshift.stack(parts, "range")


def make_many() -> np.ndarray:
    centers = np.r_[np.linspace(3, 60, 500), np.repeat(np.linspace(3, 60, 500)[::25], 5)]
    return humps(centers, n_bins=64)


def fitted(name: str) -> tuple[xr.Dataset, Any, dict[str, Any]]:
    """Return a result, its data, and options of the report."""
    if name == "two":
        data = synthetic(60).counts
        return fit(data, 4, valley=0.1), data, {"sweep": make_sweep()}
    if name == "one":
        data = humps(np.linspace(5, 6, 10))
        return fit(data, 20), data, {}
    if name == "many":
        data = make_many()
        result = fit(data, 1e-4)
        assert result.sizes["cluster"] == 500
        return result, data, {}
    if name == "cube":
        data = make_cube()
        return fit(data, 0.7, invalid="mask"), data, {"title": "Winds"}
    if name == "stack":
        data = make_stack()
        return dshift.fit(data, "auto", progress=False), data, {}
    data = make_evil()
    result = fit(data)
    result.attrs |= {"source": f"/tmp/{EVIL}.zarr", EVIL: EVIL}
    return result, data, {"title": EVIL, "sweep": make_sweep()}


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(self.html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.text += data

    def sections(self) -> list[str | None]:
        return [attrs["id"] for tag, attrs in self.tags if tag == "section"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what makes the report of a case, once."""
    folder, made = tmp_path_factory.mktemp("reports"), {}

    def make(name: str) -> Path:
        if name not in made:
            result, data, options = fitted(name)
            made[name] = report(result, data, folder / f"{name}.html", **options)
        return made[name]

    return make


class Browser:
    """One tab of a headless Chromium, over its DevTools protocol."""

    def __init__(self, profile: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.n_sent, self.errors, self.requests = 0, [], []
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)
        self.socket = self.loop.run_until_complete(self._connect(profile / "DevToolsActivePort"))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    async def _connect(self, port_file: Path) -> Any:
        deadline = time.monotonic() + 300
        while not (port_file.exists() and len(port_file.read_text().split()) == 2):
            assert time.monotonic() < deadline, "Chromium did not start"
            await asyncio.sleep(0.05)
        url = f"http://127.0.0.1:{port_file.read_text().split()[0]}/json/list"
        listed = json.loads((await AsyncHTTPClient().fetch(url)).body)
        page = next(target for target in listed if target["type"] == "page")
        return await websocket_connect(page["webSocketDebuggerUrl"])

    def close(self) -> None:
        self.loop.run_until_complete(self._disconnect())
        self.loop.close()

    async def _disconnect(self) -> None:
        # No answer is waited for: the browser may be gone before it comes.
        await self.socket.write_message(json.dumps({"id": 0, "method": "Browser.close"}))
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.close()  # within the loop, which need not be the thread's own
        await asyncio.sleep(0.05)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self.loop.run_until_complete(self._send(method, params))

    async def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.n_sent += 1
        message = {"id": self.n_sent, "method": method, "params": params}
        await self.socket.write_message(json.dumps(message))
        while True:
            answer = json.loads(await asyncio.wait_for(self.socket.read_message(), 300))
            if answer.get("id") == self.n_sent:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer["method"], answer["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        said = params.get("type") or params.get("entry", {}).get("level")
        if method == "Runtime.exceptionThrown" or said in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params)[:2000])

    def run(self, script: str) -> Any:
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path: Path) -> None:
        self.errors, self.requests = [], []
        self.send("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete' && " + IDLE)

    def resize(self, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        # Bokeh lays out anew in an animation frame, after the observers of sizes.
        self.run("new Promise(done => setTimeout(() => requestAnimationFrame(done), 100))")
        self.until(IDLE)

    def until(self, script: str) -> None:
        deadline = time.monotonic() + 300
        while not self.run(script):
            assert time.monotonic() < deadline, (script, self.errors)
            time.sleep(0.05)


IDLE = "!!(window.Bokeh && Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle))"
FIND = """(function find(node, query) {
  return [...node.querySelectorAll(query), ...[...node.querySelectorAll('*')].flatMap(
    child => child.shadowRoot ? find(child.shadowRoot, query) : [])];
})"""
# Of each plot, the number of pixels that are no background.
INKED = f"""[...document.querySelectorAll('[data-root-id]')].map(host =>
  {FIND}(host, 'canvas').map(canvas => {{
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext(
      '2d', {{willReadFrequently: true}});
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    let n = 0;
    for (let i = 0; i < data.length; i += 4)
      if (data[i + 3] > 40 && Math.min(data[i], data[i + 1], data[i + 2]) < 215) n++;
    return n;
  }}).reduce((a, b) => a + b, 0))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        message = "Chromium is not installed, so no page was opened"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    tab = Browser(tmp_path_factory.mktemp("chromium"))
    yield tab
    tab.close()


@pytest.mark.parametrize("name", ["two", "one", "many", "cube", "evil", "stack"])
def test_a_browser_draws_every_plot_and_nothing_leaves_the_file(
    pages: Any, browser: Browser, name: str
) -> None:
    path = pages(name)
    browser.open(path)
    for width in (1400, 420):
        browser.resize(width)
        inked = browser.run(INKED)
        assert len(inked) == browser.run("Bokeh.documents[0].roots().length") >= 3
        assert min(inked) > 50
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("typeof pwned") == "undefined"
    assert browser.errors == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {path.as_uri()}


def test_tooltips_show_text_from_the_data_as_text(pages: Any, browser: Browser) -> None:
    browser.open(pages("evil"))
    browser.resize(1000)
    x, y = browser.run("""(() => {
      document.querySelector('#view').scrollIntoView();
      const host = document.querySelector('#view [data-root-id]');
      const view = Bokeh.index.get_by_id(host.dataset.rootId);
      const dots = view.model.renderers[0].data_source;
      const box = view.canvas_view.el.getBoundingClientRect();
      return [box.x + view.frame.x_scale.compute(dots.get('x')[0]),
              box.y + view.frame.y_scale.compute(dots.get('y')[0])];
    })()""")
    for shift in (3, 0):
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + shift, y=y)
    tooltips = FIND + "(document, '.bk-Tooltip').map(e => e.shadowRoot.textContent).join()"
    browser.until(f"{tooltips}.includes('sample')")
    assert "<script>alert(1)</script>" in browser.run(tooltips)
    assert browser.run(FIND + "(document, '.bk-Tooltip img, .bk-Tooltip script').length") == 0
    assert browser.run("typeof pwned") == "undefined"
    assert browser.errors == []


def test_text_from_the_data_is_escaped(pages: Any) -> None:
    page, plain = Page(pages("evil")), Page(pages("two"))
    scripts = [sum(tag == "script" for tag, _ in p.tags) for p in (page, plain)]
    assert scripts[0] == scripts[1]
    assert not [tag for tag, attrs in page.tags if tag == "img" or "onerror" in attrs]
    assert EVIL in page.text
    assert EVIL not in page.html
    assert "<script>alert" not in page.html


def test_the_file_needs_no_other(pages: Any) -> None:
    page = Page(pages("two"))
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs]
    (policy,) = (a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")
    assert len(page.html) < 2_000_000


def test_what_the_pages_say(pages: Any) -> None:
    two, one, many, cube = (Page(pages(name)) for name in ("two", "one", "many", "cube"))
    whole = ["run", "clusters", "modes", "matrix", "view", "sweep", "outliers"]
    assert two.sections() == whole
    assert "60 histograms of 100 bins fall into 2 clusters. The largest holds 50 %" in two.text
    assert "All 60 seeds end stationary: one more step from each of the 2 modes" in two.text
    assert "W1 (bins) between" in two.text
    assert one.sections() == ["run", "clusters", "modes", "view", "outliers"]
    assert "10 histograms of 24 bins fall into one cluster." in one.text
    assert many.sections() == ["run", "clusters", "modes", "matrix", "view"]
    assert "488 smaller clusters hold" in many.text
    assert "All clusters at a glance" in many.text
    assert f"repeat after {N_COLORS}" in many.text
    assert cube.sections() == ["run", "clusters", "modes", "map", "matrix", "view", "outliers"]
    assert "W1 (m/s) between" in cube.text
    assert "wind speed (m/s)" in cube.text
    assert "In no cluster3masked" in cube.text
    assert re.search(r"lat -?\d+ · lon \d+", cube.text)


def test_a_stack_is_shown_variable_by_variable(pages: Any) -> None:
    page = Page(pages("stack"))
    assert page.sections() == ["run", "clusters", "modes", "matrix", "view", "outliers"]
    start = "40 samples, each with histograms of rain and warmth, fall into 4 clusters."
    assert start in page.text
    assert "20 rain (mm), 30 warmth (K)" in page.text
    assert "share of a sample in each bin, or share of a sample per K" in page.text
    assert "W1 added up over the variables between" in page.text
    assert "chosen: middle of the longest plateau, " in page.text
    named = [attrs for tag, attrs in page.tags if attrs.get("class") == "variable"]
    assert len(named) == 2 * (4 + report_findings.N_OUTLIERS)


def run_report(tmp_path: Path, data: Any, result: xr.Dataset, **options: Any) -> Page:
    return Page(report(result, data, tmp_path / "report.html", **options))


def test_what_was_run_is_said(tmp_path: Path) -> None:
    data = synthetic(60).counts
    result = fit(data, 4, seeds=20)
    result.encoding["dshift_run"] = {"evaluated_share": 0.0123, "seconds": 3723.0}
    text = run_report(tmp_path, data, result).text
    assert "Evaluated1.2 %of the data" in text
    assert "Time1 h 2 min" in text
    assert "Seeds20drawn samples; the others got the nearest mode" in text
    result.stationary[0] = False
    assert "1 of 2 modes are not stationary" in run_report(tmp_path, data, result).text


def test_weights_count(tmp_path: Path) -> None:
    data = humps([5, 5.2, 15])
    text = run_report(tmp_path, data, fit(data, weights=[1, 1, 8])).text
    assert "The largest holds 80 % of the weight" in text
    assert "018" in text.split("Share")[1].replace(" ", "")  # cluster 0, 1 sample, weight 8


def rings(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.abs(rows - x).max(axis=1)


@pytest.mark.parametrize(
    ("metric", "bandwidth", "said"),
    [
        ("l1", 0.5, "L1 distance between"),
        ("sqeuclidean", 0.05, "squared Euclidean distance between"),
        (Metric(rings, lambda rows, _: rows[0], "rings"), 0.1, "in place of the metric 'rings'"),
        (Metric(rings, lambda rows, _: rows[0], "raw", normalize=False), 50, "L1, in place of"),
    ],
)
def test_other_metrics(tmp_path: Path, metric: Any, bandwidth: float, said: str) -> None:
    data = humps([5, 5.1, 5.3, 15, 15.2])
    result = fit(data, bandwidth, metric=metric)
    assert result.sizes["cluster"] > 1
    assert said in run_report(tmp_path, data, result).text


def test_other_shapes_of_results(tmp_path: Path) -> None:
    data = humps([5, 5.2, 15])
    none = run_report(tmp_path, data, fit(data, min_cluster_size=9))
    assert none.sections() == ["run"]
    assert "fall into no cluster" in none.text
    each = run_report(tmp_path, data, fit(data, np.array([1.0, 2.0, 3.0])))
    assert "Bandwidthper sample" in each.text
    own = run_report(tmp_path, data, fit(data, seeds=humps([5.1, 15])))
    assert "histograms of the caller's own" in own.text
    same = humps([5.0, 5.0])
    assert run_report(tmp_path, same, fit(same)).sections() == ["run", "clusters", "modes"]


def test_bins_are_joined_and_widths_divided(tmp_path: Path) -> None:
    wide = humps([100, 105, 400], n_bins=601, width=9)
    assert "4 neighbouring bins are drawn as one" in run_report(tmp_path, wide, fit(wide, 20)).text
    edges = np.geomspace(1, 100, 25)
    text = run_report(tmp_path, humps([5, 15]), fit(humps([5, 15]), 1, edges=edges)).text
    assert "share of a sample per unit" in text


@pytest.mark.parametrize("dims", [("y", "x"), ("x", "y"), ("season", "y", "x")])
def test_maps_lie_the_right_way(dims: tuple[str, ...]) -> None:
    sizes = {"season": 2, "y": 3, "x": 4}
    coords = {"y": xr.DataArray([30.0, 20.0, 0.0], dims="y")}  # falling, and not even
    label = np.arange(24).reshape(2, 3, 4)[0] if len(dims) == 2 else np.arange(24).reshape(2, 3, 4)
    label = label.T if dims == ("x", "y") else label
    names = Names(dims, tuple(sizes[dim] for dim in dims), coords)
    maps = make_maps(names, label)
    assert len(maps) == (2 if len(dims) == 3 else 1)
    assert maps[-1].y.tolist() == [-10, 35]
    assert maps[-1].x.tolist() == [-0.5, 3.5]
    last = label[-1] if len(dims) == 3 else label
    south = last[:, -1] if dims == ("x", "y") else last[-1]
    north = last[:, 0] if dims == ("x", "y") else last[0]
    assert maps[-1].clusters[0].tolist() == south.tolist()  # images grow upwards
    assert maps[-1].clusters[-1].tolist() == north.tolist()


def test_stations_are_points_on_a_map(tmp_path: Path) -> None:
    where = {"lat": ("station", [10.0, 20, np.nan]), "lon": ("station", [1.0, 2, 3])}
    data = xr.DataArray(humps([5, 5.2, 15]), where, ("station", "bin"))
    page = run_report(tmp_path, data, fit(data))
    assert "map" in page.sections()
    assert "Each point has the colour" in page.text


def test_distances_are_w1_in_the_unit_of_the_edges() -> None:
    data = make_cube()
    result = fit(data, 0.7, invalid="mask")
    ruler = Ruler.of(result, np.asarray(data.attrs["edges"]))
    points, _ = ruler.points(result.modes.values)
    centers, (a, b) = data.speed.values, result.modes.values[:2]
    expected = wasserstein_distance(centers, centers, a, b)
    assert ruler.table(points, points)[0, 1] == pytest.approx(expected, rel=1e-9)
    assert ruler.say(1234.5678) == "1,235 m/s"


def test_the_farthest_samples_are_the_outliers(tmp_path: Path) -> None:
    data = humps(np.r_[np.linspace(8, 9, 30), 11.5, np.linspace(18, 19, 10)])
    text = run_report(tmp_path, data, fit(data, 4)).text
    named = re.findall(r"sample (\d+) cluster", text.split("Outliers")[1])
    assert len(named) == report_findings.N_OUTLIERS
    assert named[0] == "30"


def test_alike_modes_are_neighbours() -> None:
    places = np.random.default_rng(0).permutation(40).astype(float)
    order = alike_order(np.abs(places - places[:, None]))
    assert np.abs(np.diff(places[order])).max() == 1
    assert sorted(order) == list(range(40))


def test_the_plane_keeps_what_is_flat() -> None:
    flat = np.random.default_rng(0).normal(size=(30, 2))
    ruler = Ruler(make_embedding("sqeuclidean", 2, None, None, None), "", "")
    places, kept = place_on_plane(ruler, flat[:20], flat)
    assert kept == pytest.approx(1)
    assert np.allclose(ruler.table(places, places), ruler.table(flat, flat))


def test_of_large_data_a_part_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zarr

    centers = np.r_[np.full(3000, 5.0), np.full(999, 15.0), 22.0] + np.linspace(0, 0.5, 4000)
    data = zarr.create_array(tmp_path / "d.zarr", data=humps(centers), chunks=(100, 24))
    result = fit(data, 3, seeds=200)
    n_read = []
    read = Samples.read

    def counted(self: Any, block: Any) -> np.ndarray:
        rows = read(self, block)
        n_read.append(len(rows))
        return rows

    monkeypatch.setattr(Samples, "read", counted)
    monkeypatch.setattr("dshift.chunks.JOINED_BLOCK_BYTES", 100 * 24 * 8)
    monkeypatch.setattr(report_study, "MAX_CHECKED_VALUES", 1000)
    monkeypatch.setattr(report_scan, "MAX_READ_BYTES", 10 * 100 * 24 * 8)
    monkeypatch.setattr(report_scan, "MAX_MEASURED", 300)
    monkeypatch.setattr(report_scan, "N_VIEW", 50)
    monkeypatch.setattr(report_scan, "N_MEMBERS", 40)
    page = run_report(tmp_path, tmp_path / "d.zarr", result)
    # One more block for the last cluster.
    assert sum(n_read) <= 11 * 100 + report_findings.N_OUTLIERS
    found = re.search(r"taken from (\d+) of the 4,000 samples", page.text)
    assert found is not None
    assert 300 <= int(found[1]) <= 450
    assert re.search(r"For the bands, at most \d\d members of a cluster were drawn", page.text)
    assert "The data were not compared with the fingerprint of the result" in page.text


def test_stored_results_and_lazy_data(tmp_path: Path) -> None:
    dask_array = pytest.importorskip("dask.array")
    data = make_cube().drop_attrs(deep=False)
    result = fit(data, 0.7, invalid="mask", edges=np.linspace(0, 12, 25))
    result.to_zarr(tmp_path / "r.zarr", consolidated=False)
    with xr.open_zarr(tmp_path / "r.zarr", consolidated=False) as stored:
        lazy = dask_array.from_array(data.values, chunks=(5, 7, -1))
        page = run_report(tmp_path, lazy, stored)
    assert "map" in page.sections()  # by the result's own coordinates
    assert re.search(r"lat -?\d+ · lon \d+", page.text)


def test_names_of_samples() -> None:
    text = xr.DataArray(np.array(["Ann", "Bo" * 60], dtype=object), dims="who")
    day = xr.DataArray(np.array(["2020-01-01", "2020-01-02"], "M8[ns]"), dims="day")
    names = Names(("who", "day", "run"), (2, 2, 2), {"nick": text, "day": day})
    assert names(0) == "Ann · day 2020-01-01 · run 0"
    assert len(names(7)) == 80
    assert Names(("dim_0",), (9,), {})(4) == "sample 4"


def test_colors_and_shares() -> None:
    colors = [cluster_color(number) for number in range(N_COLORS)]
    assert len(set(colors)) == N_COLORS
    assert cluster_color(N_COLORS) == colors[0]
    assert cluster_color(-1) not in colors
    shares = [0, 1e-9, 0.004, 0.25, 0.9999, 1]
    shown = "0.0% < 0.1% 0.4% 25% > 99.9% 100%".replace("%", "\u202f%").replace("< ", "<")
    assert " ".join(percent(s).replace("< ", "<") for s in shares) == shown


def test_lenient_with_sweeps(tmp_path: Path) -> None:
    data = humps([5, 5.2, 15])
    bare = make_sweep()[["n_clusters"]]
    page = run_report(tmp_path, data, fit(data), sweep=bare)
    assert "sweep" in page.sections()
    whole = make_sweep().assign(plateau_clusters=("plateau", [7, 1]))
    whole["plateau_start"] = ("plateau", [3, 7])  # places in place of bandwidths
    whole["plateau_stop"] = ("plateau", [5, 8])
    assert "11.412.837" in run_report(tmp_path, data, fit(data), sweep=whole).text.replace(" ", "")


GOOD = humps([5, 5.2, 15])


@pytest.fixture(scope="module")
def good() -> xr.Dataset:
    return fit(GOOD)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"result": {"label": 1}}, dshift.InvalidType, "`result` is a dict; give the Dataset"),
        ({"result": xr.Dataset()}, dshift.InvalidInput, "`result` has no variable `label`"),
        ({"data": GOOD[:2]}, dshift.InvalidInput, r"samples \{'dim_0': 2\} of 24 bins, and"),
        ({"data": GOOD[:, :9]}, dshift.InvalidInput, "of 9 bins, and `result` is about"),
        ({"data": -GOOD}, dshift.InvalidInput, "holds other histograms: .* is none, and that of"),
        ({"data": GOOD[::-1]}, dshift.InvalidInput, "the same histograms, in the same order"),
        ({"path": 3}, dshift.InvalidType, "`path` is a int; give the file's name"),
        ({"path": "."}, dshift.InvalidInput, "is a directory; add a name"),
        ({"path": "no/such/r.html"}, dshift.InvalidInput, "there is no directory .* make it first"),
        ({"title": 3}, dshift.InvalidType, "`title` is a int; give a text"),
        ({"sweep": 3}, dshift.InvalidType, "`sweep` is a int; give what dshift.sweep"),
        ({"sweep": xr.Dataset()}, dshift.InvalidInput, "`bandwidth` is needed"),
    ],
)
def test_errors_say_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    good: xr.Dataset,
    change: Any,
    error: Any,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    call = {"result": good, "data": GOOD, "path": "report.html", **change}
    with pytest.raises(error, match=message):
        report(call.pop("result"), call.pop("data"), call.pop("path"), **call)
    assert list(tmp_path.iterdir()) == []


def test_turned_data_is_refused(tmp_path: Path) -> None:
    data = xr.DataArray(humps([[5, 6], [7, 15]]), dims=("a", "b", "bin"))
    with pytest.raises(dshift.InvalidInput, match="give the data that was clustered"):
        report(fit(data), data.transpose("b", "a", "bin"), tmp_path / "r.html")


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.replace", "os.fdopen"])
def test_the_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: xr.Dataset, step: str
) -> None:
    target = tmp_path / "report.html"
    target.write_text("the old one")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(step, full)
        with pytest.raises(dshift.InvalidInput, match=r"cannot be written \(No space left"):
            report(good, GOOD, target)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == "the old one"
    assert report(good, GOOD, target) == target
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
