"""CO2L, Contrastive Continual Learning (Cha et al., 2021): learn by contrast, keep relations."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.methods.base import Batch, Method, Step, Task
from twf.learning.models.contrast import (
    asymmetric_supcon,
    projection_head,
    relation_distillation,
    unit,
)
from twf.learning.models.resnet import frozen_copy
from twf.learning.randomness import seeded
from twf.learning.replay.balanced import balance
from twf.learning.sgd import cosine, sgd_step
from twf.study.methods import Co2lHyperparameters


class Co2l(Method[Co2lHyperparameters]):
    """`L = L_supcon + lambda L_IRD` over two views of each image of stream and buffer together.

    L_supcon (eq. 2 of CO2L) anchors images of the current task alone; L_IRD (eq. 5) keeps the old
    network's relations between images. A linear classifier on the buffer's features predicts.
    """

    def setup(self) -> None:
        learner = self.learner
        width = learner.network.classifier.in_features
        with seeded(learner.generators.seed, "projection"):
            self.head = projection_head(width).to(learner.device)
            self.linear = nn.Linear(width, learner.classes).to(learner.device)
        self.old = frozen_copy(learner.network), frozen_copy(self.head)  # after the last task
        side = learner.image_size
        self.images = torch.empty(0, 3, side, side, dtype=torch.uint8, device=learner.device)
        self.labels = torch.empty(0, dtype=torch.int64, device=learner.device)

    def modules(self) -> Iterator[nn.Module]:
        yield self.learner.network
        yield self.head

    def learning_rate(self, epoch: float) -> float:
        """F11: the benchmark's steps, as for all methods, or the original's annealing instead."""
        if self.published("F11"):
            return super().learning_rate(epoch)
        lr, epochs = self.hyperparameters.lr, self.learner.epochs
        warm = min(10, epochs // 5)  # of the 50 epochs, the original's 10
        annealed = cosine(max(epoch, warm), epochs, lr, lr / 1000)
        return annealed if epoch >= warm else 0.01 + epoch / warm * (annealed - 0.01)

    def training_set(self, task: Task) -> tuple[Tensor, Tensor]:
        return torch.cat([task.images, self.images]), torch.cat([task.labels, self.labels])

    def loss(self, batch: Batch) -> Step:
        terms: dict[str, Tensor] = {}
        chunks = self.hyperparameters.chunks  # their gradients are summed
        for images, labels in zip(
            batch.images.chunk(chunks), batch.labels.chunk(chunks), strict=True
        ):
            for name, value in self._terms(images, labels).items():
                terms[name] = terms[name] + value if name in terms else value
        return Step(terms)

    def _terms(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        h, learner = self.hyperparameters, self.learner
        generator = learner.generators["augmentation"]
        views = torch.cat([learner.augment(images, generator) for _ in range(2)])
        z = unit(self.head(learner.network.features(views)))
        current = labels // learner.classes_per_task == self.task
        terms = {"contrast": asymmetric_supcon(z, labels.repeat(2), current.repeat(2), h.tau)}
        if self.task > 0:
            with torch.no_grad():
                network, head = self.old
                then = unit(head(network.features(views)))
            relation = relation_distillation(z, then, h.kappa, h.kappa_star)
            terms["relation"] = h.lambda_ird * relation
        return terms

    def end_task(self, task: Task) -> None:
        self.learner.network.eval()
        self.images, self.labels = balance(
            (self.images, self.labels),
            (task.images, task.labels),
            self.learner.buffer or 0,
            self.learner.generators["replay"],
        )
        self._fit_linear()
        for old, module in zip(self.old, self.modules(), strict=True):
            old.load_state_dict(module.state_dict())

    def _fit_linear(self) -> None:
        """Train the linear classifier by SGD with momentum 0.9; one epoch, or 100 (F11)."""
        h, learner = self.hyperparameters, self.learner
        network, generator = learner.network, learner.generators["linear"]
        with seeded(learner.generators.seed, f"linear/{self.task}"):
            fresh = nn.Linear(network.classifier.in_features, learner.classes)
        self.linear.load_state_dict(fresh.state_dict())
        parameters = list(self.linear.parameters())
        velocity = [torch.zeros_like(p) for p in parameters]
        for epoch in range(1 if self.published("F11") else 100):
            rate = h.lr_linear * h.lr_linear_decay ** sum(epoch >= e for e in (60, 75, 90))
            order = generator.permutation(len(self.images))
            for index in order.split(h.batch_size):
                with torch.no_grad():
                    features = network.features(learner.augment(self.images[index], generator))
                F.cross_entropy(self.linear(features), self.labels[index]).backward()
                sgd_step(parameters, rate, velocity)

    def logits(self, images: Tensor) -> Tensor:
        return self.linear(self.learner.network.features(images))


METHOD = Co2l
