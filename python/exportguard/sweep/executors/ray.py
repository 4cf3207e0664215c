"""A Ray cluster: the address is that of the server for Ray clients on its head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import ray

from ...errors import InvalidArgumentError


class _RayExecutor(Executor):
    """Every call is a task of the cluster."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = ray.remote(call).remote(*args, **kwargs).future()
        return future


def _connect(address: str) -> None:
    try:
        ray.init(f"ray://{address}", log_to_driver=False)
    except ConnectionError as error:
        # The head answers, but on a busy machine the process that it starts for a client may take too long once.
        if "Initialization failure" not in str(error):
            raise
        ray.shutdown()
        ray.init(f"ray://{address}", log_to_driver=False)


@contextmanager
def opened(address: str, jobs: int) -> Iterator[Executor]:
    """As many models at once as the cluster has free processors."""
    try:
        _connect(address)
    except ConnectionError as error:
        raise InvalidArgumentError(f"no Ray head answers at {address}: {error}; pass HOST:PORT of one") from error
    try:
        yield _RayExecutor()
    finally:
        ray.shutdown()
