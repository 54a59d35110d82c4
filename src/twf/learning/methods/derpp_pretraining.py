"""DER++ that replays images of the source too, one alternative to TwF (the paper's Figure 3)."""

import torch
from torch import Tensor, nn

from twf.errors import UserError
from twf.learning.methods.derpp import Derpp
from twf.learning.replay.buffer import ReservoirBuffer


class DerppPretraining(Derpp):
    """DER++'s loss, with a share of the buffer kept for images of the source.

    The classifier is widened by the source's classes, which start with the pretrained weights.
    Labels and logits of the source's images are those of the source and of the network at the
    start. They are normalised as the benchmark is.
    """

    def setup(self) -> None:
        learner, source = self.learner, self.learner.source
        assert source is not None
        assert learner.buffer is not None
        if source.images.shape[-1] != learner.image_size:
            raise UserError(
                f"images of {source.images.shape[-1]} pixels cannot be in a buffer with those of "
                f"{learner.image_size}: a source with images of the benchmark's size"
            )
        fresh, old = learner.network.classifier, source.network.classifier
        wide = nn.Linear(fresh.in_features, learner.classes + old.out_features)
        learner.network.classifier = wide.to(fresh.weight)
        with torch.no_grad():
            wide.weight.copy_(torch.cat([fresh.weight, old.weight]))
            wide.bias.copy_(torch.cat([fresh.bias, old.bias]))

        share = self.hyperparameters.share  # type: ignore[attr-defined]
        most = min(learner.buffer - 1, len(source.images))  # replay needs one of its own
        kept = min(round(learner.buffer * share), most)
        generator = learner.generators["replay"]
        self.reservoir = self.buffer = ReservoirBuffer(learner.buffer - kept, generator)
        order = generator.permutation(len(source.images))
        images = source.images[order[:kept]]
        learner.network.eval()
        with torch.no_grad():
            parts = images.split(learner.batch_size)
            logits = [learner.network(learner.augment.normalise(part)) for part in parts]
        self.reservoir.pinned = {
            "images": images,
            "labels": learner.classes + source.labels[order[:kept]],
            "logits": torch.cat(logits),
        }

    def logits(self, images: Tensor) -> Tensor:
        """The benchmark's classes alone compete when it is tested."""
        return super().logits(images)[:, : self.learner.classes]


METHOD = DerppPretraining
