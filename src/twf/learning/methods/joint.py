"""Joint: one training on all classes at once. The upper bound."""

import torch

from twf.learning.methods.base import Task
from twf.learning.methods.finetune import Finetune


class Joint(Finetune):
    """Finetune's loss on one task made of all; an epoch's last, incomplete batch is kept."""

    keep_last_batch = True

    def phases(self, tasks: list[Task]) -> list[Task]:
        images = torch.cat([task.images for task in tasks])
        labels = torch.cat([task.labels for task in tasks])
        return [Task(0, images, labels)]


METHOD = Joint
