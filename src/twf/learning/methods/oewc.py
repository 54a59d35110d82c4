"""oEWC, online Elastic Weight Consolidation (Schwarz et al., 2018): weights that mattered stay."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.methods.base import Batch, Method, Step, Task
from twf.learning.models.resnet import parameters_of
from twf.study.methods import OewcHyperparameters


class Oewc(Method[OewcHyperparameters]):
    """`L = CE(f(x), y) + lambda sum_k F_k (theta_k - theta*_k)^2`.

    theta* are the last task's final weights; after each task, `F = gamma F + F_new`.
    """

    fisher: Tensor | None = None  # [P], P the number of the network's parameters
    anchor: Tensor

    def loss(self, batch: Batch) -> Step:
        images = self.learner.augment(batch.images, self.learner.generators["augmentation"])
        terms = {"stream": F.cross_entropy(self.learner.network(images), batch.labels)}
        if self.fisher is not None:
            moved = penalty(self.learner.network, self.fisher, self.anchor)
            terms["penalty"] = self.hyperparameters.lambda_ewc * moved
        return Step(terms)

    def end_task(self, task: Task) -> None:
        network, augment = self.learner.network, self.learner.augment
        if self.published("F15"):
            network.train()
            generator = self.learner.generators["fisher"]
            order = generator.permutation(len(task.images))
            kept = order[: len(order) // self.learner.batch_size * self.learner.batch_size]
            images, labels = augment(task.images[kept], generator), task.labels[kept]
        else:
            network.eval()
            images, labels = augment.normalise(task.images), task.labels
        new = diagonal_fisher(network, images, labels)
        self.fisher = new if self.fisher is None else self.hyperparameters.gamma * self.fisher + new
        self.anchor = parameters_of(network).detach()


def diagonal_fisher(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The diagonal of the Fisher information, `[P]`: mean over images of `p (d log p / d theta)^2`.

    p is the probability of an image's label; images pass one by one, in the network's own mode.
    """
    parameters = list(network.parameters())
    fisher = [torch.zeros_like(p) for p in parameters]
    for image, label in zip(images.split(1), labels.split(1), strict=True):
        loss = F.cross_entropy(network(image), label)  # -log p, whose square is the same
        root = torch.exp(-loss.detach()).sqrt()
        gradients = torch._foreach_mul(torch.autograd.grad(loss, parameters), root)
        torch._foreach_addcmul_(fisher, gradients, gradients)
    return torch.cat([f.flatten() for f in fisher]) / len(images)


def penalty(network: nn.Module, fisher: Tensor, anchor: Tensor) -> Tensor:
    """`sum_k F_k (theta_k - theta*_k)^2`."""
    return (fisher * (parameters_of(network) - anchor) ** 2).sum()


METHOD = Oewc
