"""A world map of wind regimes: raw cube -> histograms -> sweep -> fit -> report, on a Dask cluster.

    python examples/winds/run.py --data monthly_navy_winds.cdf

The cube is in Debian's package ferret-datasets; once that is installed, --data is not needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from distributed import Client, LocalCluster
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

import dshift
from examples.common import COLORS, PALE, Page, make_parser
from examples.winds.photograph import photographed

DEBIAN_FILE = Path("/usr/share/ferret-vis/data/monthly_navy_winds.cdf")
EDGES = np.arange(-27.0, 22.0)  # m/s
NAMES = {"FNOCY": "lat", "FNOCX": "lon", "TIME": "time"}
VALLEY = 0.1
BANDWIDTH = 1.0  # m/s
N_SWEPT = 1_000
SMALL_WIDTHS = (1.0, 2.0, 4.0)
N_SHOWN = 10
BLOCK_SIZE = 512
# Without coastlines, names say where one is: longitude, latitude.
PLACES = {
    "North America": (-100, 45),
    "South America": (-60, -12),
    "Europe": (15, 50),
    "Africa": (20, 8),
    "Asia": (95, 55),
    "Australia": (134, -25),
    "Antarctica": (0, -80),
    "Pacific": (-150, 0),
    "Atlantic": (-33, 22),
    "Indian Ocean": (77, -18),
}


def open_cube(file: Path | None) -> xr.Dataset:
    """Open the cube lazily, with longitudes from -180 to 180."""
    path = file or DEBIAN_FILE
    if not path.is_file():
        raise SystemExit(
            f"there is no file {path}. Install Debian's package ferret-datasets, or unpack it "
            "elsewhere (apt-get download ferret-datasets; dpkg-deb -x ferret-datasets*.deb .) and "
            "give its monthly_navy_winds.cdf as --data."
        )
    # The calendar of this file is of no use here: only how often a wind blows is.
    cube = xr.open_dataset(path, engine="scipy", decode_times=False, chunks={"FNOCY": 20})
    cube = cube.rename(NAMES)
    cube = cube.assign_coords(lon=(cube.lon + 180) % 360 - 180).sortby("lon")
    cube.UWND.attrs["units"] = "m/s"
    return cube


def describe(result: xr.Dataset, cube: xr.Dataset) -> list[dict[str, object]]:
    """Return the largest regimes: how much of the Earth they cover, where, and how they blow."""
    area = np.cos(np.deg2rad(cube.lat)) * xr.ones_like(cube.lon)
    rows = []
    for label in range(min(N_SHOWN, result.sizes["cluster"])):
        inside = result.label == label
        weight = (area * inside).transpose("lat", "lon")
        winds = cube.UWND.where(inside).quantile([0.1, 0.5, 0.9]).values
        lats = np.repeat(cube.lat.values, inside.sum("lon").values)
        low, high = np.quantile(lats, [0.1, 0.9])
        rows.append(
            {
                "regime": label,
                "of the Earth": f"{float(weight.sum() / area.sum()):.1%}",
                "mostly between": f"{_degrees(low)} and {_degrees(high)}",
                "eastward wind in a tenth, half and nine tenths of the months": " / ".join(
                    f"{wind:+.1f}" for wind in winds
                ),
            }
        )
    return rows


def _degrees(latitude: float) -> str:
    return f"{abs(latitude):.0f}° {'N' if latitude >= 0 else 'S'}"


def draw_map(page: Page, result: xr.Dataset, cube: xr.Dataset) -> None:
    """Draw the regimes, and below them the modes that `valley` joined to regimes."""
    figure, axes = plt.subplots(2, 1, figsize=(8, 8.4), sharex=True)
    (west, east), (south, north) = (_edges(axis) for axis in (cube.lon.values, cube.lat.values))
    titles = {
        "label": f"{result.sizes['cluster']} wind regimes",
        "mode_index": f"before joining: {result.sizes['mode']} modes (grey: the small ones)",
    }
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        axis.imshow(
            _colored(result[name].transpose("lat", "lon").values),
            origin="lower",
            extent=(west, east, south, north),
        )
        for place, (lon, lat) in PLACES.items():
            style = {"ha": "center", "va": "center", "fontsize": 8, "color": "white"}
            axis.text(lon, lat, place, **style)
        axis.set(title=title, xticks=range(-180, 181, 60), yticks=range(-90, 91, 30))
        axis.set(xlim=(west, east), ylim=(-90, 90))
        axis.xaxis.set_major_formatter("{x:g}°")
        axis.yaxis.set_major_formatter("{x:g}°")
    page.picture("map.png", figure)


def _edges(centers: NDArray[np.float64]) -> tuple[float, float]:
    """Return where the first cell of an even grid begins and the last one ends."""
    half = (centers[-1] - centers[0]) / (len(centers) - 1) / 2
    return float(centers[0] - half), float(centers[-1] + half)


def _colored(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    image = np.full((*labels.shape, 3), to_rgb(PALE))
    for label, color in enumerate(COLORS[:N_SHOWN]):
        image[labels == label] = to_rgb(color)
    return image


def plateau_rows(swept: xr.Dataset) -> list[dict[str, object]]:
    """Return the ranges of bandwidths over which the regimes stay."""
    plateaus = [swept.isel(plateau=i) for i in range(swept.sizes["plateau"])]
    return [
        {
            "bandwidths, m/s": f"{float(one.plateau_start):.2f} to {float(one.plateau_stop):.2f}",
            "length": int(one.plateau_length),
            "clusters": int(one.plateau_clusters),
            "of 2 % or more": int(one.plateau_large),
        }
        for one in plateaus
    ]


def main() -> None:
    """Go from the raw cube to the map."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, metavar="FILE", help="monthly_navy_winds.cdf, or .gz")
    options = parser.parse_args()
    page = Page(__file__, options.out)
    cube = open_cube(options.data)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        # Lazy until `compute`: the workers read and count.
        counts = dshift.histogram(cube.UWND, EDGES, dim="time").compute()
        widths, n_swept = (SMALL_WIDTHS, 100) if options.small else (None, N_SWEPT)
        swept = dshift.sweep(counts, widths, sample=n_swept, client=client)
        address = client.dashboard_link.rsplit("/", 1)[0]
        # Blocks smaller than it would choose: there is more to see on the page.
        with (
            dshift.engine.settings(block_size=BLOCK_SIZE),
            photographed(f"{address}/dshift", page.folder / "dashboard.png"),
        ):
            result = dshift.fit(counts, BANDWIDTH, valley=VALLEY, client=client)
    title = "Wind regimes of the world"
    path = dshift.report(result, counts, page.folder / "report.html", sweep=swept, title=title)
    print(f"wrote {path}")
    page.table("regimes", describe(result, cube))
    page.table("plateaus", plateau_rows(swept))
    draw_map(page, result, cube)


if __name__ == "__main__":
    main()
