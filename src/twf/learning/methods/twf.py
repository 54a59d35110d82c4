"""TwF, Transfer without Forgetting (Boschini et al., 2022): the paper's own method.

Where paper and published code differ, a switch decides: F1 to F7, F10, F14.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf.learning.methods.base import Batch, Rehearsal, Step, Task
from twf.learning.models.propagation import Propagation
from twf.learning.randomness import seeded
from twf.study.methods import TwfHyperparameters


class Twf(Rehearsal[TwfHyperparameters]):
    """`L = CE(f(x), y) + L_CL + L_FP + L_AUX` (eq. 10).

    L_CL replays logits (alpha) and labels (beta) from one replay batch, labels among the classes
    seen so far. L_FP and L_AUX are of `gates`. Stream and replay pass the learner as one
    batch, and the sibling too. Where L_FP and L_AUX have no weight, neither sibling nor gates are
    made: the network learns to the same bits without them.
    """

    def setup(self) -> None:
        super().setup()
        learner, h = self.learner, self.hyperparameters
        outer = h.lambda_fp if self.published("F14") else 1.0
        self.weights = {
            "distance": h.lambda_fp,
            "mask_replay": outer * h.lambda_fp_replay,
            "diversity": outer * h.lambda_diversity,
        }
        self.propagation: Propagation | None = None
        if not any(self.weights.values()):
            return
        paper = frozenset(switch for switch, value in learner.fidelity.items() if value == "paper")
        with seeded(learner.generators.seed, "gates"):
            made = Propagation(learner.network, learner.tasks, learner.image_size, paper)
        # as the network: their gradients then need not be turned about
        self.propagation = made.to(  # type: ignore[call-overload]
            learner.device, memory_format=torch.channels_last
        )

    def modules(self) -> Iterator[nn.Module]:
        yield self.learner.network
        if self.propagation is not None:
            yield self.propagation.gates

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if self.propagation is not None:
            self.propagation.begin_task(task.number)

    def loss(self, batch: Batch) -> Step:
        learner, stream = self.learner, len(batch.images)
        images, labels = batch.images, batch.labels
        replay = None if self.reservoir.empty else self.reservoir.draw(learner.batch_size)
        if replay is not None:
            images = torch.cat([images, replay["images"]])
            labels = torch.cat([labels, replay["labels"]])
        place = learner.augment.place(len(images), learner.generators["augmentation"])
        inputs = learner.augment.at(images, place)
        layers = learner.network.layers(inputs)
        every = learner.network.classify(layers[-1])
        logits, replayed = every.split([stream, len(every) - stream])

        terms = {"stream": self._stream_loss(logits, batch.labels)}
        if replay is not None:
            error = F.mse_loss(replayed, replay["logits"])
            terms["replay_logits"] = self.hyperparameters.alpha * error
            error = self.among_seen(replayed, replay["labels"])
            terms["replay_labels"] = self.hyperparameters.beta * error

        store = {"images": batch.images, "labels": batch.labels, "logits": logits.detach()}
        if self.propagation is None:
            return Step(terms | {name: logits.new_zeros(()) for name in self.weights}, store)
        stored = None
        if replay is not None:
            stored = self.propagation.stored(replay["masks"], learner.augment, place[stream:])
        *losses, masks = self.propagation(
            layers,
            self.propagation.teach(inputs),
            labels // learner.classes_per_task,
            stream,
            self.task,
            stored,
            learner.generators["gates"],
        )
        for (name, weight), loss in zip(self.weights.items(), losses, strict=True):
            terms[name] = weight * loss
        return Step(terms, store | {"masks": masks})

    def _stream_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """F6: the published code lets the current task's classes compete alone."""
        stream_loss = self.among_current if self.published("F6") else F.cross_entropy
        return stream_loss(logits, labels)

    def open_gates(self, images: Tensor, tasks: Tensor) -> Tensor | None:
        if self.propagation is None:
            return None
        gates = self.propagation.likeliest(images, tasks)
        return torch.stack([gate.flatten(1).double().mean(dim=1) for gate in gates], dim=1)

    def end_task(self, task: Task) -> None:
        if self.propagation is not None and self.published("F2") and not self.reservoir.empty:
            filled, rows = int(self.reservoir.filled), self.reservoir.rows
            self.propagation.recompute(
                rows["masks"][:filled],
                self.learner.augment.normalise(rows["images"][:filled]),
                rows["labels"][:filled] // self.learner.classes_per_task,
                task.number,
                self.learner.batch_size,
            )


METHOD = Twf
