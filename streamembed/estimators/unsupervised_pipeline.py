"""A metric without labels: diffusion map, pairs by diffusion distance, ITML, split-half shrinking.

::

    points -> standardise -> map of all events   -> pairs -> ITML -> A   |
                          -> map of half of them -> pairs -> ITML -> A_1 |-> shrink -> metric
                          -> map of the others   -> pairs -> ITML -> A_2 |

Each line is a replicate (`streamembed.estimators.replicate`). The metric is a pure function of the
pairs that are remembered, computed when asked: a pair that changes its kind leaves no trace in it.

Source: Jain, section 1.3; docs/algorithms/unsupervised.md for the departures and their measure.
"""

from __future__ import annotations

import copy
import inspect
import os
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from streamembed.data import batch, column_roles
from streamembed.data.features import Features
from streamembed.engine.engine import Engine
from streamembed.errors import NotReadyError, ParameterError
from streamembed.estimators.metric_settings import PipelineSettings
from streamembed.estimators.replicate import Embedding, Fit, Replicate, learn_metric
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import Config
from streamembed.metric_learners.learner import build_certificate
from streamembed.metric_learning import metric_roots
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.metric_learning.totals import NO_UPDATES
from streamembed.numeric import codec
from streamembed.numeric.arrays import Floats
from streamembed.numeric.chunks import PendingParts
from streamembed.pairs import metric_shrinkage, pair_memory
from streamembed.parameters import check_names
from streamembed.storage import archive
from streamembed.threads import one_blas_thread


@dataclass(frozen=True, slots=True, eq=False)
class _SavedReplicate:
    """What is saved of a replicate: its map and its pairs."""

    engine: Engine
    pairs: pair_memory.State


@dataclass(frozen=True, slots=True, eq=False)
class _SavedPipeline:
    """What is saved of a pipeline beside its parameters."""

    names: Features | None
    waiting: PendingParts[AcceptedEvents]  # pending events: their chunk is not complete
    # (d,): the maps saw (x - center) / scale; empty before the first chunk.
    center: Annotated[Floats, "p", "finite"]
    scale: Annotated[Floats, "p", "finite", "positive"]
    strands: tuple[_SavedReplicate, ...]


@check_names
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
        Pairs drawn for every event learned; one in ten is saved.
    buffer
        The most pairs remembered.
    percentiles, similar_below, dissimilar_above, by_mass, decay
        As in `streamembed.pairs.thresholds.PairSettings`.
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
        Random seed; with the stream position it determines every draw.

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

    __signature__ = inspect.signature(PipelineSettings)  # what `help` shows

    def __init__(self, *args: Any, **parameters: Any) -> None:
        self.settings = PipelineSettings(*args, **parameters)
        self._replicates: tuple[Replicate, ...] = ()
        self._features: Features | None = None
        self._waiting: PendingParts[AcceptedEvents] = PendingParts()
        self._center = self._scale = np.zeros(0)
        self._fitted: tuple[Mahalanobis, Fit] | None = None

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the warm-up is over: there is a metric, if only the Euclidean one."""
        return bool(self._replicates) and self._replicates[0].engine.ready

    @property
    def position(self) -> int:
        """Events accepted so far, learned and pending."""
        return self._learned + self._waiting.count

    @property
    def replicates(self) -> tuple[Replicate, ...]:
        """All events, and the two halves where the metric is shrunk; none before the first event.

        For inspection: they change with the next chunk.
        """
        return self._replicates

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
        return self.metric.transform(batch.read(X, None, self._features).points)

    def _read(self) -> tuple[Mahalanobis, Fit]:
        if not self.ready:
            wanted = "one" if self._features is None else self._engine_config.warm_up_events
            raise NotReadyError(
                f"the warm-up takes {wanted} events and {self.position} have arrived: learn more, "
                "or create the pipeline with a smaller warm_up"
            )
        if self._fitted is None:
            states = [replicate.pairs for replicate in self._replicates]
            halves = (states[1], states[2]) if self.settings.shrunk else None
            with one_blas_thread():
                matrix, fit = learn_metric(states[0], halves, self.settings.gamma)
            certificate = build_certificate(
                "generated",
                NO_UPDATES,
                fit,
                labelled=0,
                pairs=fit.n_similar + fit.n_dissimilar,
            )
            metric = metric_roots.build_metric(matrix, certificate, self._scale)
            assert self._features is not None
            self._fitted = metric.named(self._features.given_names), fit
        return self._fitted

    # ------------------------------------------------------------------ learning

    def learn(self, X: Any, features: Any = None) -> int:
        """Learn more events of the stream; every complete chunk is learned at once.

        Parameters
        ----------
        X
            Points (n, d), anything that `streamembed.Engine.learn` takes but a reader.
        features
            Of a data frame or Arrow table, the columns to take, as in `streamembed.Engine.learn`.

        Returns
        -------
        How many events were accepted: all of them.

        Raises
        ------
        FeatureError, BadRowError, InputError
            Other features than before, or NaN; nothing of the call was learned.
        """
        names = None if self._features is None else self._features.names
        read = batch.read(column_roles.split(X, names, features).points, None, self._features)
        n, after = len(read.points), self._copy()
        after._features = self._features or read.features
        parts = list(after._engine_config.chunks.split(self._learned, self._waiting.count, n))
        if any(whole for _, whole in parts):
            after._replicates = tuple(map(copy.copy, self._replicates))
        for part, whole in parts:
            after._append_pending(read.points[part].copy())
            if whole:
                after._push()
        vars(self).update(vars(after))
        return n

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        """
        if not self.ready:
            raise NotReadyError(f"{self.position} events have arrived, but the warm-up takes more")
        if self._waiting.count:
            after = self._copy()
            after._replicates = tuple(map(copy.copy, self._replicates))
            after._push()
            vars(self).update(vars(after))

    def _copy(self) -> Self:
        """Another with the same contents: what a call computes, before it is assigned at once."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    @classmethod
    def from_points(cls, X: Any, features: Any = None, **parameters: Any) -> Self:
        """The batch form: all of X is the warm-up, and every row is saved.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.random.default_rng(0).standard_normal((60, 3))
        >>> UnsupervisedPipeline.from_points(X).metric.matrix.shape
        (3, 3)
        """
        n = len(batch.read(column_roles.split(X, None, features).points).points)
        pipeline = cls(**{"memory": "all", "warm_up": n, **parameters})
        pipeline.learn(X, features)
        return pipeline

    def __getstate__(self) -> dict[str, Any]:
        """All but what can be computed again."""
        return {**vars(self), "_fitted": None}

    def _append_pending(self, points: Floats) -> None:
        """These are accepted, and keep the array."""
        ids = np.arange(self.position, self.position + len(points), dtype=np.int64)
        self._waiting = self._waiting.followed_by(AcceptedEvents(points, ids))

    def _push(self) -> None:
        """Learn the pending events in all replicates, as one chunk."""
        chunk, self._waiting = self._waiting.joined(), PendingParts()
        if not self._replicates:
            self._replicates = self._create_replicates()
        with one_blas_thread():
            whole = self._replicates[0]
            whole.engine.learn(chunk.points)
            whole.engine.flush()  # a short chunk by `flush`; whole ones have been learned
            if not len(self._scale):
                snapshot = whole.engine.publish()
                self._center, self._scale = snapshot.center, snapshot.scale
            whole.judge(self._scale_points)
            first = metric_shrinkage.split_halves(chunk.ids, self.settings.seed)
            for half, mine in zip(self._replicates[1:], (first, ~first), strict=False):
                half.push(self._scale_points(chunk.points[mine]))
        self._fitted = None

    def _scale_points(self, points: Floats) -> Floats:
        """Points as the maps and the pairs see them."""
        with np.errstate(over="ignore", under="ignore"):
            result: Floats = (points - self._center) / self._scale
        return result

    @property
    def _width(self) -> int:
        assert self._features is not None
        return len(self._features.names)

    @property
    def _learned(self) -> int:
        return self._replicates[0].engine.position if self._replicates else 0

    @property
    def _engine_config(self) -> Config:
        """Of the engine of all events, once the features are known."""
        if self._replicates:
            return self._replicates[0].engine.config
        return self.settings.build_engine_config(self._width, 0)

    def _create_replicates(self) -> tuple[Replicate, ...]:
        """All events, and where the metric is shrunk their halves; with nothing learned."""
        return tuple(
            Replicate(
                self.settings.build_engine_config(self._width, index),
                self._width,
                self.settings.build_pair_settings(index),
                self.settings.diffusion_time,
                self.settings.embedding,
            )
            for index in range(3 if self.settings.shrunk else 1)
        )

    # ------------------------------------------------------------------ saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue exactly where learning stopped, as Arrow IPC.

        A ``graph`` that is a function is not written.
        """
        replicates = tuple(_SavedReplicate(each.engine, each.pairs) for each in self._replicates)
        saved = _SavedPipeline(self._features, self._waiting, self._center, self._scale, replicates)
        arrays, numbers = codec.pack(saved)
        header = {"parameters": self.settings.as_dict(), "learned": numbers}
        archive.write_table(path, archive.to_table(arrays), "unsupervised", header)

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
        with archive.raise_damaged(path, "unsupervised"):
            parameters = dict(header["parameters"])
        if parameters.get("graph") == "given":
            if not callable(graph):
                raise ParameterError(
                    f"{path} was learned with a custom graph function; pass it as graph="
                )
            parameters["graph"] = graph
        with archive.raise_damaged(path, "unsupervised"):
            arrays = archive.unpack(table)
            for name, array in arrays.items():
                archive.must(array.dtype.kind != "f" or not np.isnan(array).any(), f"{name} is NaN")
            return cls(**parameters)._restore(
                codec.unpack(_SavedPipeline, arrays, header["learned"])
            )

    def _restore(self, saved: _SavedPipeline) -> Self:
        """Resume this new pipeline from the contents of a file, checked for consistency."""
        must = archive.must
        self._features, self._center, self._scale = saved.names, saved.center, saved.scale
        width = 0 if saved.names is None else self._width
        must(saved.scale.shape == saved.center.shape == (width * bool(saved.strands),), "scale")
        must(len(saved.strands) in (0, 3 if self.settings.shrunk else 1), "strands")
        if saved.strands:
            self._replicates = self._create_replicates()
        for replicate, stored in zip(self._replicates, saved.strands, strict=True):
            must(stored.engine.config == replicate.engine.config, "an engine has other parameters")
            must(stored.pairs.pairs.differences.shape[1] == width, "pairs of other features")
            replicate.engine, replicate.pairs = stored.engine, stored.pairs
        if self.ready:
            _ = self.metric  # all its parts must fit together
        waiting = saved.waiting
        for part in waiting.parts:
            must(width > 0 and part.points.shape == (waiting.count, width), "waiting points")
            expected = np.arange(self._learned, self._learned + waiting.count)
            must(np.array_equal(part.ids, expected), "ids of waiting events")
            cut = self._engine_config.chunks.next_cut(self._learned)
            must(expected[-1] + 1 < cut, "more events wait than a chunk has")
        self._waiting = waiting
        return self


codec.prepare(_SavedPipeline)
