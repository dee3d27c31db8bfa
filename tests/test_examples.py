"""Every example is run as a reader would run it, small; and what they share is tested alone."""

from __future__ import annotations

import gzip
import http.server
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from examples.common import MOST_PICTURE_BYTES, fill, markdown_table
from examples.new_metric.run import N_HOURS, center, distance
from examples.paper import climate
from examples.paper.convergence import walk
from examples.paper.flights import count_altitudes, simulate
from examples.paper.methods import Labelled, wasserstein_kmeans
from examples.paper.synthetic import draw_set
from examples.scaling import run as scaling
from examples.winds.run import open_cube
from tests.benchmarks import common, peers

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SECONDS = 900  # no example takes long, but a machine may be slow
FOLDERS = sorted(script.parent for script in EXAMPLES.glob("*/run.py"))


def run(name: str, out: Path, *arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run an example in a process of its own; return what it printed."""
    command = [sys.executable, EXAMPLES / name / "run.py", "--small", "--out", out, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def tables(readme: Path) -> dict[str, str]:
    """Return what stands between the markers of a README."""
    found = re.findall(
        r"<!-- table:(.*?) -->\n(.*?)<!-- /table -->", readme.read_text("utf-8"), re.DOTALL
    )
    return dict(found)


def write_climate(folder: Path, rng: np.random.Generator) -> None:
    """Write made-up files in NOAA's columns: one packed, one not, with a region to leave out."""
    folder.mkdir(exist_ok=True)
    for element, name in enumerate(("climdiv-pcpnst-v1.txt.gz", "climdiv-tmpcst-v1.txt"), 1):
        lines = []
        for state in [*range(1, 49), 110]:
            for year in range(1990, 2000):
                months = rng.gamma(2 + state % 3, 1 + state % 2, 12)
                values = "".join(f"{value:7.2f}" for value in months)
                lines.append(f"{state:03d}0{element:02d}{year}{values}\n")
        content = "".join(lines).encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)


def test_paper_runs(tmp_path: Path) -> None:
    write_climate(tmp_path / "data", np.random.default_rng(0))
    run("paper", tmp_path / "out", "--data", tmp_path / "data", "--parts", "convergence", "climate")
    found = tables(tmp_path / "out" / "README.md")
    assert "| 122 |" in found["convergence"]
    assert found["climate"].count("| rainfall | median shift |") >= 1
    for name in ("convergence.svg", "sweep.svg", "climate.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 1_000


@pytest.mark.slow
def test_tables_of_methods_run(tmp_path: Path) -> None:
    run("paper", tmp_path, "--parts", "synthetic", "flights")
    found = tables(tmp_path / "README.md")
    assert "| **Wasserstein median shift** | 1.0 | 1.00 |" in found["synthetic"]
    assert "| **Wasserstein median shift** | 1.0 | 1.00 |" in found["wasserstein"]
    assert "| Gaussian mixture |" in found["flights"]
    assert found["missions"].count("\n") == 10


def test_first_names_run_from_their_own_folder(tmp_path: Path) -> None:
    run("first_names", tmp_path, cwd=EXAMPLES / "first_names")
    found = tables(tmp_path / "README.md")
    assert "Mary, George, Margaret" in found["eras"]
    assert "Deborah" in found["eras"]
    assert "<html" in (tmp_path / "report.html").read_text("utf-8")[:2_000]


def test_new_metric_runs_and_its_laws_hold(tmp_path: Path) -> None:
    run("new_metric", tmp_path)
    rows = [line.split("|")[1:-1] for line in tables(tmp_path / "README.md")["laws"].splitlines()]
    assert len(rows) == 8
    assert all(tried == held for _, tried, held in rows[2:])


def test_winds_run_on_a_cube(tmp_path: Path) -> None:
    """A made-up cube: eastward in the south, westward in the north."""
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(-90, 90, 9), np.linspace(20, 360, 18)
    east = rng.normal(0, 2, (24, 9, 18)) - np.sign(lat)[None, :, None] * 8
    values = {name: (("TIME", "FNOCY", "FNOCX"), east) for name in ("UWND", "VWND")}
    cube = xr.Dataset(values, {"TIME": np.arange(24.0), "FNOCY": lat, "FNOCX": lon})
    cube.to_netcdf(tmp_path / "cube.nc", engine="scipy", format="NETCDF3_CLASSIC")
    out = tmp_path / "out"
    run("winds", out, "--data", tmp_path / "cube.nc")
    found = tables(out / "README.md")
    assert found["regimes"].count("\n") >= 4
    assert (out / "map.png").stat().st_size > 1_000
    assert (out / "report.html").is_file()


def test_winds_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="Install Debian's package ferret-datasets"):
        open_cube(tmp_path / "none.cdf")


@pytest.mark.slow
def test_scaling_runs_and_resumes(tmp_path: Path) -> None:
    run("scaling", tmp_path)
    found = tables(tmp_path / "README.md")
    assert "`dshift.fit`, seconds" in found["peers"]
    assert all("its times mean nothing" in text for text in found.values())
    kept = (tmp_path / "results.json").read_bytes()
    assert len(json.loads(kept)) == 5
    run("scaling", tmp_path, "--resume")
    assert (tmp_path / "results.json").read_bytes() == kept


def test_scaling_without_results_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--draw", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="holds nothing to draw"):
        scaling.main()


def test_a_peer_that_fails_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cdfs: np.ndarray) -> None:
        raise MemoryError("no room")

    ways = [peers.Peer("bad", fail), peers.Peer("good", lambda cdfs: np.zeros(len(cdfs), int))]
    monkeypatch.setattr(peers, "peers_for", lambda histograms: iter(ways))
    ours, bad, good = peers.compare(common.synthetic(60), (), enough_seconds=0)
    assert bad["error"] == "MemoryError: no room"
    assert "seconds" not in bad
    assert (ours["method"], good["clusters"]) == ("dshift.fit", 1)
    results = scaling.Results(Path("not written"))
    results.parts["peers, synthetic 60"] = {"rows": [ours, bad, good]}
    shown = {row["method"]: row["synthetic, 60"] for row in scaling.peer_rows(results)}
    assert shown["bad"] == "failed"
    assert float(shown["`dshift.fit`, seconds"]) > 0


def test_a_part_that_fails_does_not_lose_the_others(tmp_path: Path) -> None:
    results = scaling.Results(tmp_path / "results.json")
    results.measure("growth, 1", scaling.SMALL, lambda: 1 // 0)
    results.measure("growth, 2", scaling.SMALL, lambda: [{"n": 2}])
    assert results.failed == ["growth, 1"]
    kept = scaling.Results(results.path)
    assert kept.rows("growth") == [{"n": 2}]
    assert "mean nothing" in kept.caption("growth")


# ---------------------------------------------------------------- what is committed


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_committed_readme_is_filled_in_and_shows_its_pictures(folder: Path) -> None:
    readme = folder / "README.md"
    filled = tables(readme)
    assert filled
    assert all(text.strip() for text in filled.values()), filled.keys()
    assert f"examples/{folder.name}/run.py" in readme.read_text("utf-8")
    pictures = [p for p in folder.iterdir() if p.suffix in (".svg", ".png")]
    assert pictures
    index = (EXAMPLES / "README.md").read_text("utf-8")
    assert f"({folder.name}/README.md)" in index
    for picture in pictures:
        assert f"({picture.name})" in readme.read_text("utf-8")
        assert picture.stat().st_size <= MOST_PICTURE_BYTES


@pytest.mark.parametrize(
    "page", ["README.md", "examples/README.md", *(f"examples/{f.name}/README.md" for f in FOLDERS)]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    for link in links:
        assert link.startswith("https://") or ((ROOT / page).parent / link).exists(), link


# ---------------------------------------------------------------- the parts


def test_table_fills_one_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table:x -->\nold\n<!-- /table -->\nb\n", "utf-8")
    for _ in range(2):
        fill(page, "x", markdown_table([{"n": 1, "f": 0.5, "none": None}]))
        text = "| n | f | none |\n| --- | --- | --- |\n| 1 | 0.50 |  |"
        assert page.read_text("utf-8") == f"a\n<!-- table:x -->\n{text}\n<!-- /table -->\nb\n"
    assert markdown_table([]) == "(none)"
    with pytest.raises(SystemExit, match="0 places for the table 'y'"):
        fill(page, "y", "")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A web site with the listing of a folder, as NOAA's is."""
    write_climate(tmp_path / "site", np.random.default_rng(1))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "site"))

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_climate_is_downloaded(site: str, tmp_path: Path) -> None:
    files = climate.find_files(None, tmp_path, site)
    series = climate.read_series(files["rainfall"])
    assert series.shape == (48, 120)
    assert series.state.values.tolist() == climate.STATES


def test_climate_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no file climdiv-pcpnst-\*"):
        climate.find_files(tmp_path, tmp_path)
    with pytest.raises(SystemExit, match="pass their folder as --data"):
        climate.find_files(None, tmp_path, (tmp_path / "nowhere").as_uri())


def test_every_state_has_one_tile() -> None:
    assert sorted(re.findall(r"[A-Z]{2}", climate.TILES)) == sorted(climate.STATES)
    assert set(climate.COAST) < set(climate.STATES)


def test_kmeans_under_w1_finds_two_kinds() -> None:
    one = draw_set(3)
    scores = [one.score(wasserstein_kmeans(one.cdfs, 2, None, seed)) for seed in range(5)]
    assert np.mean(scores) > 0.9


def test_walk_by_the_definition_rises() -> None:
    one = draw_set(4, 60)
    for start in range(10):
        _, heights = walk(one.cdfs, start, 4.0)
        assert (np.diff(heights) >= -1e-9).all()


def test_flights_are_histograms_of_ragged_series() -> None:
    table = simulate(0, n_each=2, n_outliers=1)
    lengths = table.groupby("flight").size()
    assert lengths.nunique() > 5
    one = count_altitudes(table)
    assert one.counts.sum(axis=1).tolist() == lengths.tolist()
    assert one.n_classes == 7
    assert one.truth.tolist() == [*np.repeat(range(7), 2), -1]


def test_outliers_are_not_scored() -> None:
    one = Labelled(np.ones((5, 2)), np.array([0, 0, 1, 1, -1]))
    assert one.score(np.array([0, 0, 1, 1, 1])) == 1.0


# ---------------------------------------------------------------- the circular metric


def least_work(a: np.ndarray, b: np.ndarray) -> float:
    """Move mass between hours on a circle, by linear programming."""
    n = len(a)
    hours = np.arange(n)
    apart = np.abs(hours[:, None] - hours)
    cost = np.minimum(apart, n - apart).ravel()
    rows = [np.kron(np.eye(n)[i], np.ones(n)) for i in range(n)]
    columns = [np.kron(np.ones(n), np.eye(n)[i]) for i in range(n)]
    done = linprog(cost, A_eq=np.array(rows + columns), b_eq=np.concatenate([a, b]))
    assert done.success
    return float(done.fun)


histograms = st.lists(st.integers(0, 9), min_size=6, max_size=6).filter(any)


@given(histograms, histograms)
def test_circular_distance_is_the_least_work(first: list[int], second: list[int]) -> None:
    a, b = (np.array(one) / sum(one) for one in (first, second))
    assert distance(a, b[None])[0] == pytest.approx(least_work(a, b), abs=1e-6)


@given(histograms, histograms, st.integers(1, 5))
def test_circular_distance_knows_no_midnight(
    first: list[int], second: list[int], hours: int
) -> None:
    a, b = (np.array(one) / sum(one) for one in (first, second))
    turned = distance(np.roll(a, hours), np.roll(b, hours)[None])
    assert turned == pytest.approx(distance(a, b[None]), abs=1e-12)


@given(st.lists(histograms, min_size=1, max_size=6))
def test_center_is_the_best_member(counts: list[list[int]]) -> None:
    rows = np.array([np.array(one) / sum(one) for one in counts])
    weights = np.arange(1.0, len(rows) + 1)
    best = weights @ distance(center(rows, weights), rows)
    assert all(best <= weights @ distance(row, rows) for row in rows)


def test_midnight_is_next_to_one_o_clock() -> None:
    hours = np.eye(N_HOURS)
    assert distance(hours[23], hours[[22, 23, 0, 1, 11]]).tolist() == [1, 0, 1, 2, 12]
