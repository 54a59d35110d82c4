"""One seed, and a stream of random numbers of its own for each purpose.

So a method that draws more replay does not change the order of images of another.
"""

import contextlib
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

CPU = torch.device("cpu")


def derived_seed(seed: int, purpose: str) -> int:
    """A seed of 63 bits for `purpose`."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class Random:
    """Random numbers on a device, from one seed."""

    def __init__(self, seed: int, device: torch.device = CPU) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    def uniform(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers of `[0, 1)`, of torch's default type where none is named."""
        dtype = dtype or torch.get_default_dtype()
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=dtype)

    def integers(self, end: int, *shape: int) -> Tensor:
        """int64 of `0` to `end - 1`."""
        return torch.randint(end, shape, generator=self.generator, device=self.device)

    def permutation(self, count: int) -> Tensor:
        """0 to `count - 1` (int64) in random order."""
        return torch.randperm(count, generator=self.generator, device=self.device)


class Generators(dict[str, Random]):
    """`generators["order"]` gives the random numbers for that purpose, on the device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        self.seed = seed
        self.device = device

    def __missing__(self, purpose: str) -> Random:
        self[purpose] = Random(derived_seed(self.seed, purpose), self.device)
        return self[purpose]


@contextlib.contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Seed torch's global generator of the CPU for the block: what layers are initialised from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, purpose))
        yield
