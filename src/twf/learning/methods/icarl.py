"""iCaRL (Rebuffi et al., 2017): exemplars by herding, distillation, and the nearest class mean."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twf.errors import UserError
from twf.learning.evaluation.accuracy import BATCH
from twf.learning.methods.base import Batch, Method, Step, Task
from twf.learning.models.resnet import frozen_copy, parameters_of
from twf.learning.replay.herding import herd
from twf.study.methods import IcarlHyperparameters


class Icarl(Method[IcarlHyperparameters]):
    """`L = BCE(sigmoid f(x), t) + wd sum(theta^2)`, mean over the classes seen so far.

    t is the old network's sigmoid for classes of earlier tasks, and the label for this task's.
    """

    means: Tensor | None = None  # [classes seen, C]: each class's mean exemplar feature

    def setup(self) -> None:
        assert self.learner.buffer is not None
        self.old = frozen_copy(self.learner.network)  # the network after the last task
        self.exemplars: list[Tensor] = []  # of each class seen: uint8 [m, 3, H, W], best first

    def training_set(self, task: Task) -> tuple[Tensor, Tensor]:
        if not self.exemplars:
            return task.images, task.labels
        images = torch.cat(self.exemplars)
        if self.published("F13"):
            std, mean = self.learner.augment.std, self.learner.augment.mean
            images = (images * std + mean).to(torch.uint8).transpose(2, 3)
        counts = torch.tensor([len(e) for e in self.exemplars], device=images.device)
        labels = torch.arange(len(counts), device=images.device).repeat_interleave(counts)
        return torch.cat([task.images, images]), torch.cat([task.labels, labels])

    def loss(self, batch: Batch) -> Step:
        images = self.learner.augment(batch.images, self.learner.generators["augmentation"])
        logits = self.learner.network(images)
        then = None
        if self.task > 0:
            with torch.no_grad():
                then = self.old(images)
        error = distilling_bce(logits, batch.labels, then, self.task, self.learner.classes_per_task)
        squares = (parameters_of(self.learner.network) ** 2).sum()
        decay = self.hyperparameters.weight_decay * squares
        return Step({"binary_cross_entropy": error, "weight_decay": decay})

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        assert self.learner.buffer is not None
        self.learner.network.eval()
        self.old.load_state_dict(self.learner.network.state_dict())
        seen = len(self.exemplars) + self.learner.classes_per_task
        each = self.learner.buffer // seen
        candidates = self._candidates(task)
        images, labels = task.images[candidates], task.labels[candidates]
        self.exemplars = [rows[:each] for rows in self._rows()]
        for label in range(len(self.exemplars), seen):
            own = images[labels == label]
            if not len(own):
                raise UserError(
                    f"iCaRL has no image of class {label} to choose exemplars from: give it a "
                    "smaller batch_size, or set F17 to paper, in params.yaml"
                )
            self.exemplars.append(own[herd(self._features(own), each)])
        self.means = torch.stack([self._features(rows).mean(dim=0) for rows in self._rows()])

    def _candidates(self, task: Task) -> Tensor:
        """The positions (int64) of the task's images that exemplars are chosen from.

        F17: the published code chooses while it goes through the training set once more, shuffled
        and without the last incomplete batch.
        """
        own = len(task.images)
        count = own + sum(len(exemplars) for exemplars in self.exemplars)
        if not self.published("F17"):
            return torch.arange(own, device=task.labels.device)
        order = self.learner.generators["herding"].permutation(count)
        passed = order[: count // self.learner.batch_size * self.learner.batch_size]
        return passed[passed < own].sort().values

    def _rows(self) -> list[Tensor]:
        """Each class's exemplars, uint8 `[m, 3, H, W]`.

        F16: the published buffer gives its free rows with them, which hold zeros, the label's too.
        """
        assert self.learner.buffer is not None
        rows = list(self.exemplars)
        if rows and self.published("F16"):
            free = self.learner.buffer - sum(len(exemplars) for exemplars in rows)
            rows[0] = torch.cat([rows[0], rows[0].new_zeros(free, *rows[0].shape[1:])])
        return rows

    def _features(self, images: Tensor) -> Tensor:
        normalise, network = self.learner.augment.normalise, self.learner.network
        return torch.cat([network.features(normalise(part)) for part in images.split(BATCH)])

    def logits(self, images: Tensor) -> Tensor:
        """Minus the squared distance to each class's mean; classes not seen come last."""
        assert self.means is not None
        features = self.learner.network.features(images)
        # not by a product of matrices, which TF32 would round
        exact = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(features, self.means, compute_mode=exact) ** 2
        return F.pad(-distances, (0, self.learner.classes - len(self.means)), value=-torch.inf)


def distilling_bce(
    logits: Tensor, labels: Tensor, then: Tensor | None, task: int, classes_per_task: int
) -> Tensor:
    """Binary cross-entropy over the classes seen, of `logits` `[N, classes]` and `labels` `[N]`.

    `then` are the old network's logits, of the same shape, or None in the first task (`task` 0).
    """
    old, seen = task * classes_per_task, (task + 1) * classes_per_task
    # not one_hot, which has the host look at the labels
    targets = (labels[:, None] == torch.arange(seen, device=labels.device)).to(logits.dtype)
    if then is not None:
        targets = torch.cat([torch.sigmoid(then[:, :old]), targets[:, old:]], dim=1)
    return F.binary_cross_entropy_with_logits(logits[:, :seen], targets)


METHOD = Icarl
