"""What the commands share: options, errors as one line, signals, clusters, inputs."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click

from dshift.errors import BlockFailed, ClusterLost, DshiftError, PlanRefused
from dshift.redaction import public_name, public_text

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_CODES = """\b
Exit codes:
  0    done
  1    a fault in dshift itself, with a traceback
  2    a wrong option, path or input
  3    the plan was refused: the job does not fit into memory
  4    a block failed; what was stored stays good
  5    the cluster was lost or never reached; what was stored stays good
  75   fit was interrupted (Ctrl-C, SIGTERM): the same command continues
  130  another command was interrupted"""


class BadInput(click.ClickException):
    """One line on stderr for a wrong option, path or input."""

    exit_code = 2


class Refused(click.ClickException):
    """One line on stderr for a job that does not fit."""

    exit_code = 3


class Failed(click.ClickException):
    """One line on stderr for a block that failed."""

    exit_code = 4


class Lost(click.ClickException):
    """One line on stderr for a cluster that went away, or is out of reach."""

    exit_code = 5


class Interrupted(click.ClickException):
    """One line on stderr after Ctrl-C."""

    exit_code = 130


class Resumable(click.ClickException):
    """One line on stderr that says how to continue.

    EX_TEMPFAIL of sysexits.h is "try again later": batch systems and Kubernetes can be told so.
    """

    exit_code = 75


class Commands(click.Group):
    """Commands whose expected errors are one line each, with an exit code of their own."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except PlanRefused as error:
            raise Refused(_one_line(error)) from error
        except ClusterLost as error:
            raise Lost(_one_line(error)) from error
        except BlockFailed as error:
            raise Failed(_one_line(error)) from error
        except BrokenPipeError:
            raise  # whoever read the output has seen enough: click ends in silence
        except (DshiftError, OSError) as error:
            raise BadInput(_one_line(error)) from error
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


def _one_line(error: BaseException) -> str:
    return public_text(" ".join(str(error).split())) or type(error).__name__


class Numbers(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Numbers with commas between them."""

    name = "NUMBER,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a list of floats."""
        if isinstance(value, list):
            return value
        try:
            return [float(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0,0.5,1", param, ctx)


class NumberOr(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number, or one of some words, each of which stands for a value."""

    def __init__(self, **words: Any) -> None:
        self.words = words
        self.name = "|".join(["NUMBER", *words])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a whole number as int, another as float, or what the word stands for."""
        if not isinstance(value, str) or value in self.words:
            return self.words.get(value, value)
        try:
            return int(value) if value.lstrip("+-").isdigit() else float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {' or '.join(self.words)}", param, ctx)


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options, listed in this order by --help."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


variable_option = click.option("--variable", help="Which array of IN, if there are several.")
bin_dim_option = click.option("--bin-dim", help="Dimension of the bins.  [default: the last]")
json_option = click.option("--json", is_flag=True, help="Print JSON, for scripts.")
invalid_option = click.option(
    "--invalid",
    type=click.Choice(["raise", "mask"]),
    default="raise",
    show_default=True,
    help="Samples that are no histograms: stop, or label them -1.",
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace OUT if it is a Zarr store."
)
metric_options = options(
    variable_option,
    bin_dim_option,
    click.option(
        "--metric",
        type=click.Choice(["wasserstein", "l1", "sqeuclidean"]),
        default="wasserstein",
        show_default=True,
    ),
    click.option(
        "--edges", type=Numbers(), help="Edges of the bins.  [default: as stored, or 1 apart]"
    ),
    click.option("--weights", help="Variable of IN with a weight for each sample."),
    invalid_option,
)
run_options = options(
    click.option(
        "--scheduler",
        envvar="DSHIFT_SCHEDULER",
        metavar="ADDRESS",
        help="Run on this Dask cluster: tcp://host:8786, tls://host:8786, or its scheduler file.",
    ),
    click.option("--workers", type=click.IntRange(1), help="Run on so many processes, made here."),
    click.option(
        "--progress/--no-progress",
        default=None,
        help="A bar on stderr, or silence.  [default: a bar on a terminal, else lines]",
    ),
)


@contextmanager
def session(scheduler: str | None, workers: int | None, progress: bool | None) -> Iterator[Any]:
    """Yield the Dask client to run on, None for this process; log lines where no bar is wanted."""
    if scheduler and workers:
        raise click.UsageError("--scheduler and --workers: give one of them.")
    if progress is None and not sys.stderr.isatty():
        _log_lines()
    if not scheduler and not workers:
        yield None
        return
    from dask.system import CPU_COUNT
    from distributed import Client, LocalCluster

    if workers:
        threads = max(1, CPU_COUNT // workers)
        where = LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0")
        with where, Client(where) as client:
            _say_where(client, progress)
            yield client
        return
    is_file = "://" not in str(scheduler)
    if is_file and not os.path.exists(str(scheduler)):
        raise BadInput(f"--scheduler {scheduler}: is no address, and no file is there.")
    try:
        # Dask's configuration says how long to try.
        client = Client(**{"scheduler_file" if is_file else "address": scheduler})
    except (OSError, ValueError) as error:
        raise Lost(
            f"--scheduler {scheduler}: cannot be reached ({_one_line(error)}); check the address, "
            "and that a scheduler runs there."
        ) from error
    except TypeError as error:
        # Dask's way to say that an address is tls:// and no certificate was given.
        raise BadInput(
            f"--scheduler {scheduler}: needs certificates ({_one_line(error)}); name their files "
            "in DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..._CLIENT__CERT and ..._CLIENT__KEY."
        ) from error
    with client:
        _say_where(client, progress)
        yield client


class _PublicLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return public_text(super().format(record))


def _log_lines() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_PublicLines("%(asctime)s %(name)s %(levelname)s %(message)s"))
    log = logging.getLogger("dshift")
    log.handlers = [handler]
    log.setLevel(logging.INFO)


def _say_where(client: Any, progress: bool | None) -> None:
    if progress is not False:
        click.echo(f"dashboard: {client.dashboard_link}", err=True)


@contextmanager
def resumable(store: str) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a fit in order, and say how to go on; a second one at once."""
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if stopped:
            os._exit(Resumable.exit_code)
        stopped = True
        # Not through `sys.stderr`, which may be in the middle of a write.
        os.write(2, b"\nstopping; once more to stop at once\n")
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join(["dshift", *map(public_name, sys.argv[1:])])
        raise Resumable(
            f"interrupted. Finished blocks are in {public_name(store)}; "
            f"this continues from them: {command}"
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def open_data(path: str) -> Any:
    """Return a path of Zarr as it is, and netCDF opened."""
    if not path.lower().endswith((".nc", ".nc4", ".h5", ".hdf5", ".cdf")):
        return path
    import xarray as xr

    if not os.path.exists(path):
        raise BadInput(f"{path}: there is no such file.")
    try:
        return xr.open_dataset(path, chunks={})
    except ValueError as error:
        raise BadInput(
            f"{path}: cannot be read as netCDF ({_one_line(error)[:200]}); check the file, and "
            "that h5netcdf is installed (pip install h5netcdf)."
        ) from error


def read_weights(path: str, name: str | None) -> Any:
    """Return the weights that are stored beside the histograms."""
    if name is None:
        return None
    import xarray as xr

    data = open_data(path)
    try:
        dataset = data if isinstance(data, xr.Dataset) else xr.open_zarr(data, consolidated=False)
        return dataset[name].load()
    except (KeyError, FileNotFoundError):
        raise BadInput(f"--weights {name}: there is no such variable in {path}.") from None
