"""One BLAS thread for the oracles too: two processes of two threads each stand in their way."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

threadpool_limits(limits=1, user_api="blas")
