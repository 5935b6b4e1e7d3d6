"""``replay``: Arrow logs through an engine into a run folder."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
from click.core import ParameterSource

from streamembed.cli import option_sources
from streamembed.cli.command_options import columns_options, engine_options, existing
from streamembed.cli.exit_codes import ALARMED, DAMAGED, USAGE, stop, stops_gently
from streamembed.cli.monitor_options import collected, monitor_line, monitor_of, monitor_options
from streamembed.cli.progress_bar import watch
from streamembed.cli.rejected_rows import none_accepted, reasons_in
from streamembed.cli.terminal_text import echo
from streamembed.cli.worker_options import replay_by, workers_options
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine import diagnostics
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import LogError, ParameterError, ResolutionWarning
from streamembed.logs.event_log import open_with_choice, parse_choice
from streamembed.methods.options import Config
from streamembed.metric_learning.metric_certificate import MetricCertificate
from streamembed.runs.replay_log import Replayed, cadence, replay
from streamembed.runs.run_reader import read_run

__all__ = ["command"]

MOST_REASONS = 3  # that the summary names


@click.command("replay")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--run", "run", required=True, metavar="DIR", help="Run folder to create.")
@engine_options
@columns_options
@click.option(
    "--pairs", metavar="LOG", help="Log of given pairs: columns x_1, x_2, ... and similar."
)
@click.option(
    "--snapshot-every",
    type=int,
    help="Events between snapshots, rounded up to whole chunks.  [default: 100]",
)
@click.option(
    "--embed",
    type=click.Choice(["final", "causal"]),
    default="final",
    show_default=True,
    help="Embed all events by the last snapshot, or each by the first that has learned it.",
)
@click.option(
    "--checkpoint-every",
    metavar="EVENTS|SECONDSs",
    help="How often the run is committed, so that it can be gone on with: 5000 or 10s.  "
    "[default: 30s]",
)
@click.option(
    "--max-rejected",
    metavar="ROWS|SHARE%",
    help="Stop where more rows than that are rejected: 100 or 1%.  [default: no limit]",
)
@click.option(
    "--fork",
    metavar="RUN|FILE",
    help="Begin with the engine of another run as it was committed last, or of a saved engine.",
)
@monitor_options
@workers_options
@click.option("--overwrite", is_flag=True, help="Replace an existing run in DIR.")
@option_sources.config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    logs: tuple[str, ...],
    run: str,
    features: list[str] | None,
    exclude: list[str] | None,
    id_column: str | None,
    label_column: str | None,
    time_column: str | None,
    pairs: str | None,
    snapshot_every: int | None,
    embed: str,
    fork: str | None,
    overwrite: bool,
    checkpoint_every: str | None,
    max_rejected: str | None,
    monitor: bool,
    ert: float | None,
    reference: str | None,
    policy: str | None,
    watch_labels: bool,
    fail_on_alarm: bool,
    workers: int | None,
    round_every: int | None,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Replay Arrow logs into a run folder.

    A LOG is an Arrow IPC stream or file, Parquet, or a folder of them; - is standard input. A log
    with a column distances, of lists of numbers, is a log of distances to the rows before. Writes
    snapshot.arrow, embedding.parquet, timeline.parquet and rejected.parquet, and run.db: the same
    command again goes on after whatever ended it, and with a log that has grown.
    """
    if workers is not None:
        chosen = parse_choice(features, exclude, id_column, label_column, time_column)
        found = existing(logs)
        replay_by(workers, round_every, found, run, chosen, overwrite, as_json, parameters)
        return
    if round_every is not None:
        raise ParameterError("--round-every is for --workers: set that, or leave it out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)  # a line of the summary says it
        engine = Engine(**parameters) if fork is None else _forked(fork)
        told = parameters["scaling"], parameters["seed"]
        watcher = monitor_of(monitor, ert, reference, policy, watch_labels, fail_on_alarm, *told)
        raised: list[Alarm] = []
        chosen = parse_choice(features, exclude, id_column, label_column, time_column)
        log = open_with_choice(existing(logs), chosen)
        if not as_json:
            echo(str(log.columns), err=True)
        _tell_cadence(snapshot_every, engine, as_json)
        with (
            watch(log.n_rows, as_json) as advance,
            stops_gently(gently="-" not in logs) as is_stopped,
        ):

            def noticed(alarm: Alarm) -> None:
                raised.append(alarm)
                if not as_json:
                    _tell_alarm(alarm)

            def learned(rows: int) -> None:
                if advance is not None:
                    advance(rows)
                if is_stopped() and not engine.ready:  # nothing can be committed before
                    raise KeyboardInterrupt

            done = replay(
                log,
                engine,
                run,
                snapshot_every=snapshot_every,
                pairs=None if pairs is None else existing((pairs,)),
                on_bad_row=parameters["on_bad_row"],
                embed=embed,
                overwrite=overwrite,
                checkpoint_every=checkpoint_every,
                max_rejected=max_rejected,
                progress=learned,
                stop=is_stopped,
                monitor=watcher,
                on_alarm=noticed,
            )
    _tell_replay(done, engine.config.tolerance, as_json, watcher)
    if done.damage is not None:
        stop(LogError(done.damage), DAMAGED)
    if done.rejected and not done.accepted:
        stop(none_accepted(done.path, done.rejected), USAGE)
    if fail_on_alarm and watcher is not None:
        _fail(done, watcher, len(raised))


option_sources.from_environment(command)


def _forked(path: str) -> Engine:
    """The engine of a run or a file; ParameterError where another was described, too."""
    context = click.get_current_context()
    for parameter in fields(Config):
        source = context.get_parameter_source(parameter.name)
        if parameter.name != "on_bad_row" and source is not ParameterSource.DEFAULT:
            raise ParameterError(
                f"--{parameter.name.replace('_', '-')} was given with --fork, whose engine has its "
                "own parameters: leave it out"
            )
    if not Path(path).is_dir():
        return Engine.load(path)
    with read_run(path) as run:
        return run.engine()


def _tell_cadence(wanted: int | None, engine: Engine, as_json: bool) -> None:
    """Where snapshots are farther apart than was asked for, say so."""
    size = engine.config.chunk_size
    every = cadence(size, wanted)
    if wanted is not None and every != wanted and not as_json:
        echo(
            f"snapshots every {every} events instead of {wanted}: they change only with whole "
            f"chunks of {size} (--chunk-size)",
            err=True,
        )


def _tell_alarm(alarm: Alarm) -> None:
    echo(f"alarm: {alarm.sentence}", err=True)


def _fail(done: Replayed, monitor: Monitor, alarms: int) -> None:
    """Exit codes of ``--fail-on-alarm``."""
    if alarms:
        stop(f"{alarms} alarm{'' if alarms == 1 else 's'}; see {done.path}/alarms.jsonl", ALARMED)
    if monitor.state == "collecting":
        stop("nothing was watched: " + collected(monitor), USAGE)


def _tell_replay(
    done: Replayed, tolerance: float | None, as_json: bool, monitor: Monitor | None = None
) -> None:
    facts: dict[str, Any] = {
        "run": str(done.path),
        "accepted": done.accepted,
        "learned": done.learned,
        "rejected": done.rejected,
        "snapshots": done.snapshots,
        "snapshot_every": done.snapshot_every,
        "position": done.position,
        "resumed_at": done.resumed_at,
        "damage": done.damage,
        "columns": done.columns.as_dict(),
        "pairs": done.pairs,
        "rejected_pairs": done.rejected_pairs,
    }
    if done.snapshot is not None:
        facts["eigenvalues"] = done.snapshot.eigenvalues.tolist()
        facts["resolution"] = done.snapshot.resolution
        facts["certificate"] = asdict(done.snapshot.certificate)
        if (picture := done.snapshot.picture) is not None:
            facts["picture"] = {"kept": float(picture.kept.mean()), "aged": picture.aged}
        facts["metrics"] = {
            name: metric.certificate.as_dict() for name, metric in done.snapshot.metrics.items()
        }
    if monitor is not None:
        facts["monitor"] = {
            "state": monitor.state,
            "ert": monitor.ert,
            "alarms": [alarm.as_dict() for alarm in monitor.alarms],
            "notes": monitor.notes,
        }
    if as_json:
        click.echo(json.dumps(facts))
        return
    if done.resumed_at:
        more = done.accepted + done.rejected > done.resumed_at
        told = f"went on at row {done.resumed_at:,} of the log" if more else "was finished already"
        echo(f"{done.path} {told}")
    echo(
        f"{done.accepted} events, {done.learned} learned, {done.rejected} rejected, "
        f"{done.snapshots} snapshots in {done.path}"
    )
    if done.rejected:
        echo(_reasons_line(done))
    if done.snapshot is None:
        if done.accepted:
            echo("the log ended before the warm-up: there is no snapshot (see --warm-up)")
        return
    echo(_certificate_line(done.snapshot))
    for name, metric in done.snapshot.metrics.items():
        echo(f"metric {name}: {_metric_line(metric.certificate)}")
    if (picture := done.snapshot.picture) is not None:
        echo(f"picture: {picture.kept.mean():.0%} of neighbours kept, {picture.age} chunks old")
    if monitor is not None:
        echo(f"monitor: {monitor_line(monitor)}")
        for note in monitor.notes:
            echo(note)
    for told in diagnostics.hints(done.snapshot, tolerance):
        echo(told)
    epochs = pq.read_table(done.path / "timeline.parquet", columns=["epoch"])["epoch"]
    if diagnostics.is_restless(len(epochs.unique()), len(epochs)):
        echo(diagnostics.restless(len(epochs.unique()), len(epochs)))


def _reasons_line(done: Replayed) -> str:
    """Why rows were rejected, the most frequent reasons first."""
    counts = reasons_in(done.path)
    told = [f"{reason} ({count:,})" for reason, count in counts[:MOST_REASONS]]
    rest = f", and {len(counts) - MOST_REASONS} other reasons" if counts[MOST_REASONS:] else ""
    return f"rejected: {', '.join(told)}{rest}; see rejected.parquet"


def _metric_line(certificate: MetricCertificate) -> str:
    """What a metric learned from, and its status."""
    source = certificate["source"]
    if certificate.taught is False:
        return "nothing learned yet: neither a label nor a pair came"
    if source == "generated":
        told = f"from {certificate['pairs']} generated pairs"
        share = certificate["reproduced"]
        return told + (f"; reproducibility {share:.0%}" if share is not None else "")
    told = f"from {certificate['pairs']} given pairs" if source == "given" else "from labels"
    return told + (f"; {certificate['status']}" if certificate["status"] else "")


def _certificate_line(snapshot: Snapshot) -> str:
    certificate = snapshot.certificate
    verdict = {True: "met", False: "NOT met", None: "an estimate"}[certificate.met]
    values = ", ".join(
        f"{value:.4f}" if value >= 1e-3 else f"{value:.3g}" for value in snapshot.eigenvalues
    )
    return f"eigenvalues {values}; residual {certificate.residual:.1e}, {verdict}"
