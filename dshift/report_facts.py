"""What was run and how sure it is, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dshift.report_scan import N_CARDS
from dshift.report_study import Study
from dshift.report_text import duration, number, percent, plural
from dshift.result import RUN

Fact = tuple[str, str, str]  # name, value, note


def title_of(study: Study) -> str:
    """Return a heading that names the data."""
    source = str(study.result.attrs.get("source", study.samples.origin))
    kind, _, name = source.partition(" ")
    if kind in ("DataArray", "Dataset"):
        return f"Clusters of {name}" if name else "Clusters of histograms"
    in_memory = name == "array" or kind == "list"  # such data have no name
    return "Clusters of histograms" if in_memory else f"Clusters of {source}"


def summary_of(study: Study) -> str:
    """Return what was found, in a sentence or two."""
    sizes = study.sizes
    start = f"{study.samples.n_samples:,} histograms of {study.samples.n_bins:,} bins "
    if len(study.axes) > 1:
        variables = " and ".join(axis.name for axis in study.axes)
        start = f"{study.samples.n_samples:,} samples, each with histograms of {variables}, "
    if not len(sizes):
        return start + "fall into no cluster."
    if len(sizes) == 1:
        return start + "fall into one cluster."
    share = percent(sizes[0] / sizes.sum())
    total = "of the weight" if study.result.attrs.get("weighted", 0) else "of them"
    return start + f"fall into {len(sizes):,} clusters. The largest holds {share} {total}."


def certificate_of(study: Study) -> tuple[bool, str]:
    """Return whether all seeds ended at modes that stay, and say so."""
    stationary, n_seeds = study.result["stationary"].values, _n_seeds(study)
    seeds = "The only seed ends" if n_seeds == 1 else f"All {n_seeds:,} seeds end"
    modes = "its mode" if len(stationary) == 1 else f"each of the {len(stationary):,} modes"
    if stationary.all() and study.result.attrs.get("all_seeds_stationary", 1):
        return True, f"{seeds} stationary: one more step from {modes} was taken, and stayed."
    n_open = int((~stationary.astype(bool)).sum())
    return False, f"{n_open:,} of {len(stationary):,} modes are not stationary."


def facts_of(study: Study) -> list[Fact]:
    """Return what was run, fact by fact."""
    return [*_data_facts(study), *_method_facts(study), *_run_facts(study)]


def _data_facts(study: Study) -> Iterator[Fact]:
    shape = " \u00d7 ".join(
        f"{n:,} {dim}" for n, dim in zip(study.names.shape, study.names.dims, strict=True)
    )
    yield "Samples", f"{study.samples.n_samples:,}", shape if study.label.ndim > 1 else ""
    bins = study.axes[0].label * (study.axes[0].label != "bin")
    if len(study.axes) > 1:
        sizes = (axis.columns.stop - axis.columns.start for axis in study.axes)
        bins = ", ".join(f"{n:,} {a.label}" for n, a in zip(sizes, study.axes, strict=True))
    yield "Bins", f"{study.samples.n_bins:,}", bins
    yield "Clusters", f"{len(study.main):,}", plural(len(study.modes), "mode")
    n_without = int((study.label < 0).sum())
    if n_without:
        masked = bool((study.mode_index < 0).any())
        yield "In no cluster", f"{n_without:,}", "masked, or in clusters too small" * masked


def _method_facts(study: Study) -> Iterator[Fact]:
    attrs = study.result.attrs
    yield "Metric", str(attrs.get("metric", "")), ""
    bandwidth = attrs.get("bandwidth")
    shown = "per sample" if bandwidth is None else study.ruler.say(float(bandwidth))
    yield "Bandwidth", shown, _how_chosen(study)
    yield "Valley", str(attrs.get("valley", "none")), ""
    n_seeds = _n_seeds(study)
    yield "Seeds", f"{n_seeds:,}", _seed_note(study, n_seeds)


def _how_chosen(study: Study) -> str:
    attrs = study.result.attrs
    if "bandwidth_chosen" not in attrs:
        return ""
    if "bandwidth_plateau" not in attrs:
        return "chosen: middle of the longest plateau"
    low, high = (number(float(end)) for end in attrs["bandwidth_plateau"])
    return f"chosen: middle of the longest plateau, {low} to {high}"


def _run_facts(study: Study) -> Iterator[Fact]:
    steps = study.result.get("seed_n_iter", study.result["n_iter"]).values.ravel()
    steps = steps[steps >= 0]
    if len(steps):
        yield "Steps", f"{np.median(steps):.0f}", f"median; {steps.max():,} at most"
    run = study.result.encoding.get(RUN, {})
    if run:
        yield "Evaluated", percent(run["evaluated_share"]), "of the data, in all steps of a seed"
        yield "Time", duration(run["seconds"]), ""


def _n_seeds(study: Study) -> int:
    return int(study.result.attrs.get("n_seeds", study.result["is_seed"].values.sum()))


def _seed_note(study: Study, n_seeds: int) -> str:
    if "seed_label" in study.result:
        return "histograms of the caller's own; samples got the nearest mode"
    if n_seeds == int((study.mode_index >= 0).sum()):
        return "every sample"
    return "drawn samples; the others got the nearest mode"


def note_of(study: Study) -> str:
    """Return what the reader must know of how the page was made."""
    notes = []
    n_measured, n_labelled = len(study.scan.measured), int((study.label >= 0).sum())
    if n_measured < n_labelled:
        notes.append(
            f"Sampled: bands, distances to modes and outliers are taken from {n_measured:,} of "
            f"the {n_labelled:,} samples with a cluster, evenly spread. Sizes count all."
        )
    if not study.compared:
        known = "fingerprint" in study.result.attrs
        why = "they are too large to be read as a whole here" if known else "it has none"
        notes.append(f"The data were not compared with the fingerprint of the result: {why}.")
    return " ".join(notes)


def rest_of(study: Study) -> str:
    """Return what the clusters beyond the cards hold."""
    rest = study.sizes[N_CARDS:]
    if not len(rest):
        return ""
    share = percent(float(rest.sum() / study.sizes.sum()))
    if len(rest) == 1:
        return f"One more cluster holds {share}: {rest[0]:,}."
    return f"{len(rest):,} smaller clusters hold {share}: {rest[0]:,} down to {rest[-1]:,} each."


def near_of(study: Study) -> str:
    """Return how far samples usually are from their mode."""
    gaps = study.scan.distances
    if not len(gaps):
        return ""
    half, most = (study.ruler.say(float(q)) for q in np.quantile(gaps, (0.5, 0.99)))
    return f"Half of the samples are within {half} of theirs, and 99\u202f% within {most}."
