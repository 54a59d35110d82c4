"""TwF, Transfer without Forgetting (Boschini et al., 2022): the paper's own method.

`L = CE(f(x), y) + L_CL + L_FP + L_AUX` (eq. 9): replay of logits and labels as in DER++, and
feature propagation from a fixed copy of the pretrained network, the sibling, through learned gates.
Where paper and published code differ, this is the code (F1 to F7, F10, F14).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.hyperparameters import TwfHyperparameters
from twf.methods.base import Batch, Rehearsal, Step, Task
from twf.models import gates
from twf.models.gates import FeaturePropagation
from twf.models.resnet import freeze
from twf.replay.masks import MaskPacker
from twf.training.randomness import seeded


class Twf(Rehearsal[TwfHyperparameters]):
    """Stream and replay pass the learner as one batch, and the sibling too."""

    def setup(self) -> None:
        super().setup()
        learner = self.learner
        self.sibling = deepcopy(learner.network).eval()
        freeze(self.sibling)
        with torch.no_grad():
            side = learner.image_size
            blank = torch.zeros(1, 3, side, side, device=learner.device)
            self.sides = [tap.shape[-1] for tap in self.sibling.taps(blank)]
        channels = self.sibling.tap_channels
        with seeded(learner.generators.seed, "gates"):
            self.propagation = nn.ModuleList(
                FeaturePropagation(learner.tasks, c) for c in channels
            ).to(learner.device)
        stored = [gates.stored_size(side) for side in self.sides]
        self.packer = MaskPacker([(c, s, s) for c, s in zip(channels, stored, strict=True)])

    def modules(self) -> Iterator[nn.Module]:
        yield self.learner.network
        yield self.propagation

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        self.sibling.train(task.number > 0)  # F1

    def loss(self, batch: Batch) -> Step:
        stream, seen = len(batch.images), (self.task + 1) * self.learner.classes_per_task
        images, labels = batch.images, batch.labels
        replay = None if self.reservoir.empty else self.reservoir.draw(self.learner.batch_size)
        if replay is not None:
            images = torch.cat([images, replay["images"]])
            labels = torch.cat([labels, replay["labels"]])
        place = self.learner.augment.place(len(images), self.learner.generators["augmentation"])
        inputs = self.learner.augment.at(images, place)
        taps = self.learner.network.taps(inputs)
        logits = self.learner.network.classify(taps[-1])
        with torch.no_grad():
            teacher = self.sibling.taps(inputs)

        first = self.task * self.learner.classes_per_task
        own = logits[:stream, first:seen]  # F6: the current task's classes compete alone
        terms = {"stream": F.cross_entropy(own, batch.labels - first)}
        packed = images.new_zeros((stream, self.packer.bytes))  # the stream replays no gates
        if replay is not None:
            error = F.cross_entropy(logits[stream:, :seen], replay["labels"])
            terms["replay_labels"] = self.hyperparameters.beta * error
            error = F.mse_loss(logits[stream:], replay["logits"])
            terms["replay_logits"] = self.hyperparameters.alpha * error
            packed = torch.cat([packed, replay["masks"]])
        stored = [
            self.learner.augment.masks_at(mask, place, self.learner.image_size, side)
            for mask, side in zip(self.packer.unpack(packed), self.sides, strict=True)
        ]
        propagated, masks = self._propagate(taps, teacher, labels, stored)
        store = {
            "images": batch.images,
            "labels": batch.labels,
            "logits": logits[:stream].detach(),
            "masks": self.packer.pack([mask[:stream] for mask in masks]),
        }
        return Step(terms | propagated, store)

    def _propagate(
        self, student: list[Tensor], teacher: list[Tensor], labels: Tensor, stored: list[Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The terms of feature propagation, weighted, and the gates at the size they are stored.

        F14: a tap's terms are summed, averaged over taps, and multiplied by lambda_FP.
        """
        task = labels // self.learner.classes_per_task
        is_old = task != self.task
        generator = self.learner.generators["gates"]
        losses = [
            propagation(s, t, task, is_old, m, generator)
            for propagation, s, t, m in zip(self.propagation, student, teacher, stored, strict=True)
        ]
        weight = self.hyperparameters.lambda_fp / len(losses)
        replay = weight * self.hyperparameters.lambda_fp_replay
        diverse = weight * self.hyperparameters.lambda_diversity
        terms = {
            "distance": weight * torch.stack([loss.distance for loss in losses]).sum(),
            "mask_replay": replay * torch.stack([loss.mask_replay for loss in losses]).sum(),
            "diversity": diverse * torch.stack([loss.diversity for loss in losses]).sum(),
        }
        return terms, [gates.to_stored_size(loss.gate) for loss in losses]

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        """F2: recompute the task's gates without noise or augmentation, and store them astray.

        The buffer is walked in chunks of a batch; of a chunk's n examples of this task, the gates
        of the (i mod n)-th go to row i, whatever its task; the last partial chunk is skipped.
        """
        self.sibling.eval()
        self.propagation.eval()
        size, labels = self.learner.batch_size, self.reservoir.rows["labels"]
        masks = self.reservoir.rows["masks"]
        for start in range(0, int(self.reservoir.filled) // size * size, size):
            rows = torch.arange(start, start + size, device=labels.device)
            current = rows[labels[rows] // self.learner.classes_per_task == task.number]
            if len(current):
                recomputed = self._masks(self.reservoir.rows["images"][current], labels[current])
                masks[rows] = recomputed[rows % len(current)]
        self.propagation.train()

    def _masks(self, images: Tensor, labels: Tensor) -> Tensor:
        """The likeliest gates of unaugmented images, packed."""
        teacher = self.sibling.taps(self.learner.augment.normalise(images))
        task = labels // self.learner.classes_per_task
        likeliest = [
            gates.to_stored_size(gates.likeliest_gate(propagation.logits(tap, task)))  # type: ignore[operator]
            for propagation, tap in zip(self.propagation, teacher, strict=True)
        ]
        return self.packer.pack(likeliest)


METHOD = Twf
