"""What a method works on and with: the network, the benchmark's shape, and the source."""

from dataclasses import dataclass

import torch
from torch import Tensor

from twf.learning.augmentation import Augment
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import Generators
from twf.study.params import LrDecay, Precision
from twf.study.types import Fidelity


@dataclass(frozen=True)
class SourceData:
    """The source's training images (uint8 `[N, 3, H, W]`), labels, normalisation and network."""

    images: Tensor
    labels: Tensor
    augment: Augment
    network: ResNet  # as pretrained, with the source's classifier


@dataclass
class Learner:
    """What a method works on and with; everything lies on `device`."""

    network: ResNet  # pretrained, with a fresh classifier over all classes
    augment: Augment
    generators: Generators
    device: torch.device
    classes: int
    tasks: int
    batch_size: int  # of the stream, and of replay; a method's own where it has one
    epochs: int  # per task
    buffer: int | None  # how many examples rehearsal may keep
    image_size: int  # pixels along a side
    fidelity: dict[str, Fidelity]  # of the method's switches
    lr_decay: LrDecay | None = None
    precision: Precision = "tf32"
    source: SourceData | None = None  # where the method asks for it

    @property
    def classes_per_task(self) -> int:
        return self.classes // self.tasks
