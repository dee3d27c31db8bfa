"""The command line."""

from __future__ import annotations

import time
from json import dumps
from pathlib import Path
from typing import Any

import click

import dshift
from dshift.cli_run import fit, predict, sweep
from dshift.outputs import check_new, write_new
from dshift.terminal import (
    EXIT_CODES,
    BadInput,
    Commands,
    Numbers,
    bin_dim_option,
    json_option,
    open_data,
    overwrite_option,
    run_options,
    session,
    variable_option,
)

# Clusters that the demo lists.
LISTED = 12


@click.group(
    cls=Commands,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DSHIFT"},
)
@click.version_option(dshift.__version__, prog_name="dshift")
def main() -> None:
    """Cluster histograms at any scale, without choosing how many clusters.

    A day's work, from raw values to a page to show:

    \b
      dshift histogram winds.nc hist.zarr --dim time --bins 64
      dshift sweep hist.zarr
      dshift fit hist.zarr found.zarr --bandwidth auto
      dshift report found.zarr hist.zarr report.html

    Paths are Zarr stores or URLs of them (s3://...); IN may also be netCDF. Results go to stdout,
    progress to stderr. Every option can be set in the environment: `--bandwidth` of `fit` is
    DSHIFT_FIT_BANDWIDTH. `dshift COMMAND --help` says more.
    """


@main.command()
@click.argument("data", metavar="IN")
@click.argument("out")
@click.option("--bins", type=click.IntRange(1), help="How many bins, over the range of the data.")
@click.option("--edges", type=Numbers(), help="Edges of the bins, in the data's unit.")
@click.option("--quantiles", is_flag=True, help="With --bins: as many values in each bin.")
@click.option("--dim", multiple=True, help="Dimension to count over; may be repeated.")
@variable_option
@click.option("--id", help="Of a Parquet table: column that names the sample.")
@click.option("--value", help="Of a Parquet table: column with the values.")
@click.option("--density", is_flag=True, help="Divide by totals and widths, for plots.")
@click.option(
    "--outside",
    type=click.Choice(["raise", "drop", "clip"]),
    default="raise",
    show_default=True,
    help="Values beyond the edges: stop, leave out, or count in the end bins.",
)
@click.option("--units", help="Unit of the values.  [default: as stored]")
@overwrite_option
@run_options
@json_option
def histogram(
    data: str,
    out: str,
    edges: list[float] | None,
    quantiles: bool,
    dim: tuple[str, ...],
    variable: str | None,
    overwrite: bool,
    scheduler: str | None,
    workers: int | None,
    progress: bool | None,
    json: bool,
    **options: Any,
) -> None:
    """Count raw values in IN into one histogram per sample, in the Zarr store OUT.

    IN is a cube (netCDF or Zarr, counted over --dim), or a long table (Parquet, with --id and
    --value: series of different lengths). The edges travel with the histograms, so that `fit`
    measures in the data's own unit.

    \b
      dshift histogram winds.nc hist.zarr --dim time --bins 64
      dshift histogram flights.parquet hist.zarr --id flight --value altitude --edges 0,100,300
    """
    from dshift.summary import as_text

    check_new(out, overwrite, data)
    table = options["id"] or options["value"]
    raw = data if table else _open_cube(data, variable)
    with session(scheduler, workers, progress):
        counted = dshift.histogram(
            raw,
            "quantiles" if quantiles else edges,
            dim=list(dim) or None,
            **options,
        )
        write_new(counted.to_dataset(), out)
    sizes = {str(name): size for name, size in counted.sizes.items()}
    if json:
        click.echo(dumps({"store": out, "variable": counted.name, "shape": sizes}))
    else:
        click.echo(f"{as_text(sizes)}: {out}")


def _open_cube(path: str, variable: str | None) -> Any:
    import xarray as xr

    opened = open_data(path)
    if not isinstance(opened, xr.Dataset):
        try:
            opened = xr.open_zarr(path, consolidated=False)
        except FileNotFoundError:
            raise BadInput(f"{path}: there is no Zarr group or netCDF file.") from None
    names = sorted(map(str, opened.data_vars))
    if variable is None and len(names) == 1:
        variable = names[0]
    if variable not in names:
        raise BadInput(f"--variable: choose one of {', '.join(names)} in {path}.")
    return opened[variable]


@main.command()
@click.argument("result")
@click.argument("data", metavar="IN")
@click.argument("out", metavar="OUT.html")
@click.option("--sweep", help="Store of `dshift sweep`, to show its curve.")
@click.option("--title", help="Heading of the page.")
@variable_option
@bin_dim_option
def report(result: str, data: str, out: str, sweep: str | None, **options: Any) -> None:
    """Show the clusters in RESULT, found in IN, on one self-contained page OUT.html.

    IN must hold the histograms that were clustered; others are refused. The page needs no network.

    \b
      dshift report found.zarr hist.zarr report.html
      dshift report found.zarr hist.zarr report.html --sweep sweep.zarr --title "Winds"
    """
    curve = None if sweep is None else _open_sweep(sweep)
    page = dshift.report(result, open_data(data), out, sweep=curve, **options)
    click.echo(f"report: {page}")


def _open_sweep(path: str) -> Any:
    import xarray as xr

    try:
        return xr.open_zarr(path, consolidated=False).load()
    except FileNotFoundError:
        raise BadInput(f"--sweep {path}: there is no store of `dshift sweep`.") from None


@main.command()
@click.argument("store")
@json_option
def info(store: str, json: bool) -> None:
    """Say what STORE holds: a result, or how far an unfinished fit is.

    \b
      dshift info found.zarr
      dshift info found.zarr --json | jq .cluster_sizes
    """
    from dshift.model import open_result
    from dshift.summary import as_text, describe_result, describe_store

    found = describe_store(store)
    if json:
        click.echo(dumps(found))
        return
    hidden = {"cluster_sizes", "n_seeds_done", "n_blocks_done"}
    shown = {key: value for key, value in found.items() if key not in hidden}
    width = max(map(len, shown))
    for key, value in shown.items():
        click.echo(f"{key:<{width}}  {as_text(value) if key == 'shape' else value}")
    if found["state"] == "unfinished":
        total = found.get("n_seeds")
        share = f" of {total} ({found['n_seeds_done'] / total:.0%})" if total else ""
        click.echo(
            f"\n{found['n_seeds_done']} seeds{share} are done, in {found['n_blocks_done']} blocks; "
            "the `dshift fit` that began this continues it"
        )
    elif "cluster_sizes" in found:
        click.echo(f"\n{describe_result(open_result(store))}")


@main.command()
@click.option("--out", default="dshift-demo", show_default=True, help="Folder to write into.")
@click.option("--samples", default=1000, show_default=True, type=click.IntRange(2))
@click.option(
    "--bandwidth", default=4.0, show_default=True, type=click.FloatRange(0, min_open=True)
)
def demo(out: str, samples: int, bandwidth: float) -> None:
    """Make the paper's synthetic histograms, cluster them, and draw what was found.

    Writes a Zarr store of histograms, the result as a Zarr store, and a picture.

    \b
      dshift demo
      dshift demo --samples 10000 --out big-demo
    """
    import numpy as np
    import xarray as xr

    from dshift.demo import agreement, draw_clusters, synthetic

    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--out {out}: this is a file; give a folder.")
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
    for label in range(min(result.sizes["cluster"], LISTED)):
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


for command in (fit, sweep, predict):
    main.add_command(command)
