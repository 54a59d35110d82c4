"""One seed, and a stream of random numbers of its own for each purpose.

So a method that draws more replay does not change the order of images of another.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of 63 bits for `purpose`."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class Generators(dict[str, torch.Generator]):
    """`generators["order"]` is the generator for that purpose, on the device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        self.seed = seed
        self.device = device

    def __missing__(self, purpose: str) -> torch.Generator:
        generator = torch.Generator(self.device).manual_seed(derived_seed(self.seed, purpose))
        self[purpose] = generator
        return generator


@contextlib.contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Seed torch's global generator of the CPU for the block: what layers are initialised from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, purpose))
        yield
