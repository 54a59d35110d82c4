"""What the paper claims of its cells. `claim_evaluation` holds them against numbers.

A claim says that each difference of a family is positive, or the mean of some. The statements are
those of the paper's section on forgetting of the pretraining, of its results and of its ablations,
in this order. Where it names no protocol, a claim is of Class-IL, on which it says it focuses, or
of both, or there is one of each. Remarks that no difference puts into numbers are left out:
"competitive", "satisfactory", "less sensitive to the task at hand".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twf.results.paper import differences as of
from twf.results.paper.differences import REHEARSAL, Difference, Keys, ProbeKey


@dataclass(frozen=True)
class Claim:
    """A statement of the paper: some differences are positive, each, or the mean of some.

    `find` finds them in the keys that there are. A mean is of those alike in what `mean_of` says.
    """

    name: str
    statement: str
    find: Callable[[Keys], list[Difference]]
    mean_of: Callable[[Difference], object] = lambda difference: difference
    unit: str = "FAA"
    benchmarks: tuple[str, ...] = ()  # those that it is of; all where it names none

    def family(self, keys: Keys) -> list[list[Difference]]:
        """The differences, in the groups whose means are to be positive."""
        found: dict[object, list[Difference]] = {}
        for difference in self.find(keys):
            if not self.benchmarks or difference.cell.benchmark in self.benchmarks:
                found.setdefault(self.mean_of(difference), []).append(difference)
        return list(found.values())


def layer(difference: Difference) -> object:
    """The layer of a cell that was probed."""
    key = difference.above[0]
    return isinstance(key, ProbeKey) and (key.cell, key.layer)


CLAIMS = (
    Claim(
        "cka-from-pretraining",
        "ER's layers stay closer to their initialization from pretraining than from scratch: CKA "
        "of each layer, mean over tasks",
        of.closer_from_pretraining,
        mean_of=layer,
        unit="CKA",
    ),
    Claim(
        "cka-last-layer",
        "From pretraining, ER's last residual layer changes most: CKA of each other layer over "
        "its, mean over tasks",
        of.last_layer_changes_most,
        mean_of=layer,
        unit="CKA",
    ),
    Claim(
        "source-forgotten",
        "ER forgets the source: nearest neighbours on Layers 3 and 4 find fewer of its labels "
        "after the first task than before, and fewer after the last than after the first",
        of.source_is_forgotten,
        unit="k-NN",
    ),
    Claim(
        "pretraining-helps",
        "Pretraining raises ER's accuracy",
        lambda keys: of.variant_above(keys, "er", ("pretrained", "scratch")),
    ),
    Claim(
        "first-class-il",
        "TwF is first in each Class-IL cell, among the paper's methods with a buffer",
        lambda keys: of.method_above(keys, "class-il", "twf", *REHEARSAL),
    ),
    Claim(
        "first-task-il",
        "TwF is first in each Task-IL cell, among the paper's methods with a buffer",
        lambda keys: of.method_above(keys, "task-il", "twf", *REHEARSAL),
    ),
    Claim(
        "gain-class-il",
        "TwF gains over DER++ in Class-IL on average (the paper: 4.81 points)",
        lambda keys: of.method_above(keys, "class-il", "twf", "derpp"),
        mean_of=lambda _: None,
    ),
    Claim(
        "gain-task-il",
        "TwF gains over ER-ACE in Task-IL on average (the paper: 2.77 points)",
        lambda keys: of.method_above(keys, "task-il", "twf", "er-ace"),
        mean_of=lambda _: None,
    ),
    Claim(
        "gain-over-each-class-il",
        "TwF gains in Class-IL on average over each of the paper's methods with a buffer",
        lambda keys: of.method_above(keys, "class-il", "twf", *REHEARSAL),
        mean_of=lambda difference: difference.below[0].row,
    ),
    Claim(
        "gain-over-each-task-il",
        "TwF gains in Task-IL on average over each of the paper's methods with a buffer",
        lambda keys: of.method_above(keys, "task-il", "twf", *REHEARSAL),
        mean_of=lambda difference: difference.below[0].row,
    ),
    Claim(
        "gain-small-buffer",
        "TwF's gain over DER++ (Class-IL) and ER-ACE (Task-IL) is larger with the smaller buffer, "
        "on Split CIFAR-10 and Split CUB-200",
        lambda keys: of.gains_with_small_buffers(
            keys, "twf", {"class-il": "derpp", "task-il": "er-ace"}
        ),
        benchmarks=("split-cifar10", "split-cub200"),
    ),
    Claim(
        "buffer-above-regularization",
        "Each of the paper's methods with a buffer is better than oEWC and LwF in each Class-IL "
        "cell",
        lambda keys: of.above_without_buffer(
            keys, "class-il", (*REHEARSAL, "twf"), ("oewc", "lwf")
        ),
    ),
    Claim(
        "oewc-best-without-buffer",
        "oEWC is the best of the paper's methods without a buffer in each Class-IL cell",
        lambda keys: of.above_without_buffer(keys, "class-il", ("oewc",), ("finetune", "lwf")),
    ),
    Claim(
        "oewc-below-finetune",
        "oEWC is worse than Finetune on Split CUB-200, in Class-IL and Task-IL",
        lambda keys: of.above_without_buffer(keys, None, ("finetune",), ("oewc",)),
        benchmarks=("split-cub200",),
    ),
    Claim(
        "icarl-second",
        "On Split CIFAR-100, iCaRL is better than the paper's other methods with a buffer but TwF",
        lambda keys: of.method_above(keys, None, "icarl", "er", "co2l", "derpp", "er-ace"),
        benchmarks=("split-cifar100",),
    ),
    Claim(
        "icarl-below-derpp-class-il",
        "iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in Class-IL",
        lambda keys: of.method_above(keys, "class-il", "derpp", "icarl"),
        benchmarks=("split-cifar10", "split-cub200"),
    ),
    Claim(
        "icarl-below-derpp-task-il",
        "iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in Task-IL",
        lambda keys: of.method_above(keys, "task-il", "derpp", "icarl"),
        benchmarks=("split-cifar10", "split-cub200"),
    ),
    Claim(
        "er-ace-small-buffer",
        "From the larger buffer to the smaller, ER-ACE loses less than ER",
        lambda keys: of.gains_with_small_buffers(
            keys, "er-ace", {"class-il": "er", "task-il": "er"}
        ),
    ),
    Claim(
        "er-ace-below-derpp-class-il",
        "ER-ACE is worse than DER++ with the larger buffer in Class-IL",
        lambda keys: of.with_large_buffers(keys, "class-il", "derpp", "er-ace"),
    ),
    Claim(
        "er-ace-below-derpp-task-il",
        "ER-ACE is worse than DER++ with the larger buffer in Task-IL",
        lambda keys: of.with_large_buffers(keys, "task-il", "derpp", "er-ace"),
    ),
    Claim(
        "cl-most-influential",
        "Leaving out L_CL costs more than leaving out L_AUX, or L_FP and L_AUX, in each cell",
        lambda keys: of.variant_above(keys, "twf", ("cl-fp", "fp-aux"), ("cl", "fp-aux")),
    ),
    Claim(
        "cl-helps",
        "L_CL on top of L_FP and L_AUX raises accuracy in each cell",
        lambda keys: of.variant_above(keys, "twf", ("all", "fp-aux")),
    ),
    Claim(
        "fp-helps",
        "L_FP on top of L_CL raises accuracy in each cell",
        lambda keys: of.variant_above(keys, "twf", ("cl-fp", "cl")),
    ),
    Claim(
        "aux-helps",
        "L_AUX on top of L_FP raises accuracy in each cell, with and without L_CL",
        lambda keys: of.variant_above(keys, "twf", ("all", "cl-fp"), ("fp-aux", "fp")),
    ),
    Claim(
        "fp-without-buffer",
        "L_FP and L_AUX without a buffer are better than oEWC on each benchmark",
        lambda keys: of.propagation_without_buffer(keys, "oewc"),
    ),
    Claim(
        "anchor-helps",
        "An EWC anchor to the pretrained weights raises DER++'s accuracy in each cell",
        lambda keys: of.variants_above(keys, "derpp-ewc", "derpp"),
    ),
    Claim(
        "anchor-helps-task-il",
        "The EWC anchor raises DER++'s accuracy more in Task-IL than in Class-IL",
        of.anchor_in_task_il,
    ),
    Claim(
        "anchor-below-twf",
        "TwF is better than DER++ with an EWC anchor in each cell",
        lambda keys: of.above_variants(keys, "twf", "derpp-ewc"),
    ),
    Claim(
        "pretraining-images-help",
        "Pretraining images in the buffer raise DER++'s accuracy, in the mean over their shares",
        lambda keys: of.variants_above(keys, "derpp-pretraining", "derpp"),
        mean_of=lambda _: None,
    ),
    Claim(
        "pretraining-images-below-twf",
        "TwF is better than DER++ with any share of pretraining images in its buffer",
        lambda keys: of.above_variants(keys, "twf", "derpp-pretraining"),
    ),
    Claim(
        "first-from-dissimilar-source",
        "Pretrained on a dissimilar source, TwF is better than iCaRL and DER++ in each cell",
        lambda keys: of.from_dissimilar_source(keys, "twf", "icarl", "derpp"),
    ),
)
