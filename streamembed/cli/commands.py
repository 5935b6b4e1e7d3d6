"""The commands: demo, replay, transform, inspect.

Data goes to standard output, progress and errors to standard error. ``--json`` prints one object
and nothing else on standard output.
"""

from __future__ import annotations

import errno
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import streamembed as se
from streamembed.cli import demo
from streamembed.cli.inspect import inspect_path, write_lines
from streamembed.cli.options import columns_options, engine_options, features_option
from streamembed.engine import advice
from streamembed.errors import (
    DamagedFileError,
    InputError,
    LogError,
    MissingFileError,
    NotAFileError,
    NotReadyError,
    ParameterError,
    ResolutionWarning,
    shown,
)
from streamembed.logs.reader import choice_of, open_chosen
from streamembed.metric_learning.certificate import MetricCertificate
from streamembed.runs import folder
from streamembed.runs.transform import transform_log

__all__ = ["DAMAGED", "INTERRUPTED", "IO", "OK", "USAGE", "main"]

OK, INTERRUPTED, USAGE, DAMAGED, IO = 0, 1, 2, 3, 4  # 1 is how click ends after Ctrl-C


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Print errors as one line on standard error and exit with a documented code."""
    try:
        yield
    except (DamagedFileError, LogError) as error:
        cause = error.__cause__
        refused = isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.ENOSPC)
        _stop(error, IO if refused else DAMAGED)
    except (ParameterError, InputError, NotReadyError) as error:
        _stop(error, USAGE)
    except OSError as error:
        _stop(error, IO)
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", None)  # of a replay whose run is whole
        if not notes:
            raise
        click.echo(err=True)  # behind the terminal's ^C
        _stop(f"interrupted; {notes[0]}", INTERRUPTED)


def _stop(error: object, code: int) -> None:
    click.echo("streamembed: " + " ".join(str(error).split()), err=True)
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(se.__version__, prog_name="streamembed")
def main() -> None:
    """Streaming embeddings: certified, stable, bounded, replayable.

    Exit codes: 0 done; 1 interrupted; 2 wrong usage, parameters or input; 3 damaged data; 4 input
    or output failed (a missing file, no permission, a full disk).
    """


@main.command("replay")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--run", "run", required=True, metavar="DIR", help="Run folder to create.")
@engine_options
@columns_options
@click.option(
    "--pairs", metavar="LOG", help="Log of given pairs: columns x_1, x_2, ... and similar."
)
@click.option("--snapshot-every", type=int, help="Events between snapshots.  [default: about 100]")
@click.option("--overwrite", is_flag=True, help="Replace an existing run in DIR.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def replay_command(
    logs: tuple[str, ...],
    run: str,
    features: list[str] | None,
    exclude: list[str] | None,
    id_column: str | None,
    label_column: str | None,
    time_column: str | None,
    pairs: str | None,
    snapshot_every: int | None,
    overwrite: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Replay Arrow logs (IPC stream or file, Parquet, folders of them) into a run folder.

    A LOG of - is standard input. A log with a column distances, of lists of numbers, is a log of
    distances to the rows before. Writes snapshot.arrow, embedding.parquet, timeline.parquet and
    rejected.parquet.
    """
    with _exit_codes(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)  # a line of the summary says it
        engine = se.Engine(**parameters)
        chosen = choice_of(features, exclude, id_column, label_column, time_column)
        log = open_chosen(_existing(logs), chosen)
        if not as_json:
            click.echo(str(log.columns), err=True)
        with _progress(log.n_rows, as_json) as advance:
            done = se.replay(
                log,
                engine,
                run,
                snapshot_every=snapshot_every,
                pairs=None if pairs is None else _existing((pairs,)),
                on_bad_row=parameters["on_bad_row"],
                overwrite=overwrite,
                progress=advance,
            )
    _tell_replay(done, as_json)
    if done.damage is not None:
        _stop(LogError(done.damage), DAMAGED)


def _existing(paths: tuple[str, ...]) -> list[str]:
    """The paths, if each is there, and none is a run folder; - is standard input."""
    for path in paths:
        is_pattern = any(sign in path for sign in "*?[")
        if path != "-" and not is_pattern and not Path(path).exists():
            raise MissingFileError(f"{path} does not exist")
        if (Path(path) / "timeline.parquet").exists():
            raise ParameterError(
                f"{path} is a run folder; it must be a log: name the log, or one file of the run, "
                f"such as {Path(path) / 'embedding.parquet'}"
            )
    return list(paths)


def _tell_replay(done: se.Replayed, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "run": str(done.path),
        "accepted": done.accepted,
        "learned": done.learned,
        "rejected": done.rejected,
        "snapshots": done.snapshots,
        "position": done.position,
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
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(
        f"{done.accepted} events, {done.learned} learned, {done.rejected} rejected, "
        f"{done.snapshots} snapshots in {done.path}"
    )
    if done.snapshot is None:
        click.echo("the log ended before the warm-up: there is no snapshot (see --warm-up)")
        return
    click.echo(_certificate_line(done.snapshot))
    for name, metric in done.snapshot.metrics.items():
        click.echo(f"metric {name}: {_metric_line(metric.certificate)}")
    if (picture := done.snapshot.picture) is not None:
        click.echo(_picture_line(picture))
    for line in (advice.coarse, advice.degenerate, advice.parts_apart):
        if (told := line(done.snapshot)) is not None:
            click.echo(told)


def _metric_line(certificate: MetricCertificate) -> str:
    """What a metric learned from, and its status."""
    source = certificate["source"]
    if source == "generated":
        told = f"from {certificate['pairs']} generated pairs"
        share = certificate["reproduced"]
        return told + (f"; reproducibility {share:.0%}" if share is not None else "")
    told = f"from {certificate['pairs']} given pairs" if source == "given" else "from labels"
    return told + (f"; {certificate['status']}" if certificate["status"] else "")


def _certificate_line(snapshot: se.Snapshot) -> str:
    certificate = snapshot.certificate
    verdict = {True: "met", False: "NOT met", None: "an estimate"}[certificate.met]
    values = ", ".join(
        f"{value:.4f}" if value >= 1e-3 else f"{value:.3g}" for value in snapshot.eigenvalues
    )
    return f"eigenvalues {values}; residual {certificate.residual:.1e}, {verdict}"


def _picture_line(picture: se.Picture) -> str:
    told = f"picture: {picture.kept.mean():.0%} of neighbours kept, {picture.age} chunks old"
    if picture.aged:
        told += f"; it was {picture.kept_then:.0%} when laid out (see Engine.relayout)"
    return told


@contextmanager
def _progress(total: int | None, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar on a terminal, plain lines in a pipe, nothing with --json."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("replay", total=total)
            yield lambda rows: bar.update(task, completed=rows)
    else:
        told = 0

        def line(rows: int) -> None:
            nonlocal told
            if rows >= 2 * told:
                told = rows
                click.echo(f"read {rows} rows", err=True)

        yield line


@main.command("transform")
@click.argument("snapshot", metavar="SNAPSHOT")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("-o", "--output", required=True, metavar="FILE", help=".arrow for IPC, else Parquet.")
@features_option
@click.option("--id", "id_column", metavar="NAME", help="Column of ids.  [default: id]")
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def transform_command(
    snapshot: str,
    logs: tuple[str, ...],
    output: str,
    features: list[str] | None,
    id_column: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Embed the events of logs with a saved snapshot.

    A LOG of - is standard input. FILE must not be one of the inputs, nor lie in their folders. Rows
    that cannot be embedded keep their place, with nulls and a reason. A snapshot of distances takes
    logs of distances to its objects, in the order of its ids.
    """
    with _exit_codes():
        if folder.same(output, snapshot):
            raise ParameterError(
                f"output={shown(output)} is the input snapshot {snapshot}: choose another file"
            )
        loaded = _snapshot(snapshot)
        log = open_chosen(
            _existing(logs), choice_of(features or loaded.feature_names or None, id=id_column)
        )
        facts = transform_log(loaded, log, output, overwrite=overwrite)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo(f"{facts['embedded']} events embedded, {facts['rejected']} rejected: {output}")
    if facts["damage"] is not None:
        _stop(LogError(facts["damage"]), DAMAGED)


def _snapshot(path: str) -> se.Snapshot:
    """The saved snapshot; where a folder was named, the error says which file of it to name."""
    if Path(path).is_dir():
        inside = Path(path) / "snapshot.arrow"
        hint = f"try {inside}" if inside.exists() else "it contains no snapshot.arrow"
        raise NotAFileError(f"{path} is a folder; name the file of a saved snapshot: {hint}")
    return se.Snapshot.load(path)


@main.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def inspect_command(path: str, as_json: bool) -> None:
    """Show what a log, a snapshot, a saved engine or a run folder contains."""
    with _exit_codes():
        facts = inspect_path(Path(path))
    if as_json:
        click.echo(json.dumps(facts))
        return
    for line in write_lines(facts):
        click.echo(line)


@main.command("demo")
@click.option("--into", default="demo", show_default=True, metavar="DIR", help="Output folder.")
@click.option("--events", default=2310, show_default=True, help="Number of rows to use.")
def demo_command(into: str, events: int) -> None:
    """Replay a real data set and compare the embedding with the batch result."""
    with _exit_codes():
        demo.run(Path(into), events, Console(width=None if sys.stdout.isatty() else 100))
