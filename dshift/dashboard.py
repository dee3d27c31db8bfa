"""The page `/dshift` on the Dask scheduler's dashboard, and the events that feed it.

The engine posts events on `TOPIC`; a `JobBoard` on the scheduler keeps the jobs for the page. As it
runs on the scheduler, it imports `distributed`; other modules import this one lazily.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dshift.dashboard_html import (
    CLUSTER_HTML,
    CSS,
    GRID_CSS,
    JOB_HTML,
    MAX_WORKERS,
    STAGES,
    ratio,
    template,
)

TOPIC = "dshift"
MAX_JOBS = 20  # the latest
MAX_POINTS = 600  # blocks in a job's charts, the latest
RECENT = 50  # blocks that the rate is taken over
Event = dict[str, Any]


def _event(job: str, what: str, **content: Any) -> Event:
    return {"job": job, "what": what, "time": time.time(), **content}


def start_event(
    job: str,
    *,
    source: str,
    n_samples: int,
    n_bins: int,
    n_seeds: int,
    n_blocks: int,
    bandwidth: str,
    metric: str,
    client: str = "",
) -> Event:
    """Return the event that opens a job; if the client of id `client` leaves, so does the job."""
    sizes = {"n_samples": n_samples, "n_bins": n_bins, "n_seeds": n_seeds, "n_blocks": n_blocks}
    texts = {"source": source, "bandwidth": bandwidth, "metric": metric, "client": client}
    return _event(job, "start", **sizes, **texts)


def stage_event(job: str, name: str) -> Event:
    """Return the event that a job enters one of `STAGES`."""
    return _event(job, "stage", name=name)


def block_event(
    job: str, *, n_seeds: int, n_modes: int, n_iter_sum: int, share_evaluated: float, reused: bool
) -> Event:
    """Return the event that a block of seeds is stationary, or several that ended together.

    `n_modes` are the distinct modes of the job so far. The rest is the block's own: its seeds, the
    steps they took together, and the distances computed over those of a full scan at each step. A
    block `reused` from a store counts neither for the rate nor for the share evaluated.
    """
    counts = {"n_seeds": n_seeds, "n_modes": n_modes, "n_iter_sum": n_iter_sum}
    return _event(job, "block", **counts, share_evaluated=share_evaluated, reused=reused)


def end_event(
    job: str, state: str, *, n_modes: int = 0, n_clusters: int | None = None, error: str = ""
) -> Event:
    """Return the event that closes a job as `done`, `failed` or `interrupted`."""
    return _event(job, "end", state=state, n_modes=n_modes, n_clusters=n_clusters, error=error)


class Job:
    """What is known of one run, kept bounded."""

    def __init__(self, msg: Event, received: float) -> None:
        self.token, self.source, self.bandwidth, self.metric, self.client = (
            str(msg.get(name, "")) for name in ("job", "source", "bandwidth", "metric", "client")
        )
        self.n_samples, self.n_bins, self.n_seeds, self.n_blocks = (
            int(msg.get(name, 0)) for name in ("n_samples", "n_bins", "n_seeds", "n_blocks")
        )
        self.started = self.last = float(msg.get("time", received))  # by the client's clock
        self.received = received  # the same event as `last`, by the scheduler's clock
        self.state, self.stage, self.error = "running", STAGES[0], ""
        self.n_done = self.n_fresh = self.n_iter = self.n_modes = 0  # fresh: not reused
        self.evaluated = 0.0  # seeds times share
        self.n_clusters: int | None = None
        self.points = deque([(0.0, 0, 0, math.nan, math.nan)], maxlen=MAX_POINTS)  # as in CHARTS
        self.recent = deque([(self.started, 0)], maxlen=RECENT + 1)  # time, fresh seeds so far

    def take(self, msg: Event, received: float) -> None:
        """Take in an event of this job."""
        self.last, self.received = float(msg.get("time", received)), received
        if msg["what"] == "stage":
            self.stage = str(msg["name"])
            if self.stage == "shift":
                self.recent = deque([(self.last, self.n_fresh)], maxlen=RECENT + 1)
        elif msg["what"] == "block":
            self._take_block(msg)
        elif msg["what"] == "end":
            self.state, self.error = str(msg["state"]), str(msg.get("error", ""))
            self.n_modes = int(msg.get("n_modes") or self.n_modes)
            self.n_clusters = None if msg.get("n_clusters") is None else int(msg["n_clusters"])

    def _take_block(self, msg: Event) -> None:
        n, n_iter, share = int(msg["n_seeds"]), int(msg["n_iter_sum"]), math.nan
        self.n_done, self.n_iter = self.n_done + n, self.n_iter + n_iter
        self.n_modes = max(self.n_modes, int(msg["n_modes"]))
        if not msg.get("reused"):
            share = float(msg["share_evaluated"])
            self.n_fresh += n
            self.evaluated += n * share
            self.recent.append((self.last, self.n_fresh))
        after, steps = max(self.last - self.started, 0.0), ratio(n_iter, n)
        self.points.append((after, self.n_done, self.n_modes, steps, share))

    @property
    def n_stationary(self) -> int:
        """Seeds that have ended: all when the job is done, as a sweep does not tell of blocks."""
        return self.n_seeds if self.state == "done" else self.n_done

    def rate(self) -> float:
        """Return the seeds a second over the recent blocks; NaN where unknown."""
        (t0, n0), (t1, n1) = self.recent[0], self.recent[-1]
        return ratio(n1 - n0, max(t1 - t0, 0.0))

    def elapsed(self, now: float) -> float:
        """Return the seconds since the start, or that the job took."""
        idle = now - self.received if self.state == "running" else 0.0
        return max(self.last - self.started + idle, 0.0)

    def time_left(self, now: float) -> float:
        """Return the seconds until the last seed is stationary; NaN where unknown."""
        # Falls between two blocks, but no further than their usual gap: a stall is not the end.
        gap = ratio(self.recent[-1][0] - self.recent[0][0], len(self.recent) - 1)
        idle = min(self.elapsed(now) - (self.recent[-1][0] - self.started), gap)
        left = max(self.n_seeds - self.n_done, 0)
        return max(ratio(left, self.rate()) - idle, 0.0) if left else 0.0


class JobBoard(SchedulerPlugin):
    """The jobs of a cluster, newest last, and their page on its dashboard."""

    name = "dshift-board"
    idempotent = True

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque(maxlen=MAX_JOBS)

    async def start(self, scheduler: Any) -> None:
        """Take in what was posted before, and add the page if there is a dashboard."""
        for received, msg in scheduler.get_events(TOPIC):
            with suppress(KeyError, TypeError, ValueError):  # not an event of ours
                self._take(msg, received)
        _add_page(self, scheduler)

    def log_event(self, topic: str, msg: Any) -> None:
        """Take in an event."""
        if topic == TOPIC:
            self._take(msg, time.time())

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Close the jobs that a client leaves unfinished."""
        for job in self.jobs:
            if client == job.client and job.state == "running":
                job.last += time.time() - job.received
                job.state = "interrupted"

    def _take(self, msg: Event, received: float) -> None:
        same = (j for j in self.jobs if j.token == str(msg["job"]) and j.state == "running")
        job = next(same, None)
        if msg["what"] == "start":
            if job is not None:
                job.state = "interrupted"
            self.jobs.append(Job(msg, received))
        elif job is not None:
            job.take(msg, received)


def dask_setup(scheduler: Any) -> None:
    """Set up the board: `dask scheduler --preload dshift.dashboard`."""
    scheduler.add_plugin(JobBoard(), idempotent=True)


def _add_page(board: JobBoard, scheduler: Any) -> None:
    """Add the page and its menu entry to the running dashboard, if there is one."""
    apps = [a for a in scheduler.http_application.applications if hasattr(a, "app_paths")]
    paths = {path: app for app in apps for path in app.app_paths}
    if "/status" not in paths or "/dshift" in paths:
        return
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables
    from tornado.ioloop import IOLoop

    menu = template_variables(scheduler)  # cached: the very list that the other pages show
    menu["pages"].insert(-1, "dshift")
    pages, prefix = {"/dshift": partial(_make_page, board)}, paths["/status"].prefix
    app = BokehApplication(pages, scheduler, prefix=prefix, template_variables=menu)
    scheduler.http_application.add_application(app)
    app.initialize(IOLoop.current())
    app.start()


def _make_page(board: JobBoard, scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    from bokeh import models, plotting
    from distributed.dashboard.components.scheduler import BOKEH_THEME, env

    bk: Any = models  # whose types fit no keyword dictionaries
    wide = {"sizing_mode": "stretch_width", "margin": 0, "stylesheets": [CSS]}
    job, cluster = bk.Div(disable_math=True, **wide), bk.Div(disable_math=True, **wide)
    charts, draw = _make_charts(bk, plotting.figure)
    root = bk.Column(job, cluster, sizing_mode="stretch_width")
    job_html, cluster_html = template(JOB_HTML), template(CLUSTER_HTML)

    def update() -> None:
        now, jobs, workers = time.time(), list(board.jobs)[::-1], list(scheduler.workers.values())
        many = len(workers) > MAX_WORKERS
        workers.sort(key=lambda w: -w.memory.process if many else (len(str(w.name)), str(w.name)))
        job.text = job_html(job=jobs[0] if jobs else None, now=now)
        cluster.text = cluster_html(workers=workers, jobs=jobs[1:], now=now)
        if jobs:
            draw(jobs[0], now)
            root.children = [job, charts, cluster]

    update()
    doc.add_root(root)
    doc.add_periodic_callback(update, 500)  # milliseconds
    doc.title, doc.theme, doc.template = "dshift", BOKEH_THEME, env.get_template("simple.html")
    doc.template_variables.update(extra)


def _make_charts(bk: Any, figure: Any) -> tuple[Any, Callable[[Job, float], None]]:
    """Return a grid of charts that folds to the window's width, and what draws a job there."""
    source = bk.ColumnDataSource({name: [] for name in ("time", *CHARTS)})
    x_range, y_ranges = bk.Range1d(0, 10), [bk.Range1d(0, 1) for _ in CHARTS]

    def chart(name: str, y_range: Any) -> Any:
        title, form, mark, _ = CHARTS[name]
        hover = bk.HoverTool(tooltips=[(title, f"@{name}{{{form}}}"), ("after", "@time{00:00:00}")])
        fig = figure(title=title, x_range=x_range, y_range=y_range, tools=[hover], **SHAPE, **PAPER)
        getattr(fig, mark)("time", name, source=source, color="#3b6ea5", **LOOKS[mark])
        fig.xaxis.formatter = bk.NumeralTickFormatter(format="00:00:00")
        fig.yaxis.formatter = bk.NumeralTickFormatter(format=form)
        fig.axis.ticker.desired_num_ticks = 4
        fig.xaxis.ticker.min_interval = 1  # labels are of whole seconds
        fig.axis.axis_line_color = fig.axis.major_tick_line_color = "#bbbbbb"
        fig.axis.minor_tick_line_color = fig.outline_line_color = None
        return fig

    def draw(job: Job, now: float) -> None:
        times, *curves = ([*column] for column in zip(*job.points, strict=True))
        # A job that has ended fills the chart, however short it was.
        room = 2 if job.state == "running" else 0.1
        x_range.start, x_range.end = times[0], max(times[0] + room, 1.02 * job.elapsed(now))
        for y_range, curve, (*_, least) in zip(y_ranges, curves, CHARTS.values(), strict=True):
            y_range.end = 1.08 * max([least, *(y for y in curve if not math.isnan(y))])
        y_ranges[0].end = 1.08 * max(job.n_seeds, 1)
        if times != source.data["time"] or curves[0] != source.data["done"]:
            source.data = dict(zip(("time", *CHARTS), (times, *curves), strict=True))

    figures = [chart(*item) for item in zip(CHARTS, y_ranges, strict=True)]
    return bk.Column(*figures, sizing_mode="stretch_width", stylesheets=[GRID_CSS]), draw


CHARTS = {  # title, format, glyph, least top of the axis
    "done": ("Seeds stationary", "0,0", "line", 1),
    "modes": ("Modes found", "0,0", "line", 4),
    "steps": ("Steps per seed, over time", "0,0", "scatter", 4),
    "share": ("Data evaluated, over time", "0.0%", "scatter", 0.004),
}
LOOKS = {"line": {"line_width": 2}, "scatter": {"size": 7}}  # a short job has a dot or two
BOX = {"border": "1px solid #e3e3e3", "border-radius": "6px", "overflow": "hidden"}
SHAPE = {"height": 200, "sizing_mode": "stretch_width", "toolbar_location": None, "styles": BOX}
PAPER = {
    "background_fill_color": "white",
    "border_fill_color": "white",
    "min_border": 30,
    "min_border_right": 25,  # half of a label at the end of the axis
}
