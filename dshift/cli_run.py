"""The commands that run on a cluster: fit, sweep, predict."""

from __future__ import annotations

import logging
import time
from json import dumps
from typing import Any

import click

import dshift
from dshift.environment import Configured
from dshift.outputs import check_new, write_new
from dshift.redaction import public_name
from dshift.terminal import (
    NumberOr,
    Numbers,
    bin_dim_option,
    invalid_option,
    json_option,
    metric_options,
    open_data,
    overwrite_option,
    read_weights,
    resumable,
    run_options,
    session,
    variable_option,
)

log = logging.getLogger("dshift")


@click.command(cls=Configured)
@click.argument("data", metavar="IN", envvar="DSHIFT_FIT_IN")
@click.argument("out", envvar="DSHIFT_FIT_OUT")
@click.option(
    "--bandwidth",
    type=NumberOr(auto="auto"),
    required=True,
    help="How far a sample reaches, in bins or the unit of the edges.",
)
@click.option(
    "--valley",
    type=NumberOr(none=None),
    default="0.1",
    show_default=True,
    help="Join modes unless the density between them falls by more than this share.",
)
@click.option("--min-cluster-size", type=float, default=1, show_default=True)
@click.option(
    "--seeds",
    type=NumberOr(all="all"),
    default="all",
    show_default=True,
    help="Climb from all samples, a number (500) or a share (0.1) of them.",
)
@click.option("--threads", type=click.IntRange(1), help="Of this process.  [default: CPUs]")
@click.option(
    "--block-size",
    type=click.IntRange(1),
    help="Seeds that are recorded together.  [default: by their number]",
)
@metric_options
@run_options
@json_option
def fit(
    data: str,
    out: str,
    weights: str | None,
    threads: int | None,
    block_size: int | None,
    scheduler: str | None,
    workers: int | None,
    progress: bool | None,
    json: bool,
    **options: Any,
) -> None:
    """Cluster the histograms in IN, and keep the result in the Zarr store OUT.

    Blocks are recorded in OUT as they end. The same command after an interruption continues from
    there, to the same bits; on a finished OUT it prints the result again.

    \b
      dshift fit hist.zarr found.zarr --bandwidth 2.5
      dshift fit s3://b/hist.zarr s3://b/found.zarr --bandwidth auto --scheduler tcp://host:8786
      DSHIFT_FIT_IN=hist.zarr DSHIFT_FIT_OUT=found.zarr DSHIFT_FIT_BANDWIDTH=2.5 dshift fit
    """
    from dshift.engine import settings
    from dshift.summary import describe_result, summarise

    started, shown = time.perf_counter(), public_name(out)
    with (
        resumable(out),
        session(scheduler, workers, progress) as client,
        settings(block_size=block_size, threads=threads),
    ):
        log.info("fit of %s into %s", public_name(data), shown)
        result = dshift.fit(
            open_data(data),
            weights=read_weights(data, weights),
            client=client,
            store=out,
            progress=progress,
            **options,
        )
    seconds = round(time.perf_counter() - started, 3)
    if json:
        click.echo(dumps({"store": shown, "seconds": seconds} | summarise(result)))
    else:
        click.echo(f"{describe_result(result)}; {seconds:.1f} s\nresult: {shown}")


@click.command()
@click.argument("data", metavar="IN")
@click.argument("out", required=False)
@click.option("--bandwidths", type=Numbers(), help="Which ones.  [default: 36, from the data]")
@click.option("--sample", type=NumberOr(all=None), default="2000", show_default=True)
@click.option("--valley", type=NumberOr(none=None), default="0.1", show_default=True)
@metric_options
@overwrite_option
@run_options
@json_option
def sweep(
    data: str,
    out: str | None,
    weights: str | None,
    overwrite: bool,
    scheduler: str | None,
    workers: int | None,
    progress: bool | None,
    json: bool,
    **options: Any,
) -> None:
    """Try many bandwidths on a sample of IN, and show the plateaus: where clusters stay.

    `--bandwidth auto` of `fit` takes the middle of the longest one. With OUT, the sweep is kept in
    a Zarr store, for `dshift report --sweep`.

    \b
      dshift sweep hist.zarr
      dshift sweep hist.zarr sweep.zarr --bandwidths 1,2,4,8 --sample all
    """
    from dshift.summary import describe_sweep, summarise_sweep

    if out is not None:
        check_new(out, overwrite, data)
    with session(scheduler, workers, progress) as client:
        swept = dshift.sweep(
            open_data(data),
            weights=read_weights(data, weights),
            client=client,
            progress=progress,
            **options,
        )
    if out is not None:
        write_new(swept, out)
    click.echo(dumps(summarise_sweep(swept)) if json else describe_sweep(swept))


@click.command()
@click.argument("result")
@click.argument("data", metavar="IN")
@click.argument("out")
@click.option("--fitted", help="The histograms that were fitted.  [default: where they were]")
@click.option(
    "--assign", type=click.Choice(["climb", "nearest"]), default="climb", show_default=True
)
@variable_option
@bin_dim_option
@invalid_option
@overwrite_option
@run_options
@json_option
def predict(
    result: str,
    data: str,
    out: str,
    fitted: str | None,
    overwrite: bool,
    scheduler: str | None,
    workers: int | None,
    progress: bool | None,
    json: bool,
    **options: Any,
) -> None:
    """Give the histograms in IN to the clusters in RESULT; labels go to the Zarr store OUT.

    They climb exactly as those did that were fitted, for which these must still be readable;
    `--assign nearest` takes the nearest mode instead, and needs RESULT alone.

    \b
      dshift predict found.zarr new.zarr labels.zarr
      dshift predict found.zarr new.zarr labels.zarr --assign nearest
    """
    import numpy as np

    from dshift.summary import table

    check_new(out, overwrite, data, result, fitted)
    with session(scheduler, workers, progress) as client:
        found = dshift.predict(
            result,
            open_data(data),
            fitted=None if fitted is None else open_data(fitted),
            client=client,
            progress=progress,
            **options,
        )
    write_new(found, out)
    labels, counts = np.unique(found.label.values, return_counts=True)
    sizes = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    inexact = int((~found.exact.values).sum())
    if json:
        click.echo(dumps({"store": out, "sizes": sizes, "n_inexact": inexact}))
        return
    click.echo(table(["cluster", "samples"], list(sizes.items())))
    click.echo(f"\n{inexact} of {found.label.size} by the nearest mode only\nlabels: {out}")
