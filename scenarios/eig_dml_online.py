"""eig-dml-online: pairs fifty at a time, judged on all far pairs, against the certified optimum."""

from __future__ import annotations

import numpy as np

from scenarios.baselines import mirror_prox
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, labelled_pairs, table
from streamembed.metrics import eig_dml
from streamembed.metrics.eig_dml import EigDMLLearner
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

BATCH, PAIRS = 50, 10_000
KINDS = ("hard", "recent", "start", "batch_gap")
# nearness to the optimum is what is asked for here; the default smoothing is for accuracy
SETTINGS = EigDMLLearner(smoothing=0.02, steps=20, step_cap=1000)
RECENT = EigDMLLearner(smoothing=0.02, steps=20, step_cap=1000, policy="recent")
# what the design of this project measured, of the same 10,000 pairs in other draws
STUDY = {"wine": 0.965, "letter": 0.951, "segment": 0.975}


def run(full: bool) -> Outcome:
    """10,000 close and 10,000 far pairs of three data sets, ten draws (quick: wine, one draw)."""
    names, draws = (tuple(STUDY), 10) if full else (("wine",), 1)
    try:
        data = {name: table(name) for name in names}
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    figures: dict[str, float] = {}
    notes = [
        "share of the optimum: the smallest far pair over the bound that a batch solver certifies, "
        f"so the true share is no smaller; mean ± standard error over draws of pairs: {draws}"
    ]
    with one_blas_thread():
        for name in names:
            shares = np.array([_measure(*data[name], seed) for seed in range(draws)])
            means = shares.mean(axis=0)
            errors = shares.std(axis=0, ddof=1) / np.sqrt(draws) if draws > 1 else 0.0 * means
            figures |= {f"{name}_{kind}": float(means[j]) for j, kind in enumerate(KINDS)}
            hard, recent, start = (
                f"{means[j]:.3f} ± {errors[j]:.3f} ({shares[:, j].min():.3f} to "
                f"{shares[:, j].max():.3f})"
                for j in range(3)
            )
            notes.append(
                f"{name}: {hard} with the nearest pairs remembered, {recent} with the newest "
                f"(study {STUDY[name]:.3f} and at most .42); the inverse of H, the starting "
                f"point, {start}"
            )
    figures["hard"] = min(figures[f"{name}_hard"] for name in names)
    figures["recent"] = max(figures[f"{name}_recent"] for name in names)
    figures["batch_gap"] = max(figures[f"{name}_batch_gap"] for name in names)
    return Outcome(figures, {}, notes)


def _measure(points: Floats, labels: Ints, seed: int) -> list[float]:
    """Shares of the optimum on one draw of pairs, in the order of `KINDS`, and the batch's gap."""
    close, far = labelled_pairs(points, labels, PAIRS, seed)
    hard, recent = (_stream_pairs(close, far, each) for each in (SETTINGS, RECENT))
    scatter = eig_dml.compute_constraint(hard)
    best, bound = mirror_prox.solve(scatter, far)
    start = np.linalg.inv(scatter).astype(np.float64)
    at_start = float(eig_dml.squared_distances(far, start).min())
    return [
        _smallest(hard, far) / bound,
        _smallest(recent, far) / bound,
        at_start / bound,
        1.0 - float(eig_dml.squared_distances(far, best).min()) / bound,
    ]


def _stream_pairs(close: Floats, far: Floats, settings: EigDMLLearner) -> eig_dml.State:
    state = eig_dml.init(close.shape[1])
    for start in range(0, len(close), BATCH):
        part = slice(start, start + BATCH)
        state = eig_dml.update(state, close[part], far[part], settings)
    return state


def _smallest(state: eig_dml.State, far: Floats) -> float:
    return float(eig_dml.squared_distances(far, state.matrix).min())


SCENARIO = Scenario(
    id="eig-dml-online",
    says="Eig-DML fifty pairs at a time, judged on all far pairs, against the certified optimum",
    run=run,
    expected={
        "hard": Expected(
            0.93, 1.0, "the bar of the design, for means over draws; one draw of letter is at .926"
        ),
        "recent": Expected(
            0.0, 0.6, "the newest pairs alone lose the binding constraints; means over draws"
        ),
        "batch_gap": Expected(0.0, 3e-3, "the reference is certified"),
    },
)
