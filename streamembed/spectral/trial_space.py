"""Trial functions and random probes whose products with W are kept exact while slots are filled.

With H = functions (rows), the images G = H W change by rank 2b when b slots are filled again: rows
of W that leave are subtracted, rows that arrive are added, and nothing else is read. Residuals and
bounds then follow from H and G alone (`streamembed.spectral.sketched_view`).

Symbols: W = kernel matrix, n slots; S = diag(s) W diag(s), D = 1 / s^2, so that S v = lambda v is
W u = lambda D u with u = s v. U = the c trial functions, X = p random probes, row 0 = the function
m a, whose image is what S is normalised by. m = 1 + c + p rows. A = U W U^T, M = U D U^T.
Where S is centred instead, S = J diag(s) W diag(s) J, D = 1 / m, and row 0 is m: its direction is
taken out of A and M whatever W makes of it. W may have eigenvalues of both signs there.

New slots e take the values u_e that W u = lambda D u asks for: Nystrom's extension by F, the
regularised inverse of the operator in the trial space as it is now. Any values would leave the
images exact. A few old slots take such values again with every chunk ("rolling"), which is what
keeps the space good: a step of subspace iteration, spread over a fifth of a turnover.

Source: docs/algorithms/trial-space.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.linalg import lapack

from streamembed.numeric.arrays import Array, Floats, Ints, pad
from streamembed.numeric.codec import Count
from streamembed.numeric.linalg import descending_eigh, symmetrise

# Probes: a direction is missed by all of them with a chance that falls with their number.
PROBES = 32
# The rows of U and of X in H and in G.
OF_TRIAL, OF_PROBES = slice(1, -PROBES), slice(-PROBES, None)
# Of the squared length of a trial function: less outside of the others is rounding.
FAINT = 1e-3
# Regularisation of the extension, as a share of the last Ritz value.
DAMPING = 0.3
# And how many times the most negative one it must be: with r = tau / (theta + tau) the extension
# multiplies a function by 1 - r^3, which is below 1 in size down to theta = -tau / 4.8.
NEGATIVE = 5.0
DOUBLINGS = 20
# Of the squared length of a trial function, 1 when it was turned: less is left of one that has
# faded, and would bring its rounding, ten times as large, into the others.
FADED = 1e-2
# Of the mean squared length of trial functions: what they are divided by is no less.
LEAST_DIVISOR = 1e-4
# Ritz values below this are rounding, by the precision of images: that of the constant is 1. The
# extension divides by them, and by a third of the last.
ROUNDING = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-12}


@dataclass(frozen=True, slots=True, eq=False)
class TrialSpace:
    """H and G = H W, and the small matrices of the trial functions."""

    functions: Annotated[Array, "m slots"]  # H
    images: Annotated[Array, "m slots"]  # G
    inner: Annotated[Floats, "c m"]  # U G^T
    gram: Annotated[Floats, "c c"]  # M, with D of when slots were filled, or rolled
    drawn: Annotated[Floats, "slots"]  # s when slots were filled, or rolled
    damping: float  # tau, at least
    cursor: Count  # the slot that is rolled next
    since_turn: Count  # slots filled since
    is_centred: bool = False

    @property
    def rank(self) -> int:
        """c."""
        return len(self.inner)

    @classmethod
    def of(
        cls, functions: Array, images: Array, scaling: Floats, most: int, is_centred: bool = False
    ) -> TrialSpace:
        """Of H and G, turned to at most so many Ritz functions."""
        c = len(functions) - 1 - PROBES
        space = cls(
            functions,
            images,
            inner=np.zeros((c, len(functions))),
            gram=np.eye(c),
            drawn=scaling,
            damping=1.0,
            cursor=0,
            since_turn=0,
            is_centred=is_centred,
        )
        return space.reduce_to_ritz(most)

    @property
    def is_complete(self) -> bool:
        """Whether the functions are all that a centred W has: they are then extended exactly."""
        return self.is_centred and self.damping == 0.0

    def mark_complete(self) -> TrialSpace:
        """The space, marked as having all eigenfunctions of a centred W."""
        return replace(self, damping=0.0)

    def replace(
        self,
        slots: Ints,
        leaving: Array,
        arriving: Array,
        scaling: Floats,
        constant: Floats,
        draws: Floats,
    ) -> TrialSpace:
        """After ``slots`` were filled, first or again.

        Parameters
        ----------
        slots
            e, shape (b,), distinct; those from n on are new.
        leaving
            Rows of W before, of those of them that were in use, first, shape (b', n).
        arriving
            Rows of W now, shape (b, n'), n' slots in use.
        scaling
            s of ``slots`` now, shape (b,).
        constant
            m a of ``slots``, shape (b,).
        draws
            Standard normal, shape (p, b).

        Returns
        -------
        O(n' m b).
        """
        n, n_before = arriving.shape[1], self.functions.shape[1]
        old = slots[slots < n_before]
        functions, images = pad(self.functions, n, axis=1), pad(self.images, n, axis=1)
        trial, dtype = OF_TRIAL, functions.dtype
        inner, gram = self.inner, self.gram
        # what leaves
        h, g = functions[:, old].astype(np.float64), images[:, old].astype(np.float64)
        corner_left = leaving[:, old].astype(np.float64)
        inner = inner - h[trial] @ g.T - (g[trial] - h[trial] @ corner_left) @ h.T
        gram = gram - (h[trial] / self.drawn[old] ** 2) @ h[trial].T
        functions[:, slots] = 0.0
        # what arrives
        seen = (functions @ arriving.T).astype(np.float64)  # (m, b)
        corner = arriving[:, slots].astype(np.float64)
        squares = scaling**2
        diagonal = float((squares * np.abs(np.diag(corner))).mean())
        own = float(self.functions[0].astype(np.float64) @ self.images[0])
        if self.is_centred:  # of a walk that of the constant whole: these slots will have it, too
            own += float(h[0] @ corner_left @ h[0] - 2.0 * h[0] @ g[0])
        share, mean, extend = self._invert(functions, inner, gram, own, diagonal)
        known = seen[trial] - np.outer(share, seen[0]) - mean[:, None]
        u = np.empty_like(seen)
        u[0] = constant
        u[OF_PROBES] = draws * scaling
        u[trial] = (extend.T @ known) * squares
        if self.is_centred:  # linear in rows of W and in the constant, exactly where it is complete
            u[trial] += np.outer(share, constant)
        else:
            u[trial] = (extend.T @ (known + u[trial] @ corner)) * squares
        u = u.astype(dtype).astype(np.float64)
        images += np.concatenate([u, -h], axis=1).astype(dtype) @ np.concatenate(
            [arriving, pad(leaving, n, axis=1)]
        )
        images[:, slots] = seen + u @ corner
        functions[:, slots] = u
        inner = inner + u[trial] @ seen.T + (seen[trial] + u[trial] @ corner) @ u.T
        gram = gram + (u[trial] / squares) @ u[trial].T
        drawn = pad(self.drawn, n)
        drawn[slots] = scaling
        return replace(
            self,
            functions=functions,
            images=images,
            inner=inner,
            gram=gram,
            drawn=drawn,
            since_turn=self.since_turn + len(slots),
        )

    def refresh_slots(
        self, slots: Ints, rows: Array, scaling: Floats, constant: Floats, renews: bool
    ) -> TrialSpace:
        """New values in old ``slots``, by the images: rows of W (b, n), s and m a of these.

        Probes are brought to the present s: they stay what was drawn. With ``renews`` the images of
        these slots are made anew, without the rounding of all changes so far; in a window that
        happens when a slot is filled.
        """
        if not len(slots):
            return self
        functions, images = self.functions.copy(), self.images
        trial, dtype = OF_TRIAL, functions.dtype
        h, g = functions[:, slots].astype(np.float64), images[:, slots].astype(np.float64)
        squares = scaling**2
        own = float(self.functions[0].astype(np.float64) @ self.images[0])
        share, mean, extend = self._invert(self.functions, self.inner, self.gram, own, 0.0)
        u = np.empty_like(h)
        u[0] = constant
        u[trial] = (extend.T @ (g[trial] - np.outer(share, g[0]) - mean[:, None])) * squares
        if self.is_centred:
            u[trial] += np.outer(share, constant)
        u[OF_PROBES] = h[OF_PROBES] * (scaling / self.drawn[slots])
        u = u.astype(dtype).astype(
            np.float64
        )  # as it is kept, or images would be of something else
        change = u - h
        corner = rows[:, slots].astype(np.float64)
        images = change.astype(dtype) @ rows
        images += self.images
        functions[:, slots] = u
        if renews:
            images[:, slots] = functions @ rows.T
        part = change[trial]
        inner = self.inner + part @ g.T + (g[trial] + part @ corner) @ change.T
        gram = self.gram + (u[trial] / squares) @ u[trial].T
        gram -= (h[trial] / self.drawn[slots] ** 2) @ h[trial].T
        drawn = self.drawn.copy()
        drawn[slots] = scaling
        return replace(
            self,
            functions=functions,
            images=images,
            inner=inner,
            gram=gram,
            drawn=drawn,
            cursor=int((slots[-1] + 1) % len(drawn)),
        )

    def _invert(
        self, functions: Array, inner: Floats, gram: Floats, own: float, diagonal: float
    ) -> tuple[Floats, Floats, Floats]:
        """Share (c,) of the constant in each function, the mean of what is left, and F.

        F is (M^-1 A)^-1 without the constant, which F would make grow with every step, by
        Tikhonov's regularisation, iterated three times. ``own`` is k W k of the constant k.
        """
        if not self.rank:
            return np.zeros(0), np.zeros(0), gram
        share, mean, a, gram = self._remove_constant(functions, inner, gram, own)
        tau = 0.0 if self.is_complete else max(diagonal, self.damping)
        if self.is_centred:
            return share, mean, _invert_signed(a, gram, tau)
        # functions that have faded, or that coincide, must not be divided by nothing
        divisor = gram.copy()
        divisor.flat[:: len(gram) + 1] += LEAST_DIVISOR * float(np.trace(gram)) / len(gram)
        for _ in range(DOUBLINGS):
            if not lapack.dpotrf((a + tau / NEGATIVE * divisor).T, overwrite_a=True)[1]:
                break
            tau *= 2.0  # a kernel that is not positive
        else:  # all has faded
            return share, mean, np.zeros_like(a)
        # symmetric, both; of the first half is read
        once = lapack.dposv((a + tau * divisor).T, gram.T, overwrite_a=True)[1]
        damped = tau * once
        return share, mean, once + damped @ (once + damped @ once)

    def measure_norm(self) -> float:
        """The largest size of a Ritz value; 0 without functions. O(c^3)."""
        own = float(self.functions[0].astype(np.float64) @ self.images[0])
        _, _, a, gram = self._remove_constant(self.functions, self.inner, self.gram, own)
        return float(np.abs(solve_pencil(a, gram, np.zeros(self.rank))[0]).max(initial=0.0))

    def _remove_constant(
        self, functions: Array, inner: Floats, gram: Floats, own: float
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Share (c,) of the constant, mean of images without it; and A and M without it."""
        overlap, image, norm = self._project_constant(functions, inner[:, 0], own)
        share = overlap / norm
        mean = (image - share * own) / norm  # 0 of a Markov operator
        a = inner[:, OF_TRIAL] - np.outer(share, image)
        if self.is_centred:
            a -= np.outer(mean, overlap)
        return share, mean, symmetrise(a), gram - norm * np.outer(share, share)

    def _project_constant(
        self, functions: Array, image: Floats, own: float
    ) -> tuple[Floats, Floats, float]:
        """Of the constant k, row 0: (u, k)_D and u W k of the trial functions, and k D k.

        ``image`` is u W k. Of a Markov operator D k is W k; where S is centred it is 1.
        """
        if not self.is_centred:
            return image, image, own
        sums = functions[:-PROBES].sum(axis=1, dtype=np.float64)
        return sums[1:], image, float(sums[0])

    def estimate_image(self, x: Floats) -> Floats:
        """W x, shape (n,), for an x that is near the function m a of some chunks ago. O(n c)."""
        trial = self.functions[OF_TRIAL]
        rest = (x - self.functions[0]) / self.drawn**2
        inside = trial @ rest.astype(trial.dtype)
        mix = np.linalg.lstsq(self.gram, inside.astype(np.float64), rcond=FAINT)[0]
        images = self.images[OF_TRIAL]
        estimate: Floats = self.images[0].astype(np.float64) + mix.astype(images.dtype) @ images
        return estimate

    def reduce_to_ritz(self, most: int) -> TrialSpace:
        """The space reduced to at most so many Ritz functions, without the constant. O(n m^2)."""
        trial, dtype = OF_TRIAL, self.functions.dtype
        weights = (1.0 / self.drawn**2).astype(dtype)
        u, g = self.functions[trial], self.images[trial]
        image = (u @ self.images[0]).astype(np.float64)
        own = float(self.functions[0].astype(np.float64) @ self.images[0])
        overlap, image, norm = self._project_constant(self.functions, image, own)
        overlap, image = overlap / np.sqrt(norm), image / np.sqrt(norm)
        gram = ((u * weights) @ u.T).astype(np.float64)
        a = (u @ g.T).astype(np.float64) + (own / norm) * np.outer(overlap, overlap)
        a -= np.outer(overlap, image) + np.outer(image, overlap)
        values, mix = solve_pencil(a, gram, overlap, FADED)
        sizes, largest = values, max(float(np.abs(values).max(initial=0.0)), abs(own / norm))
        if self.is_centred:
            order = np.argsort(-np.abs(values), kind="stable")
            values, mix = values[order], mix[:, order]
            sizes = np.abs(values)
        c = min(most, int(np.count_nonzero(sizes > ROUNDING[dtype] * largest)))
        least, last = float(values.min(initial=0.0)), float(sizes[c - 1]) if c else 0.0
        mix = mix[:, :c]
        functions = np.concatenate([self.functions[:1], _mix(mix, u), self.functions[OF_PROBES]])
        images = np.concatenate([self.images[:1], _mix(mix, g), self.images[OF_PROBES]])
        share = (mix.T @ overlap / np.sqrt(norm)).astype(dtype)[:, None]
        functions[1 : 1 + c] -= share * self.functions[0]
        images[1 : 1 + c] -= share * self.images[0]
        turned = functions[1 : 1 + c]
        damping = DAMPING * last
        if self.is_complete:
            damping = 0.0
        elif not self.is_centred:
            damping = max(damping, -NEGATIVE * least)
        return replace(
            self,
            functions=functions,
            images=images,
            inner=(turned @ images.T).astype(np.float64),
            gram=((turned * weights) @ turned.T).astype(np.float64),
            damping=damping,
            since_turn=0,
        )


def _invert_signed(a: Floats, gram: Floats, tau: float) -> Floats:
    """F where A has eigenvalues of both signs: of theta, (1 - r^2) / theta, r the damped share.

    r = tau^2 / (theta^2 + tau^2): Tikhonov's regularisation of least squares, iterated twice.
    """
    values, mix = solve_pencil(a, gram, np.zeros(len(a)))
    size = float(np.abs(values).max(initial=0.0)) or 1.0
    theta, tau = values / size, tau / size
    squares = theta**2 + tau**2
    safe = np.where(squares > 0.0, squares, 1.0)
    inverse = theta / safe * (1.0 + tau**2 / safe) / size
    return (mix * inverse) @ (mix.T @ gram)


def solve_pencil(
    a: Floats, gram: Floats, overlap: Floats, least: float = 0.0
) -> tuple[Floats, Floats]:
    """Ritz values, descending, and the mix (c, c') that makes functions M-orthonormal.

    Parameters
    ----------
    a
        A without the constant, shape (c, c).
    gram, overlap
        M, shape (c, c), and the functions' overlap with the constant, shape (c,), taken out here.

    Directions of which less than `FAINT` is left without the others and the constant are left out,
    and functions of which less than ``least`` is left, as a squared length.
    """
    mix = whiten(gram, overlap, least)
    if not mix.size:
        return np.zeros(0), mix
    values, turn = descending_eigh(mix.T @ a @ mix)
    return values, mix @ turn


def whiten(gram: Floats, overlap: Floats, least: float = 0.0) -> Floats:
    """The mix (c, c') of functions that is orthonormal without the constant; see `solve_pencil`."""
    squares = gram.diagonal()
    gram = gram - np.outer(overlap, overlap)
    left = gram.diagonal()
    is_real = left > np.maximum(FAINT * squares, least)
    if not is_real.any():
        return np.zeros((len(gram), 0))
    inverse = np.where(is_real, 1.0 / np.sqrt(np.where(is_real, left, 1.0)), 0.0)
    correlations = gram * np.outer(inverse, inverse)
    factor, failed = lapack.dpotrf(correlations, lower=True)
    mix: Floats | None = None if failed else lapack.dtrtri(factor, lower=True)[0].T
    # its squared length is the trace of the inverse: no direction is fainter than one part in it
    if mix is None or FAINT * float(np.einsum("ij,ij->", mix, mix)) > 1.0:
        sizes, vectors = descending_eigh(correlations)
        is_real = sizes > FAINT
        mix = vectors[:, is_real] / np.sqrt(sizes[is_real])
    return inverse[:, None] * mix


def _mix(mix: Floats, block: Array) -> Array:
    return mix.T.astype(block.dtype) @ block
