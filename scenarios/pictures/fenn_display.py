"""The picture of FENN's display: wine at three temperatures, and by PCA (Fig. 3 of its paper).

`python -m scenarios.pictures.fenn_display` draws it. Needs the extra ``pictures``.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.datasets import load_wine

from streamembed.estimators import FENN, PCA

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "fenn-display.png"
# Okabe and Ito's colours, which most colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73")
MARKERS = ("o", "^", "s")
COLD, HOT = 1e-3, 1e3


def draw(path: Path = PICTURE) -> None:
    """Four panels: towards temperature 0, the chosen one, towards infinity, and PCA."""
    X, y = load_wine(return_X_y=True)
    model, axes = FENN(), PCA(n_components=2)
    model.learn_many(X, y)
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    axes.learn_many(standardised)
    panels = []
    for name, mu in (("μ → 0", COLD), ("μ of the Fisher information", None), ("μ → ∞", HOT)):
        shown = model.display(X, mu=mu)
        weights = " and ".join(f"{weight:.2f}" for weight in shown.weights)
        panels.append((f"{name}: weights {weights}", shown.coordinates))
    panels.append(("PCA, standardised", axes.transform_many(standardised)))

    figure = Figure(figsize=(8.0, 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, (title, places) in zip(figure.subplots(2, 2).ravel(), panels, strict=True):
        centred = places - places.mean(axis=0)
        for label, (colour, marker) in enumerate(zip(COLOURS, MARKERS, strict=True)):
            rows = centred[y == label]
            ax.scatter(*rows.T, s=18, color=colour, marker=marker, alpha=0.75, linewidths=0)
        ax.set_title(title, fontsize=10)
        ax.set_aspect("equal", adjustable="datalim")
        ax.tick_params(labelsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw()
