"""One BLAS thread for the oracles too: two processes of two threads each stand in their way."""

from __future__ import annotations

import numpy  # noqa: F401  limits reach only libraries that are loaded: numpy's OpenBLAS
import scipy.linalg  # noqa: F401  and scipy's, which is another
from threadpoolctl import threadpool_limits

threadpool_limits(limits=1, user_api="blas")
