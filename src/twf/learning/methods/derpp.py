"""DER++, Dark Experience Replay (Buzzega et al., 2020): replay of logits and of labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from twf.learning.methods.base import Batch, Rehearsal, Step
from twf.study.methods import DerppHyperparameters


class Derpp(Rehearsal[DerppHyperparameters]):
    """`L = CE(f(x), y) + alpha ||f(x') - l'||^2 + beta CE(f(x''), y'')`.

    x' and x'' are independent replay batches; stream, x' and x'' pass the network one by one. The
    norm is the mean over examples and classes. The logits l stored with an image are those of the
    step that offered it. A variant may have the first term over the current task's classes alone,
    as TwF has it in the published code (F6), and replay as TwF does: x'' is x'; stream and replay
    pass as one batch, which shares its statistics; labels compete among the classes seen so far.
    """

    def loss(self, batch: Batch) -> Step:
        learner = self.learner
        images, replays = [batch.images], []
        if not self.reservoir.empty:
            count = 1 if "batch" in learner.as_twf else 2
            replays = [self.reservoir.draw(learner.batch_size) for _ in range(count)]
            images += [replay["images"] for replay in replays]
        logits, *replayed = self._logits(images)
        stream_loss = self.among_current if learner.current_classes else F.cross_entropy
        terms = {"stream": stream_loss(logits, batch.labels)}
        if replays:
            error = F.mse_loss(replayed[0], replays[0]["logits"])
            terms["replay_logits"] = self.hyperparameters.alpha * error
            among = self.among_seen if "labels" in learner.as_twf else F.cross_entropy
            error = among(replayed[-1], replays[-1]["labels"])
            terms["replay_labels"] = self.hyperparameters.beta * error
        store = {"images": batch.images, "labels": batch.labels, "logits": logits.detach()}
        return Step(terms, store)

    def _logits(self, images: list[Tensor]) -> list[Tensor]:
        learner = self.learner
        random = learner.generators["augmentation"]
        if "pass" in learner.as_twf:
            together = learner.network(learner.augment(torch.cat(images), random))
            return list(together.split([len(of) for of in images]))
        return [learner.network(learner.augment(of, random)) for of in images]


METHOD = Derpp
