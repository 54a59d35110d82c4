"""Accuracy on the device, without a data loader."""

from collections.abc import Callable

import torch
from torch import Tensor

from twf.learning.augmentation import Augment

BATCH = 256  # images in a forward pass; decides speed and memory alone

Logits = Callable[[Tensor], Tensor]


def to_device(images: Tensor, device: torch.device) -> Tensor:
    """uint8 images `[N, H, W, 3]` as stored, to `[N, 3, H, W]` on the device."""
    return images.to(device).permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def all_logits(logits: Logits, augment: Augment, images: Tensor) -> Tensor:
    """Logits `[N, classes]` of unaugmented uint8 images `[N, 3, H, W]`."""
    return torch.cat([logits(augment.normalise(part)) for part in images.split(BATCH)])


def accuracy(logits: Logits, augment: Augment, images: Tensor, labels: Tensor) -> float:
    """Per cent of images `[N, 3, H, W]` whose largest logit is their label's (`labels` `[N]`)."""
    predicted = all_logits(logits, augment, images).argmax(dim=1)
    return (predicted == labels).float().mean().item() * 100


def accuracy_per_task(
    logits: Logits, augment: Augment, images: Tensor, labels: Tensor, tasks: int, classes: int
) -> tuple[list[float], list[float]]:
    """Per cent right on each task's test images, under Class-IL and under Task-IL.

    Class-IL lets all classes of the benchmark compete, those of tasks still to come included;
    Task-IL those of the image's own task alone.
    """
    values = all_logits(logits, augment, images)
    task = labels // (classes // tasks)
    own = torch.arange(classes, device=labels.device) // (classes // tasks) == task[:, None]
    class_il = values.argmax(dim=1) == labels
    task_il = values.masked_fill(~own, -torch.inf).argmax(dim=1) == labels
    right = torch.stack([class_il, task_il]).double()  # [2, N]
    per_task = torch.stack([right[:, task == t].mean(dim=1) for t in range(tasks)], dim=1) * 100
    return per_task[0].tolist(), per_task[1].tolist()
