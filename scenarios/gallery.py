"""Maps with default parameters, as a picture: ``python -m scenarios.gallery`` (``make picture``).

Six real sets as they stand at the end of their streams, in two coordinates of three maps, a colour
for each class. Writes docs/images/default-maps.png.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import matplotlib

import streamembed as se
from scenarios.default_maps import EVENTS, WINDOW, principal
from scenarios.streams import DataAbsent, table
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SETS = ("digits", "aedes_sex", "waveform", "segment", "usps", "coil20")
TARGET = Path(__file__).resolve().parents[1] / "docs" / "images" / "default-maps.png"
TITLES = ("diffusion map (default)", "Laplacian eigenmaps", "PCA")


def main() -> int:
    """Draw the sets; exit code 1 where the data are not on this machine."""
    figure, axes = plt.subplots(len(SETS), 3, figsize=(9.0, 3.0 * len(SETS)))
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row, name in zip(axes, SETS, strict=True):
            try:
                points, labels = table(name)
            except DataAbsent as absent:
                print(absent)
                return 1
            points, labels = points[-EVENTS:], labels[-EVENTS:]
            n = min(WINDOW, int(0.6 * len(points)))
            for axis, title, shown in zip(row, TITLES, _maps(points, n), strict=True):
                colours = plt.get_cmap("tab20" if labels.max() > 9 else "tab10")
                axis.scatter(*shown.T, c=labels[-n:], s=7, cmap=colours, linewidths=0)
                axis.set_xticks([])
                axis.set_yticks([])
                axis.set_title(f"{name}: {title}", fontsize=9)
    figure.tight_layout()
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, dpi=90)
    print(f"wrote {TARGET.name}")
    return 0


def _maps(points: Floats, n: int) -> list[Floats]:
    """Two coordinates of each map, for the last ``n`` points."""
    shown = []
    for method in ("diffusion_map", "laplacian_eigenmaps"):
        engine = se.Engine(method, size=n)
        engine.learn(points)
        if engine.pending:
            engine.flush()
        shown.append(engine.snapshot().coordinates)
    shown.append(principal(points[-n:], points[-1:])[0][:, :2])
    return shown


if __name__ == "__main__":
    sys.exit(main())
