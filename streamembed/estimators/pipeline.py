"""A metric without labels: diffusion map, pairs by diffusion distance, ITML, split-half shrinking.

::

    points -> standardise -> map of all events   -> pairs -> ITML -> A   |
                          -> map of half of them -> pairs -> ITML -> A_1 |-> shrink -> metric
                          -> map of the others   -> pairs -> ITML -> A_2 |

Each line is a strand (`streamembed.estimators.strand`). The metric is a pure function of the pairs
that are remembered, computed when asked: a pair that changes its kind leaves no trace in it.

Source: Jain, section 1.3; docs/algorithms/unsupervised.md for the departures and their measure.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np

from streamembed import parameters
from streamembed.data import batch
from streamembed.engine import saved
from streamembed.engine.config import Config
from streamembed.errors import NotReadyError, ParameterError, shown
from streamembed.estimators.strand import Embedding, Fit, Strand, learned_metric
from streamembed.geometry import neighbors
from streamembed.learners.learner import NO_UPDATES, certificate
from streamembed.metric_learning import balance
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Array, Floats
from streamembed.pairs import shrink, thresholds
from streamembed.parameters import (
    LARGEST_D2,
    LARGEST_DRAW,
    LARGEST_SEED,
    LARGEST_TIME,
    flag,
    one_of,
    real,
    whole,
)
from streamembed.storage import archive
from streamembed.threads import one_blas_thread

__all__ = ["UnsupervisedPipeline"]

# Coordinates in which pairs are judged, at most: those of the tracked factor's usual rank.
MOST_COMPONENTS = 48
GRAPHS: dict[str, Embedding | None] = {"neighbors": neighbors.self_tuning_map, "kernel": None}
# Three events for each half: two more than the least number of components.
LEAST_WARM_UP = 6


class UnsupervisedPipeline:
    """A Mahalanobis metric learned from a stream of points without labels.

    Parameters
    ----------
    n_components
        Coordinates in which pairs are judged; None: the number of features, at most 48.
    diffusion_time
        t of lambda^t psi; None: psi as it is, as in the source's Laplacian eigenmaps.
    memory, size, half_life, bandwidth, alpha
        Of the map's engine (`streamembed.Engine`); the halves have half the size.
    warm_up
        Events before the first map, from which scaling and bandwidth come; None:
        max(100, 10 d, chunk_size), d being the number of features, but no more than ``size``.
    chunk_size
        Events per update, at multiples of the stream position.
    candidates
        Pairs drawn for every event learned; one in ten is kept.
    buffer
        The most pairs remembered.
    percentiles, similar_below, dissimilar_above, by_mass, decay
        As in `streamembed.pairs.thresholds.Settings`.
    gamma
        Slack of ITML.
    shrunk
        Shrink the metric by how well it reproduces on halves of the events; costs two more maps of
        half the size.
    graph
        "neighbors": pairs are judged in the map of the self-tuning graph of 20 nearest neighbours,
        made from scratch with every chunk; "kernel": in the engine's own, tracked map, which is
        faster and finds less; or a function of the standardised points (N, d) and the number of
        components, to psi and eigenvalues.
    seed
        Of everything random, together with the stream position.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> side = np.where(rng.random(400) < 0.5, 4.0, -4.0)
    >>> X = np.column_stack([side + rng.standard_normal(400), 3.0 * rng.standard_normal(400)])
    >>> pipeline = UnsupervisedPipeline(size=400)
    >>> pipeline.learn(X)
    400
    >>> metric, fit = pipeline.metric, pipeline.fit
    >>> metric.matrix.shape, fit.status
    ((2, 2), 'ok')
    """

    def __init__(
        self,
        n_components: int | None = None,
        diffusion_time: float | None = 16.0,
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        bandwidth: float | str = "auto",
        alpha: float = 1.0,
        warm_up: int | None = None,
        chunk_size: int = 50,
        candidates: int = 40,
        buffer: int = 500,
        percentiles: tuple[float, float] = (5.0, 95.0),
        similar_below: float | None = None,
        dissimilar_above: float | None = None,
        by_mass: bool = False,
        decay: float = 0.9,
        gamma: float = 0.1,
        shrunk: bool = True,
        graph: str | Embedding = "neighbors",
        seed: int = 0,
    ) -> None:
        gamma = real("gamma", gamma, 0.0, np.inf, opened=True)
        if diffusion_time is not None:
            diffusion_time = real("diffusion_time", diffusion_time, 0.0, LARGEST_TIME, " or None")
        if n_components is not None:
            n_components = whole("n_components", n_components, 1, " or None")
        if warm_up is not None:
            halves = ": the halves have half of it"
            warm_up = whole("warm_up", warm_up, LEAST_WARM_UP, halves)
        if half_life is not None:
            half_life = real("half_life", half_life, 2e-3, 1e15, " or None")
        if similar_below is not None:
            similar_below = real("similar_below", similar_below, 0.0, LARGEST_D2, " or None")
        if dissimilar_above is not None:
            dissimilar_above = real(
                "dissimilar_above", dissimilar_above, 0.0, LARGEST_D2, " or None"
            )
        size = whole("size", size, 3)
        chunk_size = whole("chunk_size", chunk_size, 1)
        self.parameters: dict[str, Any] = {
            "n_components": n_components,
            "diffusion_time": diffusion_time,
            "memory": one_of("memory", memory, ("window", "landmarks", "all")),
            "size": size,
            "half_life": half_life,
            "bandwidth": bandwidth,
            "alpha": alpha,
            "warm_up": warm_up,
            "chunk_size": chunk_size,
            "candidates": whole("candidates", candidates, 1, high=LARGEST_DRAW),
            "buffer": whole("buffer", buffer, 2),
            "percentiles": parameters.percentiles("percentiles", percentiles),
            "similar_below": similar_below,
            "dissimilar_above": dissimilar_above,
            "by_mass": flag("by_mass", by_mass),
            "decay": real("decay", decay, 1e-12, 1.0),
            "gamma": gamma,
            "shrunk": flag("shrunk", shrunk),
            "graph": graph if isinstance(graph, str) else "given",
            "seed": whole("seed", seed, 0, high=LARGEST_SEED // 4),
        }
        if isinstance(graph, str):
            graph = one_of("graph", graph, tuple(GRAPHS), " or a function")
        elif not callable(graph):
            raise ParameterError(
                f"graph={shown(graph)} must be one of {', '.join(GRAPHS)}, or a function"
            )
        self._embedding = GRAPHS[graph] if isinstance(graph, str) else graph
        self._settings(0)  # parameters are checked here, not at the first event
        self._config(1, 0)
        self._strands: tuple[Strand, ...] = ()
        self._names: tuple[tuple[str, ...], bool] | None = None
        self._waiting = np.zeros((0, 0))
        self._center = self._scale = np.zeros(0)
        self._fitted: tuple[Mahalanobis, Fit] | None = None

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the warm-up is over: there is a metric, if only the Euclidean one."""
        return bool(self._strands) and self._strands[0].engine.ready

    @property
    def position(self) -> int:
        """Events accepted so far, learned and pending."""
        return self._learned + len(self._waiting)

    @property
    def strands(self) -> tuple[Strand, ...]:
        """All events, and the two halves where the metric is shrunk; none before the first event.

        For a look: they change with the next chunk.
        """
        return self._strands

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; the same object until the state changes.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        """
        return self._read()[0]

    @property
    def fit(self) -> Fit:
        """How the metric was obtained.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        """
        return self._read()[1]

    def transform(self, X: Any) -> Floats:
        """Points in the space where the metric is the Euclidean distance, shape (n, rank)."""
        names, ordered = self._names or (None, False)
        return self.metric.transform(batch.read(X, None, names, ordered).points)

    def _read(self) -> tuple[Mahalanobis, Fit]:
        if not self.ready:
            wanted = "one" if self._names is None else self._config(self._width, 0).warm_up_events
            raise NotReadyError(
                f"the warm-up takes {wanted} events and {self.position} have come: learn more of "
                "them, or start with a smaller warm_up"
            )
        if self._fitted is None:
            states = [strand.pairs for strand in self._strands]
            halves = (states[1], states[2]) if self.parameters["shrunk"] else None
            with one_blas_thread():
                matrix, fit = learned_metric(states[0], halves, self.parameters["gamma"])
            told = certificate(
                "generated",
                NO_UPDATES,
                fit,
                labelled=0,
                pairs=fit.n_similar + fit.n_dissimilar,
            )
            metric = balance.handed_out(matrix, told, self._scale)
            names, ordered = self._names or (None, True)
            self._fitted = metric.named(None if ordered else names), fit
        return self._fitted

    # ------------------------------------------------------------------ learning

    def learn(self, X: Any) -> int:
        """Learn more events of the stream; every complete chunk is learned at once.

        Parameters
        ----------
        X
            Points (n, d), anything that `streamembed.Engine.learn` takes but a reader.

        Returns
        -------
        How many events were accepted: all of them.

        Raises
        ------
        FeatureError, BadRowError, InputError
            Other features than before, or NaN; nothing of the call was learned.
        """
        names, ordered = self._names or (None, False)
        read = batch.read(X, None, names, ordered)
        if self._names is None:
            self._names = (read.names, read.ordered)
            self._waiting = np.zeros((0, len(read.names)))
        points = np.concatenate([self._waiting, read.points])
        while len(points) >= (count := self._next_cut - self._learned):
            self._push(points[:count])
            points = self._waiting = points[count:]
        self._waiting = points
        return len(read.points)

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        """
        if not self.ready:
            raise NotReadyError(f"{self.position} events have come, and the warm-up takes more")
        if len(self._waiting):
            points, self._waiting = self._waiting, self._waiting[:0]
            self._push(points)

    @classmethod
    def of(cls, X: Any, **parameters: Any) -> Self:
        """The batch form: all of X is the warm-up, and every row is kept.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).standard_normal((60, 3))
        >>> UnsupervisedPipeline.of(X).metric.matrix.shape
        (3, 3)
        """
        n = len(batch.read(X).points)
        pipeline = cls(**{"memory": "all", "warm_up": n, **parameters})
        pipeline.learn(X)
        return pipeline

    def _push(self, points: Floats) -> None:
        """One chunk into all strands."""
        position = self._learned
        if not self._strands:
            self._strands = tuple(
                Strand(
                    self._config(self._width, index),
                    self._width,
                    self._settings(index),
                    self.parameters["diffusion_time"],
                    self._embedding,
                )
                for index in range(3 if self.parameters["shrunk"] else 1)
            )
        with one_blas_thread():
            whole = self._strands[0]
            whole.engine.learn(points)
            whole.engine.flush()  # a short chunk by `flush`; whole ones have been learned
            if position == 0:
                snapshot = whole.engine.snapshot()
                self._center, self._scale = snapshot.center, snapshot.scale
            whole.judge(self._scaled)
            first = shrink.halves(
                np.arange(position, position + len(points), dtype=np.int64), self.parameters["seed"]
            )
            for half, mine in zip(self._strands[1:], (first, ~first), strict=False):
                half.push(self._scaled(points[mine]))
        self._fitted = None

    def _scaled(self, points: Floats) -> Floats:
        """Points as the maps and the pairs see them."""
        with np.errstate(over="ignore", under="ignore"):
            result: Floats = (points - self._center) / self._scale
        return result

    @property
    def _width(self) -> int:
        assert self._names is not None
        return len(self._names[0])

    @property
    def _learned(self) -> int:
        return self._strands[0].engine.position if self._strands else 0

    @property
    def _next_cut(self) -> int:
        """The stream position at which the chunk that is filling now ends."""
        if not self.ready:
            return self._config(self._width, 0).warm_up_events
        chunk = int(self.parameters["chunk_size"])
        return (self._learned // chunk + 1) * chunk

    def _settings(self, index: int) -> thresholds.Settings:
        """Of the pairs of one strand; draws of the three are strangers."""
        names = ("candidates", "buffer", "percentiles", "similar_below", "dissimilar_above")
        given = {name: self.parameters[name] for name in (*names, "by_mass", "decay")}
        return thresholds.Settings(**given, seed=3 * self.parameters["seed"] + index)

    def _config(self, width: int, index: int) -> Config:
        """Of the engine of one strand: 0 all events, 1 and 2 the halves."""
        given = self.parameters
        share = 2 if index else 1
        size, chunk = given["size"], given["chunk_size"]
        warm_up = given["warm_up"]
        if warm_up is None:
            warm_up = max(100, 10 * width, chunk)
            warm_up = warm_up if given["memory"] == "all" else min(warm_up, size)
        # the halves, as small as they are, must have more events than components
        most = max(1, min(MOST_COMPONENTS, warm_up // 2 - 2))
        return Config(
            n_components=min(given["n_components"] or width, most),
            memory=given["memory"],
            size=size // share,
            half_life=None if given["half_life"] is None else given["half_life"] / share,
            bandwidth=given["bandwidth"],
            alpha=given["alpha"],
            tolerance=None,  # pairs ask for the order of distances, not for a certificate
            chunk_size=max(1, chunk // share),
            warm_up=warm_up // share,
            scaling=None if index else "standard",
            seed=3 * given["seed"] + index,
        )

    # ------------------------------------------------------------------ saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue exactly where learning stopped, as Arrow IPC.

        A ``graph`` that is a function is not written.
        """
        arrays: dict[str, Array] = {
            "waiting": self._waiting,
            "center": self._center,
            "scale": self._scale,
        }
        header: dict[str, Any] = {"parameters": self.parameters, "names": self._names}
        for index, strand in enumerate(self._strands):
            parts = strand.engine.__getstate__()
            inside, numbers = strand.pairs.to_arrays()
            header[f"engine.{index}"], header[f"pairs.{index}"] = parts["header"], numbers
            arrays.update({f"engine.{index}.{key}": a for key, a in parts["arrays"].items()})
            arrays.update({f"pairs.{index}.{key}": a for key, a in inside.items()})
        archive.write_table(path, archive.table_of(arrays), "unsupervised", header)

    @classmethod
    def load(cls, path: str | os.PathLike[str], graph: Embedding | None = None) -> Self:
        """The pipeline that `save` wrote, bit for bit; with the ``graph`` it had, if a function.

        Raises
        ------
        DamagedFileError
            The bytes are not what was written.
        FileError
            The file is missing, or cannot be read.
        ParameterError
            It was learned with a function as ``graph``, and none was given.
        """
        table, header = archive.read_table(path, "unsupervised")
        with archive.sound(path, "unsupervised"):
            given = dict(header["parameters"])
        if given.get("graph") == "given":
            if not callable(graph):
                raise ParameterError(
                    f"{path} was learned with a graph of its own; pass it as graph"
                )
            given["graph"] = graph
        with archive.sound(path, "unsupervised"):
            return cls._of_parts(given, header, archive.unpacked(table))

    @classmethod
    def _of_parts(
        cls, given: dict[str, Any], header: dict[str, Any], arrays: dict[str, Array]
    ) -> Self:
        """What `save` wrote, checked for what the checksum cannot tell."""
        must = archive.must
        for name, array in arrays.items():
            must(array.dtype.kind != "f" or not np.isnan(array).any(), f"{name} holds NaN")
        pipeline = cls(**given)
        if header["names"] is not None:
            pipeline._names = (tuple(header["names"][0]), bool(header["names"][1]))
        width = 0 if pipeline._names is None else pipeline._width
        pipeline._waiting = arrays["waiting"]
        pipeline._center, pipeline._scale = arrays["center"], arrays["scale"]
        for name in ("waiting", "center", "scale"):
            must(arrays[name].dtype == np.float64, f"{name} has another dtype")
        must(pipeline._waiting.shape[1:] == (width,), "waiting has another shape")
        learned = "engine.0" in header
        must(len(pipeline._scale) == len(pipeline._center) == width * learned, "scale")
        must((pipeline._scale > 0).all(), "scale is not positive")
        strands = []
        for index in range(3):
            if f"engine.{index}" not in header:
                break
            strand = Strand(
                pipeline._config(pipeline._width, index),
                pipeline._width,
                pipeline._settings(index),
                pipeline.parameters["diffusion_time"],
                pipeline._embedding,
            )
            parts = {"header": header[f"engine.{index}"], "arrays": _under(arrays, "engine", index)}
            must("n_components" in parts["header"]["config"], "it has no parameters")
            saved.check(parts["arrays"], parts["header"], strand.engine.config)
            strand.engine.__setstate__(parts)
            strand.pairs = thresholds.State.from_arrays(
                _under(arrays, "pairs", index), header[f"pairs.{index}"]
            )
            strands.append(strand)
        must(len(strands) in (0, 3 if pipeline.parameters["shrunk"] else 1), "strands")
        pipeline._strands = tuple(strands)
        if pipeline.ready:
            _ = pipeline.metric  # whatever it is made of must fit together
        must(
            len(pipeline._waiting) < pipeline._next_cut - pipeline._learned or not width, "waiting"
        )
        return pipeline


def _under(arrays: dict[str, Array], name: str, index: int) -> dict[str, Array]:
    prefix = f"{name}.{index}."
    return {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
