"""Devices that models are run on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .errors import InvalidArgumentError

#: Products of numbers with weights that one thread computes in some 0.1 s.
QUICK_PRODUCTS = 2**31


def require_device(device: str) -> None:
    """Finds out before anything else is done whether this torch can use a device.

    Raises:
        InvalidArgumentError: with torch's reason.
    """
    try:
        torch.empty(1, device=device).item()  # which has no numbers on "meta"
    except (AssertionError, RuntimeError) as error:  # torch without CUDA raises an AssertionError
        reason = str(error).partition("\n")[0]
        raise InvalidArgumentError(
            f"device {device!r} cannot be used ({reason}); pass 'cpu', or install a torch and a driver for it"
        ) from error


@contextlib.contextmanager
def threads_for(products: int) -> Iterator[None]:
    """Torch computes in the thread that calls it if so many products take no longer than some 0.1 s.

    Others would gain less than that, and spin from one operator to the next, which on a machine with other work takes
    more time of the processor than the products. What other threads of the program have is theirs.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if products <= QUICK_PRODUCTS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_SEED = 0x5EED_0F_0415  # one that no model sets by itself, so that it is seen whether one does


@contextlib.contextmanager
def same_random_numbers(seed: int = _SEED) -> Iterator[None]:
    """Runs a block without gradients and with the random numbers of every other one of that seed; those outside go on
    as before.

    Not by `torch.manual_seed`, which also tells a CUDA that nobody has used yet: it would begin with this seed later,
    and not with the user's.
    """
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if in_use else ()
    with torch.no_grad(), torch.random.fork_rng(devices, device_type="cuda"):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        yield
