"""Finetune: plain SGD, task after task, with nothing done against forgetting. The lower bound."""

import torch.nn.functional as F

from twf.learning.methods.base import Batch, Method, Step
from twf.study.types import Hyperparameters


class Finetune(Method[Hyperparameters]):
    """`L = CE(f(x), y)` over the stream."""

    def loss(self, batch: Batch) -> Step:
        images = self.learner.augment(batch.images, self.learner.generators["augmentation"])
        logits = self.learner.network(images)
        return Step({"cross_entropy": F.cross_entropy(logits, batch.labels)})


METHOD = Finetune
