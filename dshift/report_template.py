"""The HTML and the style of a report."""

# The policy lets nothing be fetched, whatever a text in the data may try.
PAGE = """<!DOCTYPE html>
{% macro swatch(number) %}<i class="swatch" style="background: {{ color(number) }}"></i>
{%- endmacro %}
{% macro variable(axis) %}{% if axis.name %}<p class="variable">{{ axis.label }}</p>{% endif %}
{%- endmacro %}
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none';
 form-action 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light">
<meta name="generator" content="dshift">
<title>{{ found.title }}</title>
<style>{{ css }}</style>
{{ bokeh }}
</head>
<body>
<main>
<header>
<p class="eyebrow">dshift report</p>
<h1>{{ found.title }}</h1>
<p class="lead">{{ found.summary }}</p>
<p class="seal{{ '' if found.certified else ' open' }}"><b>{{ '✓' if found.certified else '!' }}</b>
<span>{{ found.certificate }}</span></p>
<noscript><p class="note">The plots need JavaScript; the tables do not.</p></noscript>
</header>

<section id="run"><h2>What was run</h2>
<dl class="facts">
{% for name, value, note in found.facts %}
<div><dt>{{ name }}</dt><dd>{{ value }}{% if note %}<small>{{ note }}</small>{% endif %}</dd></div>
{% endfor %}
</dl>
{% if found.note %}<p class="note">{{ found.note }}</p>{% endif %}
<details><summary>All attributes of the result</summary><table class="attrs">
{% for name, value in found.attrs %}<tr><th>{{ name }}<td>{{ value }}</tr>
{% endfor %}
</table></details>
</section>

{% if found.cards %}
<section id="clusters"><h2>Clusters by size</h2>
<table class="clusters"><thead><tr><th>Cluster<th class="number">Samples
{% if found.weighted %}<th class="number">Weight{% endif %}
<th class="bars">Share<th class="number wide">Modes<th class="number wide">Median distance
<th class="wide">Nearest to the mode</tr></thead><tbody>
{% for card in found.cards %}
<tr><td>{{ swatch(card.number) }}{{ card.number }}
<td class="number">{{ "{:,}".format(card.n_samples) }}
{% if found.weighted %}<td class="number">{{ card.size }}{% endif %}
<td class="bars"><div><i style="width: {{ (100 * card.share / found.cards[0].share)|round(2) }}%;
background: {{ color(card.number) }}"></i></div><span>{{ card.share|percent }}</span>
<td class="number wide">{{ card.n_modes }}<td class="number wide">{{ card.spread }}
<td class="wide text">{{ card.typical }}</tr>
{% endfor %}
</tbody></table>
{% if found.rest %}<p class="note">{{ found.rest }}</p>{% endif %}
{% if plot.sizes %}{{ plot.sizes }}{% endif %}
</section>

<section id="modes"><h2>Modes and their members</h2>
<p>The line is the mode that a cluster&rsquo;s samples climb to
{%- if found.cards|map(attribute="n_modes")|max > 1 %}
 (thin lines: further modes that were joined to it){% endif %}. The darker band holds half of
the members in each bin, the lighter one nine in ten. Across:
{{ found.axes|map(attribute="label")|join(", ") }}. Up:
{{ found.axes|map(attribute="height_label")|unique|join(", or ") }}, on each plot&rsquo;s own scale.
{% for axis in found.axes if axis.n_joined > 1 %}{{ axis.n_joined }} neighbouring bins
{{- " of " ~ axis.name if axis.name }} are drawn as one. {% endfor %}
{% if found.cards|map(attribute="n_drawn")|max > 0 %}For the bands, at
most {{ "{:,}".format(found.cards|map(attribute="n_drawn")|max) }} members of a cluster were drawn.
{% endif %}</p>
<div class="grid{{ ' few' if found.cards|length in (1, 2, 4) else '' }}">
{% for card in found.cards %}
<figure><figcaption>{{ swatch(card.number) }}<b>Cluster {{ card.number }}</b>
<span>{{ "{:,}".format(card.n_samples) }} · {{ card.share|percent }}</span></figcaption>
{% for axis in found.axes %}
{{ variable(axis) }}{{ plot["card_%d_%d"|format(card.number, loop.index0)] }}
{% endfor %}</figure>
{% endfor %}
</div>
{% if plot.modes_0 %}
<h3>{{ "All clusters" if found.all_modes[0]|length == found.sizes|length else
"The largest %d clusters"|format(found.all_modes[0]|length) }} at a glance</h3>
<p>A row is a cluster&rsquo;s mode, shaded up to its own peak; neighbouring rows are alike. The
strip at the left has the clusters&rsquo; colours
{%- if found.sizes|length > n_colors %}, which repeat after {{ n_colors }}{% endif %}.</p>
{% for axis in found.axes %}{{ plot["modes_%d"|format(loop.index0)] }}
{% endfor %}
{% endif %}
</section>

{% if found.maps %}
<section id="map"><h2>Map</h2>
<p>Each {{ "cell" if found.maps[0].clusters.ndim == 2 else "point" }} has the colour of its
cluster{{ "" if found.n_labelled == found.n_samples else "; pale grey belongs to none" }}.
{% if found.sizes|length > n_colors %} Colours repeat after {{ n_colors }}
clusters: point at a place to read its number.{% endif %}</p>
<p class="legend">{% for card in found.cards %}
<span>{{ swatch(card.number) }}{{ card.number }}</span>{% endfor %}
{% if found.sizes|length > found.cards|length %}<span>…</span>{% endif %}</p>
{% for panel in found.maps %}
<figure>{% if panel.name %}<figcaption><b>{{ panel.name }}</b></figcaption>{% endif %}
{{ plot["map_%d"|format(loop.index0)] }}</figure>
{% endfor %}
</section>
{% endif %}

{% if plot.matrix %}
<section id="matrix"><h2>Distances between modes</h2>
<p>{{ found.distance }} between the largest modes of
{{ "all" if found.matrix|length == found.sizes|length else
"the %d largest"|format(found.matrix|length) }} clusters, ordered
so that neighbours are alike. The darker, the nearer: dark blocks are families of clusters.</p>
<div style="max-width: {{ [660, 170 + 44 * found.matrix|length]|min }}px">{{ plot.matrix }}</div>
</section>
{% endif %}

{% if found.view %}
<section id="view"><h2>Samples and modes on a plane</h2>
<p>Dots are
{% if found.view.labels|length < found.n_labelled %}
{{ "{:,}".format(found.view.labels|length) }} of the
{% endif %}
samples, rings are modes. Classical scaling of the {{ found.distance }}: near on the plane means
alike, and the plane keeps {{ found.view.kept|percent }} of the spread.</p>
{{ plot.view }}
</section>
{% endif %}
{% endif %}

{% if found.sweep %}
<section id="sweep"><h2>Other bandwidths</h2>
<p>Shaded: plateaus, where neighbouring bandwidths agree on the clusters; the longest is darkest.
{% if found.sweep.chosen is not none %}The dashed line is the bandwidth of this result.
{% endif %}</p>
{% if plot.sweep_clusters %}{{ plot.sweep_clusters }}{% endif %}
{% if plot.sweep_shares %}
<p class="legend">{% for name in found.sweep.shares %}<span><i class="swatch"
style="background: {{ share_colors[loop.index0] }}"></i>{{ name }}</span>
{% endfor %}</p>
{{ plot.sweep_shares }}{% endif %}
{% if found.sweep.plateaus %}
<table class="plateaus"><thead><tr><th>Plateau<th class="number">From<th class="number">To
<th class="number">Clusters</tr></thead><tbody>
{% for start, stop, n_clusters in found.sweep.plateaus[:8] %}<tr><td>{{ loop.index }}
<td class="number">{{ "%.3g"|format(start) }}<td class="number">{{ "%.3g"|format(stop) }}
<td class="number">{{ "\u2013" if n_clusters is none else n_clusters }}</tr>
{% endfor %}
</tbody></table>{% endif %}
</section>
{% endif %}

{% if found.outliers %}
<section id="outliers"><h2>Outliers</h2>
<p>The samples farthest from their mode: filled is the sample, the line is its mode, each on scales
of its own. {{ found.near }}</p>
<div class="grid">
{% for outlier in found.outliers %}
<figure><figcaption><b>{{ outlier.label }}</b></figcaption>
<p class="sub">{{ swatch(outlier.cluster) }}cluster {{ outlier.cluster }} ·
{{ outlier.distance }}</p>
{% set rank = loop.index0 %}
{% for axis in found.axes %}
{{ variable(axis) }}{{ plot["outlier_%d_%d"|format(rank, loop.index0)] }}
{% endfor %}</figure>
{% endfor %}
</div>
</section>
{% endif %}
</main>
{{ script }}
</body>
</html>
"""
CSS = """
:root { --ink: #1d2430; --muted: #5d6673; --faint: #e6e9ee }
* { box-sizing: border-box }
body { margin: 0; background: #fff; color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 80px }
header { margin-bottom: 40px }
.eyebrow { margin: 0; color: var(--muted); font-size: 13px; letter-spacing: .06em;
  text-transform: uppercase }
h1 { margin: 4px 0 12px; font-size: 30px; line-height: 1.2; font-weight: 650;
  overflow-wrap: anywhere }
h2 { margin: 0 0 8px; font-size: 20px; font-weight: 650 }
h3 { margin: 28px 0 4px; font-size: 16px; font-weight: 650 }
section { padding-top: 28px; margin-top: 36px; border-top: 1px solid var(--faint) }
section > p, header > p { max-width: 72ch; margin: 0 0 16px; overflow-wrap: anywhere }
p { text-wrap: pretty }
section > p { color: var(--muted) }
.lead { font-size: 19px; line-height: 1.45 }
.seal { display: flex; gap: 10px; align-items: baseline; color: #1a6b2d }
.seal.open { color: #9a5b00 }
.seal span { color: var(--ink) }
.note { font-size: 14px; color: var(--muted) }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr));
  gap: 20px 24px; margin: 16px 0 24px }
.facts > div { min-width: 0 }
dt { color: var(--muted); font-size: 13px }
dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
small { display: block; color: var(--muted); font-size: 13px; line-height: 1.35 }
details { font-size: 14px; color: var(--muted) }
summary { cursor: pointer }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 500; font-size: 13px; color: var(--muted);
  vertical-align: bottom }
th, td { padding: 6px 20px 6px 0; border-bottom: 1px solid var(--faint) }
.number { text-align: right; white-space: nowrap }
.text, .attrs td { overflow-wrap: anywhere }
.attrs { margin-top: 8px } .attrs th { width: 12em; vertical-align: top }
.plateaus { width: auto; margin-top: 12px }
.clusters { margin-bottom: 16px }
td.bars { width: 34% }
td.bars > div { display: inline-block; width: calc(100% - 64px); vertical-align: middle }
td.bars i { display: block; height: 12px; min-width: 2px; border-radius: 2px }
td.bars span { display: inline-block; width: 64px; text-align: right; font-size: 14px }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 8px; border-radius: 3px }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 14px }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(270px, 1fr));
  gap: 24px 28px }
.grid.few { grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)) }
figure { margin: 0; min-width: 0 }
figcaption { display: flex; align-items: baseline; font-size: 14px; overflow-wrap: anywhere }
figcaption b { font-weight: 600 } figcaption span { margin-left: auto; color: var(--muted) }
.variable { margin: 4px 0 0; font-size: 12px; color: var(--muted); overflow-wrap: anywhere }
.sub { margin: 0; font-size: 13px; color: var(--muted) }
@media (max-width: 640px) {
  main { padding: 24px 16px 48px } h1 { font-size: 24px } .lead { font-size: 17px }
  .facts { grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)) }
  .wide { display: none } th, td { padding-right: 12px } td.bars { width: 50% }
  section { margin-top: 24px }
}
"""
