"""The streams by name: synthetic ones from a seed, real ones from the data folder.

Rows are in stream order, features float64. `two_circles` and the real data come as
``(points, labels)``, the others as points alone. The same arguments give the same bits; of the
circles, rings and rolls, the first rows do not depend on how many are asked for.

The data folder is the environment variable ``STREAMEMBED_DATA``, or else ``shared/data`` beside the
repository; without it the real streams raise `MissingDataError`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from streamembed.numeric.arrays import Floats, Ints

__all__ = [
    "MissingDataError",
    "crossing_rectangle",
    "data_folder",
    "digits",
    "drifting_rings",
    "gas",
    "labelled_pairs",
    "letter",
    "standardise",
    "still_rings",
    "swiss_roll",
    "table",
    "two_circles",
    "words",
]

FEATURES = 16  # width of the synthetic streams that are not plane
NOISE = 0.05  # standard deviation, in every feature, for rings of radius 0.5 and 1
NOT_FEATURES = frozenset(
    {"label", "word", "batch", "concentration", "session", "concept", "context", "sex"}
)


class MissingDataError(Exception):
    """The real data are not on this machine; the synthetic streams always are."""


def _generators(seed: int, count: int) -> list[np.random.Generator]:
    """One generator for each kind of draw, so that a longer stream starts with the shorter one."""
    return [np.random.default_rng((seed, part)) for part in range(count)]


def _circles(n: int, seed: int) -> tuple[Floats, Ints]:
    """Points (n, 2) on circles of radius 1 (label 0) and 0.5 (label 1), without noise."""
    which, where = _generators(seed, 2)
    labels = (which.random(n) < 0.5).astype(np.int64)
    angle = where.uniform(0.0, 2.0 * np.pi, n)
    radius = np.where(labels == 0, 1.0, 0.5)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), labels


def _embed_isometrically(points: Floats, seed: int) -> Floats:
    """``points`` (n, d) laid isometrically into `FEATURES` dimensions, noise in all of them."""
    _, _, noise, frame = _generators(seed, 4)
    basis, _ = np.linalg.qr(frame.standard_normal((FEATURES, points.shape[1])))
    lifted: Floats = points @ basis.T + NOISE * noise.standard_normal((len(points), FEATURES))
    return lifted


def two_circles(n: int, seed: int) -> tuple[Floats, Ints]:
    """Two concentric noisy circles in the plane, radii 1 and 0.5, as in the source's figure.

    Returns
    -------
    points, labels
        Shapes (n, 2) and (n,); label 0 is the outer circle. Either is as likely at every row.

    Examples
    --------
    >>> import numpy as np
    >>> points, labels = two_circles(500, seed=0)
    >>> np.round(np.linalg.norm(points[labels == 1], axis=1).mean(), 1).item()
    0.5
    """
    points, labels = _circles(n, seed)
    noise = _generators(seed, 3)[2]
    return points + NOISE * noise.standard_normal((n, 2)), labels


def still_rings(n: int, seed: int) -> Floats:
    """Two noisy rings, radii 1 and 0.5, in a plane of 16 dimensions; nothing ever moves: (n, 16).

    Examples
    --------
    >>> import numpy as np
    >>> np.array_equal(still_rings(100, seed=0)[:30], still_rings(30, seed=0))
    True
    """
    return _embed_isometrically(_circles(n, seed)[0], seed)


def drifting_rings(n: int, seed: int, window: int = 2000) -> Floats:
    """`still_rings` sliding within their plane by half the outer radius in ``window`` rows.

    Examples
    --------
    >>> import numpy as np
    >>> slide = drifting_rings(2001, seed=0, window=1000) - still_rings(2001, seed=0)
    >>> np.round(np.linalg.norm(slide[[0, 1000, 2000]], axis=1), 12).tolist()
    [0.0, 0.5, 1.0]
    """
    points, _ = _circles(n, seed)
    points[:, 0] += 0.5 * np.arange(n) / window
    return _embed_isometrically(points, seed)


def swiss_roll(n: int, seed: int) -> Floats:
    """A noisy Swiss roll in 16 dimensions, (n, 16), of about the size of the rings.

    One and a half turns of a strip 9.5 by 2.1: the radius goes from 0.5 to 1.5, so that
    neighbouring turns are 2 / 3 apart.

    Examples
    --------
    >>> swiss_roll(10, seed=0).shape
    (10, 16)
    """
    along, across = _generators(seed, 2)
    angle = along.uniform(1.5 * np.pi, 4.5 * np.pi, n)
    radius = angle / (3.0 * np.pi)
    width = across.uniform(0.0, 2.1, n)
    return _embed_isometrically(
        np.column_stack([radius * np.cos(angle), width, radius * np.sin(angle)]), seed
    )


def crossing_rectangle(n: int, seed: int, chunk: int = 10) -> Floats:
    """Uniform points of a rectangle that goes from 1.2 by 0.8 to 0.8 by 1.2: two modes cross.

    The first and the last quarter of the stream are still; between them the sides change linearly,
    once in ``chunk`` rows. Shape (n, 2), centred on the origin.

    Examples
    --------
    >>> import numpy as np
    >>> points = crossing_rectangle(4000, seed=0)
    >>> np.round(np.ptp(points[:1000], axis=0), 1).tolist()
    [1.2, 0.8]
    >>> np.round(np.ptp(points[3000:], axis=0), 1).tolist()
    [0.8, 1.2]
    """
    (generator,) = _generators(seed, 1)
    position = np.arange(n) // chunk * chunk
    done = np.clip(2.0 * position / n - 0.5, 0.0, 1.0)
    sides = np.column_stack([1.2 - 0.4 * done, 0.8 + 0.4 * done])
    points: Floats = (generator.random((n, 2)) - 0.5) * sides
    return points


def data_folder() -> Path:
    """Where the real data are looked for; it need not exist."""
    chosen = os.environ.get("STREAMEMBED_DATA")
    return Path(chosen) if chosen else Path(__file__).resolve().parents[2] / "shared" / "data"


def find_file(name: str) -> Path:
    """A parquet file of the data folder."""
    path = data_folder() / f"{name}.parquet"
    if not path.is_file():
        raise MissingDataError(
            f"{path.name} is not in {path.parent}: set STREAMEMBED_DATA to the folder that holds it"
        )
    return path


def table(name: str) -> tuple[Floats, Ints]:
    """Features (n, d) and labels (n,) of one parquet file of the data folder, by its name."""
    content = pq.read_table(find_file(name))
    features = [column for column in content.column_names if column not in NOT_FEATURES]
    points = np.column_stack([content[column].to_numpy() for column in features]).astype(np.float64)
    return points, content["label"].to_numpy().astype(np.int64)


def labelled_pairs(
    points: Floats, labels: Ints, count: int, seed: int = 0
) -> tuple[Floats, Floats]:
    """Differences of so many pairs of one class, and of two, of standardised points.

    Drawn at random; pairs of equal points are left out. Shapes (count, d).
    """
    points = standardise(points)
    rng = np.random.default_rng(seed)
    kinds: dict[bool, list[Floats]] = {True: [], False: []}
    while min(sum(map(len, kind)) for kind in kinds.values()) < count:
        left, right = rng.integers(len(points), size=(2, 4 * count))
        differences = points[left] - points[right]
        apart = (differences != 0.0).any(axis=1)
        for same in (True, False):
            kinds[same].append(differences[apart & ((labels[left] == labels[right]) == same)])
    close, far = (np.concatenate(kinds[same])[:count] for same in (True, False))
    return close, far


def words() -> list[str]:
    """The 10,000 most frequent words of GloVe's vocabulary that are three letters or more."""
    content = pq.read_table(find_file("glove_100d_10k"), columns=["word"])["word"].to_pylist()
    return [word for word in content if len(word) > 2 and word.isalpha() and word.isascii()]


def standardise(points: Floats) -> Floats:
    """Columns of mean 0 and standard deviation 1; constant columns stay at 0."""
    scale = points.std(axis=0)
    scaled: Floats = (points - points.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    return scaled


def _principal(points: Floats, width: int) -> Floats:
    """The leading ``width`` principal components, not rescaled; the largest loading is positive."""
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :width]
    largest = np.abs(axes).argmax(axis=0)
    projected: Floats = centred @ (axes * np.sign(axes[largest, np.arange(width)]))
    return projected


def letter() -> tuple[Floats, Ints]:
    """Letter recognition, standardised: (20000, 16), 26 classes. 1332 rows are duplicates."""
    points, labels = table("letter")
    return standardise(points), labels


def digits() -> tuple[Floats, Ints]:
    """Handwritten digits of 8 by 8 grey levels, 0 to 16: 50 principal components, (1797, 50)."""
    points, labels = table("digits")
    return _principal(points, 50), labels


def gas() -> tuple[Floats, Ints]:
    """Gas sensors over 36 months, batches 1-6, 8, 9 in order: (6697, 50), 6 classes.

    Sign times log(1 + size), standardised, then 50 principal components.
    """
    points, labels = table("gas_drift_partial")
    return _principal(standardise(np.sign(points) * np.log1p(np.abs(points))), 50), labels
