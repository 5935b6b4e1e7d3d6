"""word-distances: English words known only by their edit distances, in landmarks."""

from __future__ import annotations

import warnings

import numpy as np

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, words
from streamembed.numeric.arrays import Floats

K = 6


def run(full: bool) -> Outcome:
    """Learn words as they come, then place the plurals of some that were never seen.

    An edit distance is no Euclidean distance: its kernel has negative eigenvalues, and nothing
    that rests on a positive one may be assumed.
    """
    count, size = (6000, 1000) if full else (900, 250)
    try:
        vocabulary = words()
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    learned, plurals = _split(vocabulary, count)
    engine = se.Engine(n_components=K, memory="landmarks", size=size, chunk_size=50)
    met = snapshots = 0
    for start in range(0, count, 50):
        for word in learned[start : start + 50]:
            row = edit_distances(word, engine.distance_row_ids.tolist())
            engine.learn_distances([row], ids=[word])
        if engine.ready and start % 500 == 0:
            snapshots += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", se.errors.ResolutionWarning)
                met += bool(engine.snapshot().certificate.met)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.errors.ResolutionWarning)  # it is one of the figures
        snapshot = engine.snapshot()
    support_ids = snapshot.ids.tolist()
    scales = snapshot.width * np.outer(snapshot.widths, snapshot.widths)
    kernel = np.exp(
        -(np.array([edit_distances(word, support_ids) for word in support_ids]) ** 2) / scales
    )
    least = float(np.linalg.eigvalsh(kernel)[0])
    singles = _place_words(snapshot, [word[:-1] for word in plurals])
    many = _place_words(snapshot, plurals)
    apart = np.linalg.norm(many - singles, axis=1)
    strangers = np.linalg.norm(many - np.roll(singles, len(singles) // 2, axis=0), axis=1)
    figures = {
        "met_share": met / snapshots,
        "events": float(snapshot.masses.sum()),
        "resolution": snapshot.resolution,
        "least_kernel_eigenvalue": least,
        "plurals": float(len(plurals)),
        "plural_over_stranger": float(np.median(apart) / np.median(strangers)),
        "nearer_than_stranger": float(np.mean(apart < strangers)),
    }
    notes = ["a plural's own singular against another word of the list, in diffusion coordinates"]
    return Outcome(figures, {}, notes)


def _split(vocabulary: list[str], count: int) -> tuple[list[str], list[str]]:
    """Words to learn, and plurals that are not among them but whose singular is a word."""
    vocabulary_set = set(vocabulary)
    plurals = [word for word in vocabulary if word.endswith("s") and word[:-1] in vocabulary_set]
    chosen_plurals = plurals[: min(200, count // 8)]
    aside = set(chosen_plurals)
    return [word for word in vocabulary if word not in aside][:count], chosen_plurals


def _place_words(snapshot: se.Snapshot, chosen: list[str]) -> Floats:
    """Coordinates of words by their distances to what the snapshot holds."""
    support_ids = snapshot.ids.tolist()
    return snapshot.transform_distances([edit_distances(word, support_ids) for word in chosen])


def edit_distances(word: str, others: list[str]) -> Floats:
    """Levenshtein distances of a word to others: insert, delete or change one letter.

    Examples
    --------
    >>> edit_distances("kitten", ["sitting", "kitten", ""]).tolist()
    [3.0, 0.0, 6.0]
    """
    width = max(map(len, others), default=0)
    letters = np.zeros((len(others), width), dtype=np.int64)
    for i, other in enumerate(others):
        letters[i, : len(other)] = list(map(ord, other))
    row = np.tile(np.arange(width + 1.0), (len(others), 1))
    for i, letter in enumerate(word):
        change = row[:, :-1] + (letters != ord(letter))
        row = np.concatenate([np.full((len(others), 1), i + 1.0), row[:, 1:] + 1.0], axis=1)
        np.minimum(row[:, 1:], change, out=row[:, 1:])
        # insertions to the right, one after the other, are a running minimum
        steps = np.arange(width + 1.0)
        row = np.minimum.accumulate(row - steps, axis=1) + steps
    ends = np.array([len(other) for other in others], dtype=np.int64)
    result: Floats = row[np.arange(len(others)), ends]
    return result


SCENARIO = Scenario(
    id="word-distances",
    says="English words known only by their edit distances, in landmarks",
    run=run,
    expected={
        "met_share": Expected(1.0, 1.0, "certified though the kernel is not positive"),
        "least_kernel_eigenvalue": Expected(-np.inf, -1e-3, "no points have these distances"),
        "nearer_than_stranger": Expected(0.75, 1.0, "a plural lies near its singular"),
    },
)
