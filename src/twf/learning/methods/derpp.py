"""DER++, Dark Experience Replay (Buzzega et al., 2020): replay of logits and of labels."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from twf.learning.methods.base import Batch, Rehearsal, Step
from twf.study.methods.derpp import DerppHyperparameters


class Derpp(Rehearsal[DerppHyperparameters]):
    """`L = CE(f(x), y) + alpha ||f(x') - l'||^2 + beta CE(f(x''), y'')`.

    x' and x'' are independent replay batches; stream, x' and x'' pass the network one by one. The
    norm is the mean over examples and classes. The logits l stored with an image are those of the
    step that offered it. A variant may have the first term over the current task's classes alone,
    as TwF has it in the published code (F6).
    """

    def loss(self, batch: Batch) -> Step:
        logits = self._logits(batch.images)
        stream_loss = self.among_current if self.learner.current_classes else F.cross_entropy
        terms = {"stream": stream_loss(logits, batch.labels)}
        if not self.reservoir.empty:
            replay = self.reservoir.draw(self.learner.batch_size)
            error = F.mse_loss(self._logits(replay["images"]), replay["logits"])
            terms["replay_logits"] = self.hyperparameters.alpha * error
            replay = self.reservoir.draw(self.learner.batch_size)
            error = F.cross_entropy(self._logits(replay["images"]), replay["labels"])
            terms["replay_labels"] = self.hyperparameters.beta * error
        store = {"images": batch.images, "labels": batch.labels, "logits": logits.detach()}
        return Step(terms, store)

    def _logits(self, images: Tensor) -> Tensor:
        augmented = self.learner.augment(images, self.learner.generators["augmentation"])
        return self.learner.network(augmented)


METHOD = Derpp
