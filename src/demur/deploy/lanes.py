"""Where requests are computed: small ones in one thread and large ones in another, so that none waits for the other."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # it has no types

from demur.deploy.refusal import RefusedError

__all__ = ["Lanes"]

_MOST_WAITING = 128
"""Requests under way; what each holds in memory is bounded by the largest body."""

_SMALL = 1 << 16
"""The bytes of a body that is small."""


class Lanes:
    """Two threads that compute answers, and a count of the requests under way.

    One thread for each lane is enough: deciding is bound by the processor, and what is large uses the cores by itself.

    Parameters
    ----------
    compute : callable
        From the body of a request to the body of its answer.

    Examples
    --------
    >>> lanes = Lanes(bytes.upper)
    >>> with lanes:
    ...     asyncio.run(lanes.run(b"answer"))
    b'ANSWER'
    """

    def __init__(self, compute: Callable[[bytes], bytes]) -> None:
        self.compute = compute
        self.under_way = 0
        self._small = ThreadPoolExecutor(1, "demur-small", initializer=_one_thread)
        self._large = ThreadPoolExecutor(1, "demur-large")

    def __enter__(self) -> None:
        if self.under_way >= _MOST_WAITING:
            problem = f"the service is busy with {self.under_way:,} requests"
            raise RefusedError(f"{problem}: try again in a second", status=503)
        self.under_way += 1

    def __exit__(self, *_: object) -> None:
        self.under_way -= 1

    async def run(self, body: bytes) -> bytes:
        """Return the answer; errors come through."""
        lane = self._small if len(body) <= _SMALL else self._large
        return await asyncio.get_running_loop().run_in_executor(lane, self.compute, body)


def _one_thread() -> None:
    """Keep the few rows of a small request from being divided among threads, which takes longer than deciding."""
    threadpool_limits(1, user_api="openmp")
