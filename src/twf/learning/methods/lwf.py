"""LwF, Learning without Forgetting (Li and Hoiem, 2017): keep the old network's answers."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twf.learning.augmentation import together
from twf.learning.evaluation.accuracy import BATCH
from twf.learning.methods.base import Batch, Method, Step, Task
from twf.learning.models.resnet import parameters_of
from twf.learning.sgd import batches, sgd_step
from twf.study.methods import LwfHyperparameters


class Lwf(Method[LwfHyperparameters]):
    """`L = CE(f(x), y) + alpha D(f_old(x), f(x)) + wd sum(theta^2)`.

    Cross-entropy runs over the classes seen so far, D over those of earlier tasks. Before a task
    the classifier alone is trained on the task's classes, with the network in evaluation mode.
    """

    answers: Tensor | None = None  # [N, classes], to the task's images as they are

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if task.number == 0:
            return
        self.learner.network.eval()
        for _ in range(self.learner.epochs):
            self._warm_up(task)
        with torch.no_grad():
            # F12: the published code leaves out the normalisation here
            as_seen = (
                (lambda x: x / 255) if self.published("F12") else self.learner.augment.normalise
            )
            parts = task.images.split(self.learner.batch_size)
            self.answers = torch.cat([self.learner.network(as_seen(part)) for part in parts])
        self.learner.network.train()

    def _warm_up(self, task: Task) -> None:
        """One epoch of the classifier alone."""
        learner, network = self.learner, self.learner.network
        first = task.number * learner.classes_per_task
        order = learner.generators["warm-up"].permutation(len(task.images))
        steps = batches(order, learner.batch_size)
        together_at_most = max(1, BATCH // learner.batch_size)
        for start in range(0, len(steps), together_at_most):
            several = steps[start : start + together_at_most]
            placed = [
                learner.augment.place(len(index), learner.generators["augmentation"])
                for index in several
            ]
            images = learner.augment.at(task.images[torch.cat(several)], together(placed))
            with torch.no_grad():  # in evaluation mode, an image's features are its own
                features = network.features(images)
            for index, part in zip(several, features.split(learner.batch_size), strict=True):
                own = network.classifier(part)[:, first : first + learner.classes_per_task]
                F.cross_entropy(own, task.labels[index] - first).backward()
                sgd_step(list(network.classifier.parameters()), self.hyperparameters.lr)

    def loss(self, batch: Batch) -> Step:
        images = self.learner.augment(batch.images, self.learner.generators["augmentation"])
        logits = self.learner.network(images)
        old = self.task * self.learner.classes_per_task
        seen = old + self.learner.classes_per_task
        terms = {"stream": F.cross_entropy(logits[:, :seen], batch.labels)}
        if self.answers is not None:
            then = self.answers[batch.positions, :old]
            error = distillation(logits[:, :old], then, self.hyperparameters.tau)
            terms["distillation"] = self.hyperparameters.alpha * error
        squares = (parameters_of(self.learner.network) ** 2).sum()
        terms["weight_decay"] = self.hyperparameters.weight_decay * squares
        return Step(terms)


def distillation(logits: Tensor, then: Tensor, tau: float) -> Tensor:
    """`-mean_i sum_c q_ic log p_ic`, p and q the softmax of now and then to the power 1 / tau.

    Both logits are `[N, old classes]`. `p^(1/tau)` normalised anew is the softmax of the logits
    divided by tau.
    """
    q = F.softmax(then / tau, dim=1)
    return -(q * F.log_softmax(logits / tau, dim=1)).sum(dim=1).mean()


METHOD = Lwf
