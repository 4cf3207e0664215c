"""A Ray cluster: the address is that of the server for Ray clients on its head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

import ray

from ..errors import InvalidArgumentError


class _RayExecutor(Executor):
    """Every call is a task of the cluster."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = ray.remote(call).remote(*args, **kwargs).future()
        return future


@contextmanager
def opened(address: str, jobs: int) -> Iterator[Executor]:
    """As many models at once as the cluster has free processors."""
    try:
        ray.init(f"ray://{address}", log_to_driver=False)
    except ConnectionError as error:
        raise InvalidArgumentError(f"no Ray head answers at {address}: {error}; pass HOST:PORT of one") from error
    try:
        yield _RayExecutor()
    finally:
        ray.shutdown()
