"""Devices that models are run on."""

from __future__ import annotations

import torch

from .errors import InvalidArgumentError


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
