"""eig-dml-online: pairs fifty at a time, judged on all far pairs, against the certified optimum."""

from __future__ import annotations

import numpy as np

from scenarios.baselines import mirror_prox
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, labelled_pairs, table
from streamembed.metric_learning import eig_dml
from streamembed.metric_learning.eig_dml import EigDMLSettings
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread

BATCH = 50
# nearness to the optimum is what is asked for here; the default smoothing is for accuracy
SETTINGS = EigDMLSettings(smoothing=0.02, steps=20, step_cap=1000)
RECENT = EigDMLSettings(smoothing=0.02, steps=20, step_cap=1000, policy="recent")
# what the design of this project measured, of the same 10,000 pairs in other draws
STUDY = {"wine": 0.965, "letter": 0.951, "segment": 0.975}


def run(full: bool) -> Outcome:
    """10,000 close and 10,000 far pairs of three data sets (quick: of wine alone)."""
    names, count = (tuple(STUDY) if full else ("wine",)), 10_000
    try:
        data = {name: table(name) for name in names}
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    figures: dict[str, float] = {}
    notes = [
        "share of the optimum: the smallest far pair over the bound that a batch solver certifies, "
        "so the true share is no smaller"
    ]
    with one_blas_thread():
        for name in names:
            close, far = labelled_pairs(*data[name], count)
            hard, recent = (_stream_pairs(close, far, each) for each in (SETTINGS, RECENT))
            scatter = eig_dml.compute_constraint(hard)
            best = mirror_prox.solve(scatter, far)
            figures[f"{name}_hard"] = _smallest(hard, far) / best.bound
            figures[f"{name}_recent"] = _smallest(recent, far) / best.bound
            start = np.linalg.inv(scatter).astype(np.float64)
            at_start = float(eig_dml.squared_distances(far, start).min())
            figures[f"{name}_start"] = at_start / best.bound
            figures[f"{name}_batch_gap"] = best.gap
            notes.append(
                f"{name}: {figures[f'{name}_hard']:.3f} with the nearest pairs remembered, "
                f"{figures[f'{name}_recent']:.3f} with the newest (study {STUDY[name]:.3f} and at "
                f"most .42); the inverse of H, the starting point, {figures[f'{name}_start']:.3f}"
            )
    figures["hard"] = min(figures[f"{name}_hard"] for name in names)
    figures["recent"] = max(figures[f"{name}_recent"] for name in names)
    figures["batch_gap"] = max(figures[f"{name}_batch_gap"] for name in names)
    return Outcome(figures, {}, notes)


def _stream_pairs(close: Floats, far: Floats, settings: EigDMLSettings) -> eig_dml.State:
    state = eig_dml.init(close.shape[1])
    for start in range(0, len(close), BATCH):
        part = slice(start, start + BATCH)
        state, _ = eig_dml.update(state, close[part], far[part], settings)
    return state


def _smallest(state: eig_dml.State, far: Floats) -> float:
    return float(eig_dml.squared_distances(far, state.matrix).min())


SCENARIO = Scenario(
    id="eig-dml-online",
    says="Eig-DML fifty pairs at a time, judged on all far pairs, against the certified optimum",
    run=run,
    expected={
        "hard": Expected(0.93, 1.0, "the bar of the design; letter is nearest to it"),
        "recent": Expected(0.0, 0.6, "the newest pairs alone lose the binding constraints"),
        "batch_gap": Expected(0.0, 3e-3, "the reference is certified"),
    },
)
