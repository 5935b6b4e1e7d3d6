"""One BLAS thread for the oracles too: two processes with two threads each get in each other's way."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

threadpool_limits(limits=1, user_api="blas")
