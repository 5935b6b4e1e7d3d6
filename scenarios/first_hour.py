"""Twenty tasks of a new user's first hour, and what they see: ``make first-hour``.

Each task is a small function: commands run in the process of the script, Python runs statement by
statement as at a prompt, and errors are shown as they are. Data are generated or shipped. Nothing
is judged here: read it, and fix what does not read well. ``python -m scenarios.first_hour 4 18``
runs some of them.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from streamembed.cli import commands
from streamembed.numeric.arrays import Floats

__all__ = ["TASKS", "main"]

ROOT = Path(__file__).resolve().parents[1]
ROWS, FEATURES = 1500, 4
SETUP = "import numpy as np\nimport streamembed as se\n"
# Seconds until a replay that waits for more has read what it was given.
PATIENCE = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run the tasks that are named by number, or all."""
    chosen = [int(one) for one in (sys.argv[1:] if arguments is None else arguments)]
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        for number, task in enumerate(TASKS, 1):
            if chosen and number not in chosen:
                continue
            print(f"\n## {number}. {(task.__doc__ or '').strip()}\n", flush=True)
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                task()
            print(f"({time.perf_counter() - start:.1f} s)", flush=True)
    return 0


# ---------------------------------------------------------------- what a user does


def shell(line: str) -> int:
    """Print a command of ours, run it, print what it says and an exit code that is not 0."""
    print(f"$ {line}")
    name, *words = shlex.split(line)
    done = CliRunner().invoke(commands.main, words, prog_name=name)
    print(done.output, end="")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        print("".join(traceback.format_exception_only(done.exception)), end="")
    if done.exit_code:
        print(f"[exit code {done.exit_code}]")
    return done.exit_code


def prompt(source: str, **known: Any) -> dict[str, Any]:
    """Run statements as Python's prompt does; an error ends them, and its last line is shown."""
    names: dict[str, Any] = {"__name__": "__main__", **known}
    exec(SETUP, names)
    for statement in ast.parse(source.strip()).body:
        lines = (ast.get_source_segment(source.strip(), statement) or "").splitlines()
        print("\n".join(f"{'...' if j else '>>>'} {line}" for j, line in enumerate(lines)))
        try:
            exec(compile(ast.Interactive([statement]), "<prompt>", "single"), names)
        except (Exception, KeyboardInterrupt) as error:
            print("".join(traceback.format_exception_only(error)), end="")
            break
    return names


def _show_warning(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
    print(f"{category.__name__}: {message}")


# ---------------------------------------------------------------- what a user has


def orders(n: int = ROWS, seed: int = 0) -> tuple[Floats, list[str], pa.Table]:
    """Three kinds of orders: features (n, 4), their kinds, and a table with ids and a target."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(3, size=n)
    points = 3.0 * np.eye(3, FEATURES)[kinds] + rng.standard_normal((n, FEATURES))
    names = ["basket", "hour", "items", "distance"]
    columns: dict[str, Any] = {"order_id": np.arange(100_000, 100_000 + n)}
    columns |= {name: points[:, j] for j, name in enumerate(names)}
    columns["target"] = kinds
    return points, [f"kind {kind}" for kind in kinds], pa.table(columns)


def prepare_run() -> None:
    """A log of orders and a run of it, made before the task begins."""
    table = orders()[2].rename_columns(["id", "basket", "hour", "items", "distance", "label"])
    pq.write_table(table.slice(0, 1200), "orders.parquet")
    pq.write_table(table.slice(1200), "new.parquet")
    CliRunner().invoke(commands.main, ["replay", "orders.parquet", "--run", "run", "--size", "500"])


# ---------------------------------------------------------------- the tasks


def check_the_installation() -> None:
    """Is it installed?"""
    shell("streamembed --version")
    shell("streamembed --help")


def type_the_lines_of_the_readme() -> None:
    """The lines of the README"""
    page = (ROOT / "README.md").read_text()
    lines = page.split("```python\n")[1].split("```")[0].splitlines()
    prompt("\n".join(line[4:] for line in lines if line.startswith((">>>", "..."))))


def replay_an_own_parquet_file() -> None:
    """My Parquet file, with ids and a target"""
    pq.write_table(orders()[2], "mine.parquet")
    shell("streamembed inspect mine.parquet")
    shell("streamembed replay mine.parquet --run run")
    shell("streamembed replay mine.parquet --run run2 --id order_id --label target")
    prompt("""
import pyarrow.parquet as pq
pq.read_schema("run2/embedding.parquet").names
pq.read_table("run2/embedding.parquet").slice(1499).to_pylist()
""")


def replay_a_hive_folder() -> None:
    """A folder as Spark and Hive write it"""
    table = orders()[2]
    for month in (1, 2, 3):
        place = Path(f"lake/year=2025/month={month}")
        place.mkdir(parents=True)
        pq.write_table(table.slice(500 * (month - 1), 500), place / "part-0.parquet")
    (Path("lake") / "_SUCCESS").touch()
    shell("streamembed inspect lake")
    shell("streamembed replay lake --run run")


def replay_vectors_of_a_language_model() -> None:
    """Vectors of 384 numbers, in one column"""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((5, 384))
    vectors = topics[rng.integers(5, size=1000)] + rng.standard_normal((1000, 384))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), 384)
    pq.write_table(pa.table({"id": np.arange(1000), "embedding": column}), "vectors.parquet")
    shell("streamembed replay vectors.parquet --run run --n-components 10")
    prompt("""
snapshot = se.Snapshot.load("run/snapshot.arrow")
snapshot.eigenvalues.round(2)
snapshot.certificate.cut
""")


def run_a_loop_with_river() -> None:
    """A loop with river"""
    prompt("""
from river import datasets, evaluate, metrics, neighbors, preprocessing
from streamembed.estimators import DiffusionMap
model = preprocessing.StandardScaler() | DiffusionMap(n_components=4) | neighbors.KNNClassifier()
evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.Accuracy())
model["DiffusionMap"].snapshot()
""")


def interrupt_a_replay() -> None:
    """Ctrl-C in the middle of a replay"""
    points, _, _ = orders()
    table = pa.table({f"x{j}": points[:, j] for j in range(FEATURES)})
    pq.write_table(pa.concat_tables([table] * 200), "long.parquet")
    print("$ streamembed replay long.parquet --run run --size 300      (and Ctrl-C)")
    command = ["replay", "long.parquet", "--run", "run", "--size", "300"]
    with open("told", "w+") as told:
        running = subprocess.Popen(
            [sys.executable, "-m", "streamembed", *command],
            stdout=told, stderr=told,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        _wait_for(Path("run") / "run.db")
        running.send_signal(signal.SIGINT)
        code = running.wait()
        told.seek(0)
        print(told.read(), end="")
    print(f"[exit code {code}]")
    shell("streamembed inspect run")


def _wait_for(path: Path) -> None:
    """Until a file is there, and a little longer."""
    end = time.perf_counter() + PATIENCE
    while not path.exists() and time.perf_counter() < end:
        time.sleep(0.1)
    time.sleep(2.0)


def inspect_what_there_is() -> None:
    """What is in this run?"""
    prepare_run()
    shell("streamembed inspect run")
    shell("streamembed inspect nowhere")


def transform_new_events() -> None:
    """New events into an old map"""
    prepare_run()
    shell("streamembed transform run/snapshot.arrow new.parquet -o placed.parquet")
    shell("streamembed transform run new.parquet -o again.parquet")
    prompt("""
import pyarrow.parquet as pq
pq.read_table("placed.parquet").slice(0, 1).to_pylist()
""")


def compare_two_snapshots() -> None:
    """Did the map change since yesterday?"""
    prompt(
        """
engine = se.Engine(size=500)
_ = engine.learn(points[:1000])
yesterday = engine.snapshot()
_ = engine.learn(points[1000:1200])
today = engine.snapshot()
today.compare(yesterday)
""",
        points=orders()[0],
    )


def draw_a_live_map() -> None:
    """A picture"""
    prompt(
        """
engine = se.Engine(picture=True, size=500)
_ = engine.learn(points[:1000])
before = engine.snapshot().picture
_ = engine.learn(points[1000:1200])
picture = engine.snapshot().picture
picture
picture.moved_since(before)
axes = picture.plot(color=[kinds[i] for i in picture.ids])
axes.figure.savefig("picture.png")
""",
        points=orders()[0],
        kinds=orders()[1],
    )


def learn_a_metric_from_labels() -> None:
    """A metric from labels"""
    prompt(
        """
engine = se.Engine(size=500, metrics=("geometric_mean",))
_ = engine.learn(points[:1000], kinds[:1000])
metric = engine.snapshot().metrics["geometric_mean"]
metric.matrix.round(2)
metric.distances(points[:1], points[1:4]).round(2)
dict(metric.certificate)
""",
        points=orders()[0],
        kinds=orders()[1],
    )


def search_a_grid() -> None:
    """GridSearchCV"""
    prompt(
        """
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from streamembed.estimators import DiffusionMap
from streamembed.sklearn import OnlineTransformer
model = make_pipeline(OnlineTransformer(DiffusionMap()), KNeighborsClassifier())
grid = {"onlinetransformer__estimator__n_components": [1, 2, 4]}
search = GridSearchCV(model, grid, cv=3).fit(points[:600], kinds[:600])
search.best_params_, round(search.best_score_, 2)
""",
        points=orders()[0],
        kinds=orders()[1],
    )


def pickle_an_engine() -> None:
    """Pickle"""
    prompt(
        """
import pickle
engine = se.Engine(size=500)
_ = engine.learn(points[:600])
copy = pickle.loads(pickle.dumps(engine))
_ = engine.learn(points[600:700]), copy.learn(points[600:700])
bool((engine.snapshot().coordinates == copy.snapshot().coordinates).all())
""",
        points=orders()[0],
    )


def save_and_load() -> None:
    """Save, and go on tomorrow"""
    prompt(
        """
engine = se.Engine(size=500)
_ = engine.learn(points[:605])
engine.save("engine.arrow")
engine.snapshot().save("snapshot.arrow")
loaded = se.Engine.load("engine.arrow")
loaded.position, loaded.pending
se.Snapshot.load("snapshot.arrow")
se.Engine.load("snapshot.arrow")
""",
        points=orders()[0],
    )


def learn_distances() -> None:
    """I have distances only"""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("acgt"), 12)) for _ in range(200)]
    apart = [[sum(a != b for a, b in zip(w, v, strict=True)) for v in words] for w in words]
    prompt(
        """
engine = se.Engine("classical_mds")
engine.learn_distances([row[:t] for t, row in enumerate(distances)])
snapshot = engine.snapshot()
round(snapshot.certificate.negative_mass, 3)
snapshot.transform_distances(distances[:1]).shape
engine.learn_distances(distances)
""",
        distances=apart,
    )


def learn_an_endless_stream() -> None:
    """A stream without an end"""
    prompt("""
rng = np.random.default_rng(0)
engine = se.Engine(memory="landmarks", size=300)
for _ in range(20):
    _ = engine.learn(rng.standard_normal((1000, 3)))
snapshot = engine.snapshot()
engine.position, len(snapshot.ids), float(snapshot.masses.sum())
round(snapshot.resolution, 2)
""")


def learn_a_bad_row() -> None:
    """A row with a NaN"""
    prompt(
        """
points[7, 1] = np.nan
engine = se.Engine(size=500, on_bad_row="skip")
engine.learn(points[:100])
engine = se.Engine(size=500)
engine.learn(points[:100])
""",
        points=orders()[0].copy(),
    )
    table = orders()[2].drop_columns(["target"])
    broken = [None if j == 7 else value for j, value in enumerate(table["hour"].to_pylist())]
    pq.write_table(table.set_column(2, "hour", pa.array(broken)), "broken.parquet")
    shell("streamembed replay broken.parquet --run run --size 500")


def mistype_a_command() -> None:
    """Wrong commands and parameters"""
    shell("streamembed repaly log.parquet")
    shell("streamembed replay log.parquet --run run")
    shell("streamembed replay log.parquet")
    pq.write_table(orders()[2], "log.parquet")
    shell("streamembed replay log.parquet --run run --size many")
    shell("streamembed replay log.parquet --run run --kernel gausian")
    shell("streamembed replay log.parquet --run run --features baskets")
    prompt('se.Engine("umap")')
    prompt("se.Engine(n_component=3)")
    prompt("se.Engine().snapshot()")
    prompt("se.Engine().learn([[1.0, 'a']])")


def ask_whether_it_is_new() -> None:
    """Has anything like this been seen?"""
    prompt(
        """
engine = se.Engine(size=500)
_ = engine.learn(points[:1000])
snapshot = engine.snapshot()
np.median(snapshot.coverage(points[1000:])).round(2)
np.median(snapshot.coverage(points[1000:] + 10.0)).round(2)
snapshot.transform(points[1000:1001, :3])
""",
        points=orders()[0],
    )


TASKS: tuple[Callable[[], None], ...] = (
    check_the_installation,
    type_the_lines_of_the_readme,
    replay_an_own_parquet_file,
    replay_a_hive_folder,
    replay_vectors_of_a_language_model,
    run_a_loop_with_river,
    interrupt_a_replay,
    inspect_what_there_is,
    transform_new_events,
    compare_two_snapshots,
    draw_a_live_map,
    learn_a_metric_from_labels,
    search_a_grid,
    pickle_an_engine,
    save_and_load,
    learn_distances,
    learn_an_endless_stream,
    learn_a_bad_row,
    mistype_a_command,
    ask_whether_it_is_new,
)

if __name__ == "__main__":
    sys.exit(main())
