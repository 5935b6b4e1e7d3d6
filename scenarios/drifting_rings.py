"""drifting-rings: a window under drift, certificate against the truth at every snapshot."""

from __future__ import annotations

import numpy as np

import streamembed as se
from scenarios.audit import Audit, audit, summary
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import (
    MissingDataError,
    digits,
    drifting_rings,
    letter,
    swiss_roll,
)
from streamembed.numeric.arrays import Floats

TOLERANCE = 3e-3
CHUNK = 10


def audit_window(points: Floats, size: int, snapshots: int) -> list[Audit]:
    """Audit a snapshot after every chunk, at random phases over more than one turnover."""
    engine = se.Engine(n_components=10, size=size, scaling=None, tolerance=TOLERANCE)
    chunks = (len(points) - size) // CHUNK
    asked = np.sort(np.random.default_rng(0).choice(chunks, min(snapshots, chunks), replace=False))
    engine.learn(points[:size])
    audits = []
    for i in range(chunks):
        engine.learn(points[size + i * CHUNK : size + (i + 1) * CHUNK])
        if i in asked:
            audits.append(audit(engine.snapshot()))
    return audits


def run(full: bool) -> Outcome:
    """Rings that slide by half a radius per window; in full also a roll, digits and letter."""
    size, snapshots = (500, 420) if full else (300, 40)
    streams = {"rings": drifting_rings(size + CHUNK * snapshots, 0, window=size)}
    notes = []
    if full:
        streams["roll"] = swiss_roll(size + CHUNK * 200, 0)
        for name, load, rows in (("letter", letter, size + CHUNK * 270), ("digits", digits, 1790)):
            try:
                streams[name] = load()[0][:rows]
            except MissingDataError as absent:
                notes.append(f"{name} left out: {absent}")
    audits = [each for points in streams.values() for each in audit_window(points, size, snapshots)]
    worst = summary(audits)
    return Outcome(
        {
            "snapshots": len(audits),
            "worst residual": worst.residual,
            "worst eigenvalue error": worst.eigenvalue_error,
            "claims within [0.5, 3]": worst.honest_share,
            "lowest claim / true": worst.lowest_claim,
            "highest claim / true": worst.highest_claim,
            "unmet": worst.unmet,
        },
        notes=[f"streams: {', '.join(streams)}; window of {size}, every chunk of {CHUNK}", *notes],
    )


SCENARIO = Scenario(
    id="drifting-rings",
    says="a sliding window under drift: the certificate against the true residual",
    run=run,
    expected={
        "worst residual": Expected(0.0, 1.05 * TOLERANCE, "the tolerance, with 5 % slack"),
        "worst eigenvalue error": Expected(0.0, 3e-3, "the leading pairs are those found"),
        "claims within [0.5, 3]": Expected(0.95, 1.0, "claims are products, not samples"),
        "unmet": Expected(0.0, 0.0, "refinement ends in a certificate"),
    },
)
