"""DER++, Dark Experience Replay (Buzzega et al., 2020): replay of logits and of labels."""

import torch.nn.functional as F
from torch import Tensor

from twf.learning.methods.base import Batch, Rehearsal, Step
from twf.study.methods import DerppHyperparameters


class Derpp(Rehearsal[DerppHyperparameters]):
    """`L = CE(f(x), y) + alpha ||f(x') - l'||^2 + beta CE(f(x''), y'')`.

    x' and x'' are independent replay batches; stream, x' and x'' pass the network one by one. The
    norm is the mean over examples and classes. The logits l stored with an image are those of the
    step that offered it.
    """

    def loss(self, batch: Batch) -> Step:
        images, replays = [batch.images], []
        if not self.reservoir.empty:
            replays = [self.reservoir.draw(self.learner.batch_size) for _ in range(2)]
            images += [replay["images"] for replay in replays]
        logits, *replayed = self._logits(images)
        terms = {"stream": F.cross_entropy(logits, batch.labels)}
        if replays:
            error = F.mse_loss(replayed[0], replays[0]["logits"])
            terms["replay_logits"] = self.hyperparameters.alpha * error
            error = F.cross_entropy(replayed[1], replays[1]["labels"])
            terms["replay_labels"] = self.hyperparameters.beta * error
        store = {"images": batch.images, "labels": batch.labels, "logits": logits.detach()}
        return Step(terms, store)

    def _logits(self, batches: list[Tensor]) -> list[Tensor]:
        learner = self.learner
        random = learner.generators["augmentation"]
        return [learner.network(learner.augment(images, random)) for images in batches]


METHOD = Derpp
