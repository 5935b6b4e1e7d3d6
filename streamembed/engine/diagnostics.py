"""Messages about costs, coarse landmarks, maps of few points and separate parts."""

from __future__ import annotations

import numpy as np

from streamembed.engine.axis_messages import describe_lost_axes, name_components
from streamembed.engine.snapshot import Snapshot
from streamembed.geometry.scaling import compare_divisors
from streamembed.methods.eigenpairs import LARGEST_EXACT
from streamembed.methods.engine_parameters import METHODS
from streamembed.methods.frame_reference import LARGEST_PRICE
from streamembed.methods.options import LARGEST_RANK, Config

# Times as dear as usual from which a warning is due.
CLIFF = 10.0
# A whole decomposition of 1,000 points beside a certified snapshot of as many, as measured (0.25 s
# and 4.5 ms); the ratio grows with the square of their number. Batches of 1,200 and 1,500 points
# took 75 ms and 0.8 s, 15 times a certified snapshot and more.
EXACT_AT_1000, BATCH = 55.0, 20.0
# Landmarks farther apart than this share of the bandwidth leave much of a Gaussian kernel between
# them unseen; up to it, 500 of them were within 1.5 times of another batch map (landmarks.md).
COARSE = 0.5
# Events as far from the nearest landmark, in widths of that one: near 1, landmarks are no nearer
# than their own neighbours are, and the data have more dimensions than they can cover.
COARSE_WIDTHS = 0.7
# A divisor that is so many times too large or too small takes nearly all the weight of its feature,
# or that of all others. And points that are looked at first.
CHANGED, SAMPLE = 20.0, 256
# Snapshots from which on unstable axes are reported.
LEAST_SNAPSHOTS = 10
# Share of the points outside of the largest part, up to which they are outliers.
OUTLIER_SHARE = 0.01


def describe_chunk_cost(config: Config) -> str | None:
    """The parameter that makes chunks ten times as expensive as usual, and by how much; or None.

    Learning a chunk of b events into n slots with r columns is some 4 n r^2 + 10 (r + 2 b)^3
    operations; usual are the 64 columns that ``rank="auto"`` takes for a few components.
    """
    if config.max_slots is None:
        return None
    n, b, r = config.max_slots, config.chunks.size, config.rank_limits[0]
    ratio = _count_operations(n, b, r) / _count_operations(n, b, LARGEST_RANK)
    if ratio < CLIFF:
        return None
    name = "n_components" if isinstance(config.rank, str) else "rank"
    return (
        f"{name}={getattr(config, name)} needs a factor of {r} columns, which makes every chunk "
        f"and snapshot about {ratio:.0f} times as expensive as the usual {LARGEST_RANK}: use fewer"
    )


def are_axes_unstable(epochs: int, snapshots: int) -> bool:
    """Whether axes were lost, or scaling computed again, at most snapshots of a run."""
    return snapshots >= LEAST_SNAPSHOTS and epochs > snapshots // 2


def describe_unstable_axes(epochs: int, snapshots: int, final: Snapshot | None = None) -> str:
    """A message that axes were often lost; of the final snapshot, which and since when."""
    lost = "" if final is None else describe_lost_axes(final.frame.lost)
    since = f", since event {final.frame.since:,}" if final is not None and lost else ""
    return (
        f"{snapshots:,} snapshots have {epochs:,} epochs: coordinates are comparable within an "
        f"epoch only{f' ({lost}{since})' if lost else ''}; use embedding.parquet, which has one "
        "epoch with embed='final', use snapshot.compare, or keep one snapshot for longer"
    )


def _count_operations(n: int, b: int, r: int) -> float:
    return 4.0 * n * r**2 + 10.0 * (r + 2.0 * b) ** 3


def describe_snapshot_cost(config: Config, snapshot: Snapshot) -> str | None:
    """Why a snapshot was ten times as expensive as usual, and by how much; None if it was not.

    One that is not met has gone through all levels of `streamembed.methods.refinement` in vain.
    """
    n, step = len(snapshot.ids), snapshot.refinement
    if snapshot.certificate.met is False:
        step = "exact" if n <= LARGEST_EXACT else "batch"
    ratio = {"exact": EXACT_AT_1000 * (n / 1000.0) ** 2, "batch": BATCH}.get(step, 1.0)
    if ratio < CLIFF:
        return None
    return (
        f"a snapshot of {n} points needed the last step of the solver, at about {ratio:.0f} times "
        "the usual cost, because earlier steps could not certify "
        f"tolerance={config.tolerance}: use a larger tolerance, "
        f"{'a larger rank ' if 'rank' in config.method_row.options else ''}or fewer slots, or "
        "tolerance=None for uncertified snapshots"
    )


def describe_changed_scaling(snapshot: Snapshot, config: Config) -> str | None:
    """Features whose divisor does not fit what they vary by now, and what to do; None without any.

    Judged by a sample of the points, and by all where that finds any.
    """
    n, scaling = len(snapshot.ids), config.scaling
    if scaling is None or not snapshot.points.shape[1]:
        return None
    drawn = np.random.default_rng((config.seed, snapshot.position)).permutation(n)[:SAMPLE]
    ratios = np.ones(len(snapshot.scale))
    for slots in (drawn, np.arange(n)):
        points = snapshot.points[slots]
        divisors = snapshot.features.divisors
        ratios = compare_divisors(points, scaling, config.least_share, divisors, snapshot.scale)
        if not ((ratios > CHANGED) | (ratios < 1.0 / CHANGED)).any():
            return None
    j = int(np.abs(np.log(ratios)).argmax())
    others = int(np.count_nonzero((ratios > CHANGED) | (ratios < 1.0 / CHANGED))) - 1
    more = f" (and {others} more features)" if others else ""
    return (
        f"the feature {snapshot.feature_names[j]!r}{more} is divided by {snapshot.scale[j]:.4g}, "
        f"and its current events would give {snapshot.scale[j] * ratios[j]:.4g}: its values have "
        "changed, or were wrong when the scaling was computed; call rescale() of the engine or "
        "run, which starts a new epoch, or scale the feature yourself"
    )


def list_problems(snapshot: Snapshot, tolerance: float | None = None) -> tuple[str, ...]:
    """All problems of a snapshot, the most important first.

    See `describe_unmet_certificate` for the tolerance.
    """
    checks = (
        describe_coarse_landmarks,
        describe_degenerate_map,
        describe_separate_parts,
        describe_price,
        describe_aged_picture,
        describe_unfitted_metrics,
    )
    lines = [
        describe_unmet_certificate(snapshot, tolerance),
        *(check(snapshot) for check in checks),
    ]
    return tuple(line for line in lines if line is not None)


def describe_price(snapshot: Snapshot) -> str | None:
    """What is not shown because axes were kept, where that is much, and what to do."""
    if snapshot.frame.price < LARGEST_PRICE / 2:
        return None
    price = f"{100 * snapshot.frame.price:.0f} %"
    return f'{price} of the spread is not shown, because axes are kept; axes="eigen" shows it'


def describe_unfitted_metrics(snapshot: Snapshot) -> str | None:
    """Metrics that have learned nothing."""
    names = [
        name for name, metric in snapshot.metrics.items() if metric.certificate.fitted is False
    ]
    if not names:
        return None
    return f"the metrics {', '.join(names)} learned nothing: no label and no pair came"


def describe_unmet_certificate(snapshot: Snapshot, tolerance: float | None = None) -> str | None:
    """Why a certificate is not met, and what to do; None where it is, or claims nothing.

    Parameters
    ----------
    tolerance
        Of the engine, which a snapshot does not know; None if unknown.
    """
    certificate = snapshot.certificate
    if certificate.met is not False:
        return None
    large = f"its residual {certificate.residual:.4g} is above the tolerance"
    outside = (
        f"an eigenvalue outside (at most {certificate.outside_bound:.4g}) may belong before the "
        f"last published one ({snapshot.eigenvalues[-1]:.4g})"
    )
    why = f"{large}, or {outside}"
    if tolerance is not None:
        why = f"{large} {tolerance:.4g}" if certificate.residual > tolerance else outside
    rank = "a larger rank " if "rank" in METHODS[snapshot.method].options else ""
    return f"the certificate is not met: {why}; use a larger tolerance, {rank}or fewer slots"


def describe_aged_picture(snapshot: Snapshot) -> str | None:
    """Where the picture keeps clearly fewer neighbours than when it was laid out."""
    picture = snapshot.picture
    if picture is None or not picture.aged:
        return None
    return (
        f"the picture has aged: {picture.kept.mean():.0%} of neighbours kept, it was "
        f"{picture.kept_then:.0%} when it was laid out (see Engine.relayout)"
    )


def describe_coarse_landmarks(snapshot: Snapshot) -> str | None:
    """What to do where there are too few landmarks for the kernel; None where there are enough."""
    if METHODS[snapshot.method].family != "kernel":
        return None  # a graph joins landmarks however far apart they are; distances need no width
    distance, self_tuning = snapshot.resolution, snapshot.kernel == "self_tuning"
    limit = COARSE_WIDTHS if self_tuning else COARSE
    if distance <= limit:
        return None
    n = len(snapshot.ids)
    if self_tuning:
        return (
            f"events are {distance:.2f} kernel widths from the nearest of the {n} landmarks, more "
            f"than {limit}: too sparse for the kernel: use more landmarks (size=)"
        )
    return (
        f"the {n} landmarks are {distance:.2f} bandwidths apart, more than {limit}: too sparse for "
        "the kernel: use more landmarks (size=) or a larger bandwidth"
    )


def describe_degenerate_map(snapshot: Snapshot) -> str | None:
    """Why a map says little of most points, and what to do; None where it does not."""
    certificate, k = snapshot.certificate, len(snapshot.eigenvalues)
    family, count = METHODS[snapshot.method].family, len(snapshot.ids)
    if family == "geodesic" and certificate.isolated > OUTLIER_SHARE * count:
        return (
            f"{certificate.isolated} of {count} points are outside of the largest of "
            f"{snapshot.n_connected} parts of the graph, and have coordinates 0: use more "
            "neighbours (n_neighbors=), or one engine per part"
        )
    if family == "graph" and certificate.isolated > OUTLIER_SHARE * count:
        return _describe_isolated(snapshot)
    if family == "kernel" and certificate.met is False and not snapshot.coordinates.any():
        return (
            f"all {k} components are zeros, because the {count} points differ by less than the "
            "kernel's float32 values can show: call engine.rescale() if their units have changed, "
            "or set a tolerance below 1e-3, which keeps the kernel in float64, or size <= 1000"
        )
    is_graph = family in ("graph", "linear")
    if not (snapshot.coordinates[:1].any() or snapshot.coordinates.any()):
        what = "features" if snapshot.feature_names else "distances"
        fewer = "use fewer neighbours or a smaller radius, " if is_graph else ""
        return (
            f"all {k} components are zeros: the map tells none of the {count} points apart; "
            f"{fewer}look at their {what}, or learn more"
        )
    rank = k if snapshot.psi[0].all() else int(np.count_nonzero(snapshot.psi.any(axis=0)))
    if rank < k:
        d = 0 if family == "graph" else snapshot.points.shape[1]
        what = (
            f"number of positive eigenvalues of the graph of {count} points"
            if is_graph
            else f"rank of the {count} points that are held"
        )
        return (
            f"n_components={k} is above the {what}, {rank}"
            f"{f' (features: {d})' if d else ''}: {k - rank} of {k} components are zeros; use "
            f"n_components={rank}"
        )
    if family == "alignment" and snapshot.n_connected > 1:
        return (
            f"the graph of neighbours falls into {snapshot.n_connected} parts: the first "
            "components only separate them; use more neighbours (n_neighbors=), or one engine per "
            "part"
        )
    if certificate.lone:
        j = certificate.lone[0]
        total = snapshot.masses.sum()
        remedy = "remove or scale them"
        if snapshot.kernel == "gaussian" and family == "kernel":
            remedy += ', or use kernel="self_tuning"'
        return (
            f"component {j} is carried by about {certificate.effective_points[j]:.0f} of "
            f"{total:,.0f} points: outliers lead the map; look at snapshot.leading_ids({j}), "
            f"{remedy}"
        )
    parts = certificate.parts
    if parts > k:
        return (
            f"the {'component' if k == 1 else f'{k} components'} only separate"
            f"{'s' if k == 1 else ''} disconnected parts of the data, at least {parts} "
            f"({parts - 1} eigenvalues of 1), and show nothing within a part; use n_components >= "
            f"{parts + 2}, or one engine per part"
        )
    return None


def _describe_isolated(snapshot: Snapshot) -> str:
    """How many points of a graph nothing joins, and which parameter says so."""
    who = f"{snapshot.certificate.isolated:,} of {len(snapshot.ids):,} points"
    if snapshot.radius:
        return (
            f"{who} have no neighbour within radius={snapshot.radius:g}, and coordinates 0: use a "
            "larger radius, or n_neighbors"
        )
    return (
        f"{who} are joined to nothing by weights that doubles hold, and have coordinates 0: use a "
        "larger bandwidth, or weights='self_tuning'"
    )


def describe_separate_parts(snapshot: Snapshot) -> str | None:
    """Where the first components do nothing but tell parts apart; None where they do more."""
    parts = snapshot.certificate.parts
    if not 1 < parts <= len(snapshot.eigenvalues):
        return None
    verb = "tells" if parts == 2 else "tell"
    return (
        f"{name_components(parts - 1)} {verb} {parts} separate parts apart; structure inside them "
        f"starts at component {parts - 1}"
    )
