"""Every place where the published code differs from the paper: F1, F2, ...

F8 chooses what tables show, and F9 is a value of params.yaml; the others change a method's loss.
"""

from __future__ import annotations

from typing import NamedTuple


class Deviation(NamedTuple):
    """A place where the published code differs from the paper."""

    subject: str
    paper: str  # what the switch's value `paper` does
    published: str  # and its value `published`


SWITCHES = {
    "F1": Deviation(
        "sibling's batch normalisation",
        "evaluation mode throughout",
        "evaluation mode in the first task, batch statistics from the second on",
    ),
    "F2": Deviation(
        "stored masks at a task's end",
        "as drawn when the example entered the buffer",
        "recomputed (evaluation mode, likeliest gates, no augmentation), then given to the "
        "wrong rows: row i gets the (i mod n)-th of its chunk's n; the last partial chunk is "
        "skipped",
    ),
    "F3": Deviation(
        "diversity vectors",
        "`g = GAP(M) / |GAP(M)|`",
        "`GAP(M)`, and 1/2 is subtracted all the same",
    ),
    "F4": Deviation(
        "gate",
        "logits `(a, 0)`, a = channel + spatial attention",
        "a task's own linear map of a to two logits per unit",
    ),
    "F5": Deviation(
        "mask replay",
        "every replayed example, on the difference of the two logits",
        "examples of past tasks, on the first logit",
    ),
    "F6": Deviation(
        "stream loss",
        "cross-entropy over all classes of the benchmark",
        "over the current task's classes",
    ),
    "F7": Deviation(
        "distance",
        "squared norm over positions, channels and layers, mean over examples",
        "both maps divided by their spatial norm; sum over channels, mean over positions and "
        "layers; positions "
        "with student <= target <= 0 left out",
    ),
    "F8": Deviation(
        "forgetting",
        "maximum over the phases before the last, minus final: can be negative",
        "maximum over all phases, the last included",
    ),
    "F9": Deviation(
        "lambda_FP on Split CIFAR-10, buffer 500",
        "5e-3",
        "5e-4, in a later release",
    ),
    "F10": Deviation(
        "diversity over replay",
        "stream alone",
        "replayed examples of the current task too",
    ),
    "F11": Deviation(
        "CO2L's schedules",
        "the original's, without the benchmark's decay: ten epochs of warm-up from 0.01, a "
        "cosine to a thousandth; 100 epochs for the linear classifier",
        "the benchmark's: a constant rate, but for the decay that Split CIFAR-100 has for all "
        "methods; one pass for the linear classifier",
    ),
    "F12": Deviation(
        "LwF's distillation targets",
        "logits of the images as training normalises them",
        "logits of images that are not normalised",
    ),
    "F13": Deviation(
        "iCaRL's exemplars in training",
        "the stored images",
        "multiplied by the normalisation's std, its mean added, transposed",
    ),
    "F14": Deviation(
        "weights in TwF",
        "`lambda_FP` times distance, `lambda_FP^repl` times mask replay, `lambda` times diversity",
        "the whole is multiplied by `lambda_FP`",
    ),
    "F15": Deviation(
        "oEWC's Fisher information",
        "evaluation mode, every image once without augmentation",
        "training mode, one image at a time, so each has its own batch statistics and the "
        "running ones are overwritten just before evaluation; augmented images, the last "
        "incomplete batch dropped",
    ),
    "F16": Deviation(
        "iCaRL's class means",
        "over a class's exemplars",
        "the buffer's empty slots count as black exemplars of class 0, after its own",
    ),
    "F17": Deviation(
        "images that iCaRL's exemplars are chosen from",
        "all of the class",
        "those of one shuffled pass over the training set, exemplars included, without its "
        "last incomplete batch",
    ),
}
