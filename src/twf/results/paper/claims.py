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
from twf.results.paper.differences import REHEARSAL, Difference, Keys


@dataclass(frozen=True)
class Claim:
    """A statement of the paper: the mean of each group of differences is positive.

    `groups` finds them in the keys that there are.
    """

    name: str
    statement: str
    groups: Callable[[Keys], list[list[Difference]]]
    unit: str = "FAA"

    def family(self, keys: Keys) -> list[list[Difference]]:
        """The groups that have a difference."""
        return [group for group in self.groups(keys) if group]


def each(differences: list[Difference]) -> list[list[Difference]]:
    """Every difference a group of its own."""
    return [[difference] for difference in differences]


CLAIMS = (
    Claim(
        "cka-from-pretraining",
        "ER's layers stay closer to their initialization from pretraining than from scratch: CKA "
        "of each layer, mean over tasks",
        of.closer_from_pretraining,
        unit="CKA",
    ),
    Claim(
        "cka-last-layer",
        "From pretraining, ER's last residual layer changes most: CKA of each other layer over "
        "its, mean over tasks",
        of.last_layer_changes_most,
        unit="CKA",
    ),
    Claim(
        "source-forgotten",
        "ER forgets the source: nearest neighbours on Layers 3 and 4 find fewer of its labels "
        "after the first task than before, and fewer after the last than after the first",
        lambda keys: each(of.source_is_forgotten(keys)),
        unit="k-NN",
    ),
    Claim(
        "pretraining-helps",
        "Pretraining raises ER's accuracy",
        lambda keys: each(of.variant_above(keys, "er", ("pretrained", "scratch"))),
    ),
    Claim(
        "first-class-il",
        "TwF is first in each Class-IL cell, among the paper's methods with a buffer",
        lambda keys: each(of.method_above(keys, "class-il", "twf", *REHEARSAL)),
    ),
    Claim(
        "first-task-il",
        "TwF is first in each Task-IL cell, among the paper's methods with a buffer",
        lambda keys: each(of.method_above(keys, "task-il", "twf", *REHEARSAL)),
    ),
    Claim(
        "gain-class-il",
        "TwF gains over DER++ in Class-IL on average (the paper: 4.81 points)",
        lambda keys: [of.method_above(keys, "class-il", "twf", "derpp")],
    ),
    Claim(
        "gain-task-il",
        "TwF gains over ER-ACE in Task-IL on average (the paper: 2.77 points)",
        lambda keys: [of.method_above(keys, "task-il", "twf", "er-ace")],
    ),
    Claim(
        "gain-over-each-class-il",
        "TwF gains in Class-IL on average over each of the paper's methods with a buffer",
        lambda keys: [of.method_above(keys, "class-il", "twf", rival) for rival in REHEARSAL],
    ),
    Claim(
        "gain-over-each-task-il",
        "TwF gains in Task-IL on average over each of the paper's methods with a buffer",
        lambda keys: [of.method_above(keys, "task-il", "twf", rival) for rival in REHEARSAL],
    ),
    Claim(
        "gain-small-buffer",
        "TwF's gain over DER++ (Class-IL) and ER-ACE (Task-IL) is larger with the smaller buffer, "
        "on Split CIFAR-10 and Split CUB-200",
        lambda keys: each(
            of.on(of.gains_with_small_buffers(keys), "split-cifar10", "split-cub200")
        ),
    ),
    Claim(
        "buffer-above-regularization",
        "Each of the paper's methods with a buffer is better than oEWC and LwF in each Class-IL "
        "cell",
        lambda keys: each(
            [
                difference
                for method in (*REHEARSAL, "twf")
                for difference in of.above_without_buffer(keys, "class-il", method, "oewc", "lwf")
            ]
        ),
    ),
    Claim(
        "oewc-best-without-buffer",
        "oEWC is the best of the paper's methods without a buffer in each Class-IL cell",
        lambda keys: each(of.above_without_buffer(keys, "class-il", "oewc", "finetune", "lwf")),
    ),
    Claim(
        "oewc-below-finetune",
        "oEWC is worse than Finetune on Split CUB-200, in Class-IL and Task-IL",
        lambda keys: each(
            of.on(of.above_without_buffer(keys, None, "finetune", "oewc"), "split-cub200")
        ),
    ),
    Claim(
        "icarl-second",
        "On Split CIFAR-100, iCaRL is better than the paper's other methods with a buffer but TwF",
        lambda keys: each(
            of.on(
                of.method_above(keys, None, "icarl", *(r for r in REHEARSAL if r != "icarl")),
                "split-cifar100",
            )
        ),
    ),
    Claim(
        "icarl-below-derpp-class-il",
        "iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in Class-IL",
        lambda keys: each(
            of.on(
                of.method_above(keys, "class-il", "derpp", "icarl"), "split-cifar10", "split-cub200"
            )
        ),
    ),
    Claim(
        "icarl-below-derpp-task-il",
        "iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in Task-IL",
        lambda keys: each(
            of.on(
                of.method_above(keys, "task-il", "derpp", "icarl"), "split-cifar10", "split-cub200"
            )
        ),
    ),
    Claim(
        "er-ace-small-buffer",
        "From the larger buffer to the smaller, ER-ACE loses less than ER",
        lambda keys: each(of.losses_with_small_buffers(keys, "er", "er-ace")),
    ),
    Claim(
        "er-ace-below-derpp-class-il",
        "ER-ACE is worse than DER++ with the larger buffer in Class-IL",
        lambda keys: each(of.with_large_buffers(keys, "class-il", "derpp", "er-ace")),
    ),
    Claim(
        "er-ace-below-derpp-task-il",
        "ER-ACE is worse than DER++ with the larger buffer in Task-IL",
        lambda keys: each(of.with_large_buffers(keys, "task-il", "derpp", "er-ace")),
    ),
    Claim(
        "cl-most-influential",
        "Leaving out L_CL costs more than leaving out L_AUX, or L_FP and L_AUX, in each cell",
        lambda keys: each(of.variant_above(keys, "twf", ("cl-fp", "fp-aux"), ("cl", "fp-aux"))),
    ),
    Claim(
        "cl-helps",
        "L_CL on top of L_FP and L_AUX raises accuracy in each cell",
        lambda keys: each(of.variant_above(keys, "twf", ("all", "fp-aux"))),
    ),
    Claim(
        "fp-helps",
        "L_FP on top of L_CL raises accuracy in each cell",
        lambda keys: each(of.variant_above(keys, "twf", ("cl-fp", "cl"))),
    ),
    Claim(
        "aux-helps",
        "L_AUX on top of L_FP raises accuracy in each cell, with and without L_CL",
        lambda keys: each(of.variant_above(keys, "twf", ("all", "cl-fp"), ("fp-aux", "fp"))),
    ),
    Claim(
        "fp-without-buffer",
        "L_FP and L_AUX without a buffer are better than oEWC on each benchmark",
        lambda keys: each(of.propagation_without_buffer(keys, "oewc")),
    ),
    Claim(
        "anchor-helps",
        "An EWC anchor to the pretrained weights raises DER++'s accuracy in each cell",
        lambda keys: each(of.variants_above(keys, "derpp-ewc", "derpp")),
    ),
    Claim(
        "anchor-helps-task-il",
        "The EWC anchor raises DER++'s accuracy more in Task-IL than in Class-IL",
        lambda keys: each(of.anchor_in_task_il(keys)),
    ),
    Claim(
        "anchor-below-twf",
        "TwF is better than DER++ with an EWC anchor in each cell",
        lambda keys: each(of.above_variants(keys, "twf", "derpp-ewc")),
    ),
    Claim(
        "pretraining-images-help",
        "Pretraining images in the buffer raise DER++'s accuracy, in the mean over their shares",
        lambda keys: [of.variants_above(of.without_control(keys), "derpp-pretraining", "derpp")],
    ),
    Claim(
        "pretraining-images-below-twf",
        "TwF is better than DER++ with any share of pretraining images in its buffer",
        lambda keys: each(of.above_variants(of.without_control(keys), "twf", "derpp-pretraining")),
    ),
    Claim(
        "first-from-dissimilar-source",
        "Pretrained on a dissimilar source, TwF is better than iCaRL and DER++ in each cell",
        lambda keys: each(of.from_dissimilar_source(keys, "twf", "icarl", "derpp")),
    ),
)
