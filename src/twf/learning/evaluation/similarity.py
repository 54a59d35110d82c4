"""What is left of the initialization: linear CKA, nearest neighbours; and how open gates are."""

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from twf.data.store import Dataset
from twf.learning.augmentation import Augment
from twf.learning.evaluation.accuracy import BATCH, to_device
from twf.learning.learner import SourceData
from twf.learning.models.resnet import ResNet

PROBE_IMAGES = 1000  # at most, of the benchmark's test images
NEIGHBOURS = 20


def linear_cka(x: Tensor, y: Tensor) -> Tensor:
    """Centered kernel alignment of features `[N, P]` and `[N, Q]` (Kornblith et al., 2019).

    `|X'Y|^2 / (|X'X| |Y'Y|)`, Frobenius norms, columns centered; from 0 to 1. By Gram matrices,
    which are smaller where there are more features than examples.
    """
    x, y = x.double() - x.double().mean(dim=0), y.double() - y.double().mean(dim=0)
    gram_x, gram_y = x @ x.T, y @ y.T
    return (gram_x * gram_y).sum() / (gram_x.norm() * gram_y.norm())


def nearest_neighbour_accuracy(
    bank: Tensor, bank_labels: Tensor, queries: Tensor, labels: Tensor, k: int = NEIGHBOURS
) -> float:
    """Per cent of `queries` `[M, C]` whose k nearest of `bank` `[N, C]` vote for their label.

    Nearest by cosine; a tie goes to the smallest label.
    """
    bank = F.normalize(bank, dim=1)
    classes = int(bank_labels.max()) + 1
    right = torch.zeros((), dtype=torch.int64, device=labels.device)
    for part, truth in zip(queries.split(BATCH), labels.split(BATCH), strict=True):
        similarity = F.normalize(part, dim=1) @ bank.T
        nearest = bank_labels[similarity.topk(min(k, len(bank)), dim=1).indices]  # [m, k]
        votes = F.one_hot(nearest, classes).sum(dim=1)
        right += (votes.argmax(dim=1) == truth).sum()
    return right.item() / len(labels) * 100


@torch.no_grad()
def layer_features(network: ResNet, augment: Augment, images: Tensor, pool: bool) -> list[Tensor]:
    """The five maps after their activation, of unaugmented uint8 images, flattened or averaged."""
    parts = []
    for part in images.split(BATCH):
        maps = [F.relu(layer) for layer in network.layers(augment.normalise(part))]
        parts.append([m.mean(dim=(2, 3)) if pool else m.flatten(1) for m in maps])
    return [torch.cat(layer) for layer in zip(*parts, strict=True)]


class Probe:
    """Follows how a network forgets its initialization.

    CKA and gates are of the first `PROBE_IMAGES` test images of the benchmark, uint8
    `[N, 3, H, W]` of `tasks` (int64 `[N]`), in an order drawn once; the nearest neighbours are the
    source's training images, the queries its test images.
    """

    def __init__(
        self,
        initial: ResNet,
        augment: Augment,
        images: Tensor,
        tasks: Tensor,
        source: SourceData,
        source_dataset: Dataset,
    ) -> None:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        drawn = order[:PROBE_IMAGES].to(images.device)
        self.images, self.tasks = images[drawn], tasks[drawn]
        self.augment = augment
        self.initial = layer_features(deepcopy(initial).eval(), augment, self.images, pool=False)
        self.source = source
        self.queries = to_device(source_dataset.test_images, images.device)
        self.query_labels = source_dataset.test_labels.to(images.device)

    def cka(self, network: ResNet) -> list[float]:
        """Linear CKA of each layer's activations with the initial network's."""
        now = layer_features(network, self.augment, self.images, pool=False)
        pairs = zip(self.initial, now, strict=True)
        return [linear_cka(then, later).item() for then, later in pairs]

    @torch.no_grad()
    def gates_open(
        self, open_gates: Callable[[Tensor, Tensor], Tensor | None], seen: int
    ) -> list[float] | None:
        """Per cent of each layer's gates that are open, by the method's `open_gates`.

        For images of the first `seen` tasks. None where there are no gates.
        """
        of_seen = self.tasks < seen
        images, tasks = self.augment.normalise(self.images[of_seen]), self.tasks[of_seen]
        pairs = zip(images.split(BATCH), tasks.split(BATCH), strict=True)
        shares = [open_gates(*pair) for pair in pairs]
        there = [share for share in shares if share is not None]
        return (100 * torch.cat(there).double().mean(dim=0)).tolist() if there else None

    def nearest_neighbours(self, network: ResNet) -> list[float]:
        """Accuracy on the source by nearest neighbours over Layer 3 and over Layer 4, per cent."""
        bank = layer_features(network, self.source.augment, self.source.images, pool=True)
        queries = layer_features(network, self.source.augment, self.queries, pool=True)
        return [
            nearest_neighbour_accuracy(
                bank[layer], self.source.labels, queries[layer], self.query_labels
            )
            for layer in (3, 4)
        ]
