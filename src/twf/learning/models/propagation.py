"""The sibling: a fixed copy of the pretrained network that TwF learns from, through gates."""

import torch
from torch import Tensor, nn

from twf.learning.augmentation import Augment, Grid, Placement
from twf.learning.models import gates
from twf.learning.models.gates import FeaturePropagation
from twf.learning.models.resnet import ResNet, frozen_copy
from twf.learning.randomness import Random
from twf.learning.replay.masks import MaskPacker


class Propagation(nn.Module):
    """The sibling and the gates of its five layers; only the gates are trained.

    `paper` are the switches (F1 to F17) that stand at what the paper says.
    """

    def __init__(self, network: ResNet, tasks: int, image_size: int, paper: frozenset[str]) -> None:
        super().__init__()
        self.paper = paper
        self.image_size = image_size
        self.sibling = frozen_copy(network)
        # made again where a run goes on; half of what its state would hold
        self.constant = frozenset(f"sibling.{n}" for n, _ in self.sibling.named_parameters())
        channels = self.sibling.layer_channels
        self.gates = FeaturePropagation(tasks, channels, paper)
        with torch.no_grad():
            blank = torch.zeros(1, 3, image_size, image_size)
            sides = [layer.shape[-1] for layer in self.sibling.cpu().layers(blank)]
        stored = [gates.stored_size(side) for side in sides]
        self.packer = MaskPacker([(c, s, s) for c, s in zip(channels, stored, strict=True)])
        self.grids = tuple(map(Grid, self.packer.depths, stored, sides))

    def begin_task(self, number: int) -> None:
        """F1: the published sibling normalises by the batch from the second task on."""
        self.sibling.train(number > 0 and "F1" not in self.paper)

    @torch.no_grad()
    def teach(self, inputs: Tensor) -> list[Tensor]:
        """The sibling's five maps before an activation, `[N, C_l, H_l, W_l]`."""
        return self.sibling.layers(inputs)

    def stored(self, packed: Tensor, augment: Augment, placement: Placement) -> list[Tensor]:
        """Packed gates, uint8 `[N, bytes]`, moved with their images: `[N, C_l, h_l, w_l]`."""
        moved = augment.masks_at(packed, placement, self.grids, self.image_size)
        return self.packer.unpack(moved)

    def forward(
        self,
        student: list[Tensor],
        teacher: list[Tensor],
        task: Tensor,
        stream: int,
        current: int,
        stored: list[Tensor] | None,
        generator: Random,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Distance, mask replay and diversity over all layers, and the stream's gates, packed.

        `task` is each image's (`[N]` int64). The first `stream` images are new ones, and their
        gates come packed; the others are replayed, and their gates were `stored`.
        """
        *losses, opened = self.gates(student, teacher, task, stream, current, stored, generator)
        packed = self.packer.pack([gates.to_stored_size(gate[:stream]) for gate in opened])
        return *losses, packed

    @torch.no_grad()
    def recompute(
        self, masks: Tensor, images: Tensor, task: Tensor, current: int, size: int
    ) -> None:
        """F2: after a task, recompute its gates and store them astray, in place.

        Rows are walked in chunks of `size`, the last partial one left out. Of a chunk's n examples
        of the current task, the likeliest gates of the (i mod n)-th go to row i, whatever its task.
        `masks`: uint8 `[n, bytes]`, `images`: normalised, without augmentation.
        """
        of_current = (task == current).cpu()  # what the host asks of the device, once
        for start in range(0, len(masks) // size * size, size):
            chunk = slice(start, start + size)
            own = of_current[chunk].nonzero()[:, 0].to(masks.device)
            if len(own):
                # all, so that the shape is always the same
                likeliest = self.likeliest(images[chunk], task[chunk])
                packed = self.packer.pack([gates.to_stored_size(gate) for gate in likeliest])
                rows = own[torch.arange(start, start + size, device=masks.device) % len(own)]
                masks[chunk] = packed[rows]

    @torch.no_grad()
    def likeliest(self, images: Tensor, task: Tensor) -> list[Tensor]:
        """The gates without noise, bool `[N, C_l, H_l, W_l]`, in evaluation mode.

        For normalised images of `task` (int64 `[N]`).
        """
        modes = [(module, module.training) for module in (self.sibling, self.gates)]
        self.eval()
        found = self.gates.likeliest(self.teach(images), task)
        for module, training in modes:
            module.train(training)
        return found
