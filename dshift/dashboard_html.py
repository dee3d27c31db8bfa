"""What the page `/dshift` looks like: its HTML and its styles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta

from dask.utils import format_bytes

STAGES = ("load", "shift", "merge", "label")
MAX_WORKERS = 48  # shown by name; of more, the fullest


def ratio(part: float, whole: float) -> float:
    """Return a share; NaN of nothing."""
    return part / whole if whole else math.nan


def template(html: str) -> Callable[..., str]:
    """Return what renders `html`, with every string in it escaped."""
    from jinja2 import Environment

    env = Environment(autoescape=True, trim_blocks=True)
    env.filters["n"] = lambda x, f=",": "-" if x is None or math.isnan(x) else format(x, f)
    env.filters["span"] = lambda s: "-" if math.isnan(s) else timedelta(seconds=math.ceil(s))
    env.filters["clock"] = lambda t: time.strftime("%d %b %H:%M:%S", time.localtime(t))
    env.filters["bytes"] = lambda n: format_bytes(n).replace(".00", "")
    env.globals.update(ratio=ratio, stages=STAGES, most=MAX_WORKERS)
    return env.from_string(html).render


JOB_HTML = """{% macro tile(id, title, value, note) %}
<div class="card"><h2>{{ title }}</h2><b id="{{ id }}">{{ value }}</b>
<small>{{ note }}</small></div>{% endmacro %}
{% if not job %}<section class="card"><h1>No dshift job has run on this cluster yet</h1>
<p>Fits show here, live: <code>dshift.fit(data, bandwidth, client=client)</code></p></section>
{% else %}{% set n_done = job.n_stationary %}
{% set share = 100 * n_done / (job.n_seeds or 1) %}
<section class="card {{ job.state }}"><header><b class="badge">{{ job.state }}</b>
<h1>{{ job.source }}</h1>{% if job.state == "running" %}<ol>{% for stage in stages %}
<li{% if stage == job.stage %} class="on"{% endif %}>{{ stage }}</li>{% endfor %}</ol>{% endif %}
</header><p>{{ job.n_samples|n }} samples &times; {{ job.n_bins|n }} bins &middot; {{ job.metric }}
&middot; bandwidth {{ job.bandwidth }} &middot; {{ job.n_blocks|n }} blocks</p>
<div class="bar"><i style="width: {{ share }}%"></i></div>
<p><b id="seeds">{{ n_done|n }}</b> of {{ job.n_seeds|n }} seeds stationary
({{ share|int }}%){% if job.n_done > job.n_fresh %} &middot;
{{ (job.n_done - job.n_fresh)|n }} from the store{% endif %}</p>
{% if job.error %}<pre>{{ job.error }}</pre>{% endif %}</section>
<div class="tiles">{% set rate = job.rate() %}
{{ tile("rate", "Rate", rate|n(",.0f" if rate > 10 else ".2g"), "seeds a second") }}
{% if job.state == "running" %}
{{ tile("left", "Time left", job.time_left(now)|span, "for the seeds") }}{% endif %}
{{ tile("elapsed", "Time taken", job.elapsed(now)|span, "since " + job.started|clock) }}
{{ tile("modes", "Modes", (job.n_modes or none)|n, ("so far" if job.state == "running" else "")
  if job.n_clusters is none else "in " + job.n_clusters|n +
  (" cluster" if job.n_clusters == 1 else " clusters")) }}
{{ tile("steps", "Steps", ratio(job.n_iter, job.n_done)|n(".1f"), "per seed") }}
{{ tile("share", "Evaluated", ratio(job.evaluated, job.n_fresh)|n(".1%"), "of the data, a step") }}
</div>{% endif %}"""
CLUSTER_HTML = """<section class="card"><h2>Memory per worker{% if workers|length > most %},
the {{ most }} fullest of {{ workers|length|n }}{% endif %}</h2><div class="workers">
{% for w in workers[:most] %}{% set used = w.memory.process %}{% set limit = w.memory_limit %}
<div title="{{ w.address }}"><span class="name">{{ w.name }}</span>
<div class="bar memory{% if limit and used > 0.8 * limit %} high{% endif %}">
<i style="width: {{ 100 * used / (limit or used or 1) }}%"></i></div><span class="size">
{{ used|bytes }}{% if limit %} of {{ limit|bytes }}{% endif %}</span></div>
{% else %}No worker has joined yet.{% endfor %}</div></section>
{% if jobs %}<section class="card"><h2>Earlier jobs</h2><div class="scroll"><table><tr>
<th>started<th>source<th>state<th>seeds<th>modes<th>clusters<th>steps per seed<th>time</tr>
{% for job in jobs %}<tr class="{{ job.state }}"><td>{{ job.started|clock }}<td>{{ job.source }}
<td><b class="badge">{{ job.state }}</b><td>{{ job.n_stationary|n }} of {{ job.n_seeds|n }}
<td>{{ (job.n_modes or none)|n }}<td>{{ job.n_clusters|n }}
<td>{{ ratio(job.n_iter, job.n_done)|n(".1f") }}<td>{{ job.elapsed(now)|span }}</tr>
{% endfor %}</table></div></section>{% endif %}"""
GRID_CSS = """:host { display: grid; gap: 10px;
  grid: auto / repeat(auto-fit, minmax(min(100%, 400px), 1fr)) }"""
CSS = """:host { font: 14px/1.45 Helvetica, Arial, sans-serif; color: #333; --state: #3b6ea5 }
.done { --state: #3a8f5f } .failed { --state: #c0433c } .interrupted { --state: #a8761b }
.bk-clearfix { display: block; width: 100% } section:first-child { margin-top: 10px }
.card { background: #fff; border: 1px solid #e3e3e3; border-radius: 6px; padding: 12px 16px }
.card { margin-bottom: 10px; min-width: 0 } .scroll { overflow-x: auto }
header, ol { display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center }
h1 { font-size: 18px; margin: 0; flex: 1 1 200px; overflow-wrap: anywhere }
h2 { font-size: 13px; margin: 0 0 6px; color: #555 } p { margin: 6px 0 0; color: #555 }
.badge { background: var(--state); color: #fff } ol { list-style: none; margin: 0; padding: 0 }
.badge, li { border-radius: 10px; padding: 1px 10px; font-size: 12px } li { background: #f0f0f0 }
li.on { background: #eaaa6d } pre { white-space: pre-wrap; overflow-wrap: anywhere }
.bar { height: 16px; border-radius: 8px; background: #e9edf2; overflow: hidden; margin-top: 10px }
.bar i { display: block; height: 100%; max-width: 100%; background: var(--state) }
.bar.memory { height: 10px; margin: 0; flex: 1; --state: #7fa8c9 } .bar.high { --state: #d9822b }
.tiles { display: flex; flex-wrap: wrap; gap: 0 10px } .tiles .card { flex: 1 1 150px }
.workers { display: grid; gap: 4px 32px; grid: auto / repeat(auto-fit, minmax(320px, 1fr)) }
.tiles b { font-size: 24px; line-height: 1.2; color: #222 } small { display: block; color: #666 }
.workers > div { display: flex; gap: 10px; align-items: center; white-space: nowrap }
.name { max-width: 40%; overflow: hidden; text-overflow: ellipsis } .size { width: 12em }
table { border-collapse: collapse; width: 100%; white-space: nowrap; text-align: left }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid #eee } th { font-size: 12px }"""
