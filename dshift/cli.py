"""The command line."""

from __future__ import annotations

import time
from pathlib import Path

import click

import dshift


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dshift.__version__, prog_name="dshift")
def main() -> None:
    """Cluster histograms at any scale, without choosing how many clusters."""


@main.command()
@click.option("--out", default="dshift-demo", show_default=True, help="Folder to write into.")
@click.option("--samples", default=1000, show_default=True, type=click.IntRange(2))
@click.option(
    "--bandwidth", default=4.0, show_default=True, type=click.FloatRange(0, min_open=True)
)
def demo(out: str, samples: int, bandwidth: float) -> None:
    """Make the paper's synthetic histograms, cluster them, and draw what was found.

    Writes a Zarr store of histograms, the result as a Zarr store, and a picture.
    """
    import numpy as np
    import xarray as xr

    from dshift.demo import agreement, draw_clusters, synthetic

    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise click.ClickException(f"--out {out}: this is a file; give a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    data, found = folder / "histograms.zarr", folder / "result.zarr"
    synthetic(samples).chunk(sample=256).to_zarr(data, mode="w", consolidated=False)
    click.echo(f"{samples} histograms of two kinds, 100 draws each, in {data}", err=True)

    started = time.perf_counter()
    result = dshift.fit(data, bandwidth, variable="counts", valley=0.1, store=found, progress=True)
    seconds = time.perf_counter() - started

    truth = xr.open_zarr(data, consolidated=False).truth.values
    bins = np.arange(result.sizes["bin"])
    click.echo(f"\n{'cluster':>7} {'size':>6} {'density':>9} {'mean':>7} {'median':>7} {'pure':>6}")
    for label in range(min(result.sizes["cluster"], 12)):
        mode = int(np.argmax(result.cluster_of_mode.values == label))
        histogram = result.modes.values[mode]
        middle = int(np.searchsorted(np.cumsum(histogram), 0.5))
        members = truth[result.label.values == label]
        pure = np.bincount(members).max() / len(members)
        click.echo(
            f"{label:>7} {int(result.cluster_size[label]):>6} {float(result.density[mode]):>9.1f} "
            f"{(bins * histogram).sum():>7.2f} {middle:>7} {pure:>6.1%}"
        )
    score = agreement(result.label.values, truth)
    picture = draw_clusters(
        xr.open_zarr(data, consolidated=False).counts, result, folder / "clusters.svg"
    )
    click.echo(
        f"\n{result.attrs['n_clusters']} clusters from {result.attrs['n_modes']} modes in "
        f"{seconds:.1f} s; every seed stationary: "
        f"{'yes' if result.attrs['all_seeds_stationary'] else 'no'}; "
        f"agreement with the truth (adjusted Rand index): {score:.3f}"
    )
    click.echo(f"result:  {found}\npicture: {picture}")
