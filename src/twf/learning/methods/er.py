"""ER, Experience Replay (Ratcliff 1990; Robins 1995): the stream and a replayed batch together."""

import torch
import torch.nn.functional as F

from twf.learning.methods.base import Batch, Rehearsal, Step
from twf.study.types import Hyperparameters


class Er(Rehearsal[Hyperparameters]):
    """`L = CE(f(x), y)`, one mean over stream and replay, which pass the network together."""

    def loss(self, batch: Batch) -> Step:
        images, labels = batch.images, batch.labels
        if not self.reservoir.empty:
            replay = self.reservoir.draw(self.learner.batch_size)
            images = torch.cat([images, replay["images"]])
            labels = torch.cat([labels, replay["labels"]])
        inputs = self.learner.augment(images, self.learner.generators["augmentation"])
        loss = F.cross_entropy(self.learner.network(inputs), labels)
        return Step({"cross_entropy": loss}, {"images": batch.images, "labels": batch.labels})


METHOD = Er
