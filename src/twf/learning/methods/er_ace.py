"""ER-ACE, Asymmetric Cross-Entropy (Caccia et al., 2022): the stream leaves old classes alone."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twf.learning.methods.base import Batch, Rehearsal, Step
from twf.study.types import Hyperparameters


class ErAce(Rehearsal[Hyperparameters]):
    """`L = CE(f(x) over C, y) + CE(f(x'), y')`, stream and replay passed one after the other.

    C is the classes in the batch and those from the highest seen so far upward; the first task has
    all classes in C, and no replay.
    """

    def setup(self) -> None:
        super().setup()
        self.highest = torch.zeros((), dtype=torch.int64, device=self.learner.device)

    def loss(self, batch: Batch) -> Step:
        logits = self._logits(batch.images)
        self.highest.copy_(torch.maximum(self.highest, batch.labels.max()))
        if self.task > 0:
            competes = competing(batch.labels, self.highest, self.learner.classes)
            logits = logits.masked_fill(~competes, torch.finfo(logits.dtype).min)
        terms = {"stream": F.cross_entropy(logits, batch.labels)}
        if self.task > 0:
            replay = self.reservoir.draw(self.learner.batch_size)
            terms["replay"] = F.cross_entropy(self._logits(replay["images"]), replay["labels"])
        return Step(terms, {"images": batch.images, "labels": batch.labels})

    def _logits(self, images: Tensor) -> Tensor:
        augmented = self.learner.augment(images, self.learner.generators["augmentation"])
        return self.learner.network(augmented)


def competing(labels: Tensor, highest: Tensor, classes: int) -> Tensor:
    """Which classes the stream's cross-entropy runs over: bool `[classes]`.

    Those among `labels`, and, until the last class was seen, those from the `highest` seen upward.
    """
    every = torch.arange(classes, device=labels.device)
    present = (labels[:, None] == every).any(dim=0)
    return present | ((every >= highest) & (highest < classes - 1))


METHOD = ErAce
