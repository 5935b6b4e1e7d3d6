"""What there is to say of a run and of a snapshot: facts that are JSON-ready, with every digit.

Facts begin with a kind, a verdict in one line, and hints about problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamembed.drift.monitor import Monitor
from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_frame
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import format_count
from streamembed.methods.engine_parameters import METHODS
from streamembed.metrics.metric_certificate import MetricCertificate
from streamembed.runs import chains
from streamembed.runs.run_reader import RunReader

# A replay is finished or unfinished; a run of calls is open.
NAMES = {"unfinished": "unfinished replay", "open": "online run"}
VERDICTS = {True: "certificate met", False: "certificate NOT met", None: "no tolerance"}
MOST_REASONS = 3  # of rejected rows, in a hint


def describe_run(reader: RunReader) -> dict[str, Any]:
    """Describe a run as of its last commit; DamagedFileError where a table is damaged."""
    progress, timeline, rejected = reader.progress(), reader.timeline(), reader.rejected()
    state = "open" if reader.kind == chains.ONLINE else "unfinished"
    if reader.finished:
        state = "finished"
    newest = reader.snapshot() if reader.positions else None
    columns = {name: timeline[name].to_pylist() for name in timeline.column_names}
    positions, met = columns["position"], columns.get("met", [])
    facts: dict[str, Any] = {
        "kind": NAMES.get(state, "run"),
        "state": state,
        "verdict": "",
        "hints": [],
        "damage": reader.damage,
        "events": progress.accepted,
        "learned": max(positions, default=reader.begun) - reader.begun,
        "rejected": rejected.num_rows,
        "reasons": dict(Counter(rejected["reason"].to_pylist()).most_common()),
        "position": progress.position,
        "snapshots": len(positions),
        "certificates_met": sum(map(bool, met)),
        "missed": [at for at, is_met in zip(positions, met, strict=False) if is_met is False],
        "snapshots_kept": reader.positions,
        **{key: fact for key, fact in reader.origin.items() if key not in ("kind", "columns")},
        "snapshot": None,
    }
    facts["verdict"] = _format_verdict(facts)
    facts["hints"] = list(_list_hints(reader.path, facts))
    if (monitor := reader.monitor()) is not None:
        facts["monitor"] = describe_monitor(monitor)
        facts["hints"] += monitor.notes
    if newest is not None:
        facts["snapshot"] = describe_snapshot(newest, facts["engine"].get("tolerance"))
        facts["hints"] += facts["snapshot"].pop("hints")
    epochs = columns.get("epoch", [])
    if diagnostics.are_axes_unstable(len(set(epochs)), len(epochs)):
        counts = len(set(epochs)), len(epochs)
        facts["hints"].append(diagnostics.describe_unstable_axes(*counts, newest))
    return facts


def describe_snapshot(snapshot: Snapshot, tolerance: float | None = None) -> dict[str, Any]:
    """Describe a snapshot; its hints name the tolerance of its engine, if that is known."""
    n, k = snapshot.coordinates.shape
    certificate, picture = snapshot.certificate, snapshot.picture
    age = f", its bound {certificate.bound_age:,} events old" if certificate.bound_age else ""
    verdict = f"{VERDICTS[certificate.met]}, residual {certificate.residual:.4g}{age}"
    return {
        "kind": "snapshot",
        "verdict": (
            f"snapshot: {n:,} points in {k} coordinates after {snapshot.position:,} events; "
            f"{verdict}"
        ),
        "hints": list(diagnostics.list_problems(snapshot, tolerance)),
        "method": snapshot.method,
        "kernel": snapshot.kernel,
        "position": snapshot.position,
        "points": n,
        "n_components": k,
        "features": list(snapshot.feature_names),
        "resolution": snapshot.resolution,
        "n_connected": snapshot.n_connected,
        "eigenvalues": snapshot.eigenvalues.tolist(),
        **_list_kernel_parameters(snapshot),
        "certificate": {"verdict": verdict, **asdict(certificate)},
        "axes": describe_frame(snapshot.frame, k),
        "frame": asdict(snapshot.frame),
        "metrics": {
            name: {"verdict": _format_metric(metric.certificate), **metric.certificate.as_dict()}
            for name, metric in snapshot.metrics.items()
        },
        "picture": None
        if picture is None
        else {
            "verdict": f"{picture.kept.mean():.0%} of neighbours kept, {picture.age} chunks old",
            "kept": float(picture.kept.mean()),
            "kept_when_laid_out": picture.kept_then,
            "age_in_chunks": picture.age,
            "epoch": picture.epoch,
            "radius": picture.radius,
        },
    }


def describe_monitor(monitor: Monitor) -> dict[str, Any]:
    """Describe the state and the alarms of a monitor."""
    alarms = monitor.alarms
    verdict = f"{format_count(len(alarms), 'alarm') if alarms else 'no alarm'}, one in "
    verdict += f"{monitor.ert:,.0f} events expected without drift; {monitor.state}"
    if monitor.state == "collecting":
        wanted = monitor.parameters["n_reference"]
        verdict = f"not monitoring yet: {monitor.position:,} of {wanted:,} events of the reference"
        verdict += " have been collected"
    elif monitor.parameters["policy"] == "hold" and monitor.is_alarmed:
        verdict += ", away from home"
    return {
        "verdict": verdict,
        "state": monitor.state,
        "ert": monitor.ert,
        "alarms": [alarm.as_dict() for alarm in alarms],
        "is_alarmed": monitor.is_alarmed,
        "notes": list(monitor.notes),
    }


def _format_verdict(facts: dict[str, Any]) -> str:
    """What the run is, its size, and whether all is well."""
    count, missed = facts["snapshots"], len(facts["missed"])
    certificates = format_count(count, "snapshot") if count else "no snapshot"
    if missed:
        certificates += f", {format_count(missed, 'certificate')} NOT met"
    elif count:
        has_met = facts["certificates_met"]
        certificates += ", all certificates met" if has_met else " without a tolerance"
    end = "; the log was NOT read to the end" if facts["damage"] else ""
    rows = f"{facts['events']:,} events, {facts['rejected']:,} rejected"
    return f"{facts['kind']}: {rows}; {certificates}{end}"


def _list_hints(path: Path, facts: dict[str, Any]) -> Iterator[str]:
    state, missed, reasons = facts["state"], facts["missed"], [*facts["reasons"].items()]
    if state == "unfinished":
        yield "it is running, or was stopped: run the same command again to resume"
    if facts["damage"]:
        yield f"the log was not read to the end: {facts['damage']}; repeat the command to resume"
    if reasons and not facts["events"]:
        yield (
            f"all {facts['rejected']:,} rows of the log are rejected, most often with the reason: "
            f"{reasons[0][0]} ({reasons[0][1]:,}); {path / 'rejected.parquet'} lists them: fix the "
            "log, or leave columns out with exclude, then replay it with overwrite=True"
        )
        return
    if reasons:
        listed = ", ".join(f"{reason} ({count:,})" for reason, count in reasons[:MOST_REASONS])
        others = f", and {len(reasons) - MOST_REASONS} other reasons"
        rest = others if len(reasons) > MOST_REASONS else ""
        yield f"rejected: {listed}{rest}; see rejected.parquet"
    if not facts["snapshots"]:
        yield "the warm-up has not ended: there is no snapshot (see warm_up)"
    if missed:
        last = f" to {missed[-1]:,}" if len(missed) > 1 else ""
        yield (
            f"{len(missed):,} of {facts['snapshots']:,} certificates are not met, at events "
            f"{missed[0]:,}{last}: see the columns residual and outside_bound of the timeline"
        )


def _list_kernel_parameters(snapshot: Snapshot) -> dict[str, float]:
    """Parameters of the kernel that the method uses, with their values."""
    names = {"bandwidth", "width", "alpha", "diffusion_time"} & {*METHODS[snapshot.method].options}
    names.discard("bandwidth" if snapshot.kernel in ("self_tuning", "binary") else "width")
    if snapshot.kernel == "binary":
        names.discard("width")
    return {name: getattr(snapshot, name) for name in sorted(names)}


def _format_metric(certificate: MetricCertificate) -> str:
    source = certificate["source"]
    if certificate.fitted is False:
        return "nothing learned yet: the log has no labels and no pairs"
    if source == "generated":
        agreement = certificate["agreement"]
        end = f"; agreement of halves {agreement:.2f}" if agreement is not None else ""
        return f"from {certificate['pairs']} generated pairs{end}"
    origin = f"from {certificate['pairs']} given pairs" if source == "given" else "from labels"
    return origin + (f"; {certificate['status']}" if certificate["status"] else "")
