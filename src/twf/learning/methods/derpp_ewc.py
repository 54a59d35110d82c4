"""DER++ with EWC: anchored to its initialization, one alternative to TwF (the paper's Figure 3)."""

from twf.learning.methods.base import Batch, Step, Task
from twf.learning.methods.derpp import Derpp
from twf.learning.methods.oewc import diagonal_fisher
from twf.learning.models.resnet import backbone_of


class DerppEwc(Derpp):
    """DER++'s loss plus `lambda (theta - theta^t)' diag(F) (theta - theta^t)` (eq. 12).

    theta^t are the pretrained weights, the classifier left out; F is the Fisher information on
    images of the source, with the pretrained network in evaluation mode.
    """

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if task.number > 0:
            return
        source, generator = self.learner.source, self.learner.generators["fisher"]
        assert source is not None
        order = generator.permutation(len(source.images))
        chosen = order[: self.hyperparameters.fisher_images]  # type: ignore[attr-defined]
        images = source.augment.normalise(source.images[chosen])
        self.anchor = backbone_of(source.network).detach()
        fisher = diagonal_fisher(source.network.eval(), images, source.labels[chosen])
        self.fisher = fisher[: len(self.anchor)]  # the classifier's come last

    def loss(self, batch: Batch) -> Step:
        step = super().loss(batch)
        moved = (self.fisher * (backbone_of(self.learner.network) - self.anchor) ** 2).sum()
        step.terms["anchor"] = self.hyperparameters.lambda_ewc * moved  # type: ignore[attr-defined]
        return step


METHOD = DerppEwc
