"""A Dask cluster: the address is its scheduler's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from distributed import Client

from ...errors import InvalidArgumentError

_CONNECT_S = 30


@contextmanager
def opened(address: str, jobs: int) -> Iterator[Executor]:
    """As many models at once as the cluster's workers have threads."""
    try:
        client = Client(f"tcp://{address}", timeout=_CONNECT_S)
    except OSError as error:
        raise InvalidArgumentError(f"no Dask scheduler answers at {address}: {error}; pass HOST:PORT of one") from error
    with client, client.get_executor(pure=False) as executor:
        yield executor
