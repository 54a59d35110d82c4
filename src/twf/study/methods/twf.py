"""TwF, Transfer without Forgetting (Boschini et al., 2022), the paper's own method."""

from __future__ import annotations

from twf.study.methods.derpp import DerppHyperparameters
from twf.study.types import Deviation, MethodInfo, NonNegative


class TwfHyperparameters(DerppHyperparameters):
    """TwF: DER++'s, and the weights of feature propagation.

    `lambda_diversity` is the paper's lambda, `lambda_fp` its lambda_FP and `lambda_fp_replay` its
    lambda_FP^repl.
    """

    lambda_diversity: NonNegative
    lambda_fp: NonNegative
    lambda_fp_replay: NonNegative


METHOD = MethodInfo(
    title="TwF",
    order=100,
    hyperparameters=TwfHyperparameters,
    rehearsal=True,
    without_buffer=True,
    switches={
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
        "F10": Deviation(
            "diversity over replay",
            "stream alone",
            "replayed examples of the current task too",
        ),
        "F14": Deviation(
            "weights in TwF",
            "`lambda_FP` times distance, `lambda_FP^repl` times mask replay, `lambda` times "
            "diversity",
            "the whole is multiplied by `lambda_FP`",
        ),
    },
)
