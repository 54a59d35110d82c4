"""The gates' switches at what the paper says, against its formulas written out."""

from __future__ import annotations

import math

import pytest
import torch

from twf.learning.models import gates
from twf.learning.models.gates import FeaturePropagation
from twf.learning.randomness import Random


@pytest.fixture
def maps() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "student": torch.randn(5, 4, 8, 8, generator=generator),
        "teacher": torch.randn(5, 4, 8, 8, generator=generator),
        "task": torch.tensor([1, 1, 1, 0, 1]),
        "stored": (torch.rand(5, 4, 8, 8, generator=generator) > 0.5).float()[3:],
    }


def propagate(maps: dict[str, torch.Tensor], *paper: str):
    torch.manual_seed(1)
    module = FeaturePropagation(2, 4, frozenset(paper))
    given = (maps["student"], maps["teacher"], maps["task"], 3, 1, maps["stored"])
    return module, module(*given, Random(2))


def test_f3_the_diversity_vectors_are_normalised(maps):
    _, loss = propagate(maps, "F3")
    rows = [i for i in range(5) if maps["task"][i] == 1]
    average = loss.gate.mean(dim=(2, 3))
    unit = [average[i] / average[i].norm() for i in rows]
    total = 0.0
    for i in range(len(rows)):
        share = sum(math.exp(float(unit[i] @ u) / 2) for u in unit) / len(rows)
        total -= math.log(math.exp(float(unit[i] @ unit[i]) / 2) / share)
    assert loss.diversity.item() == pytest.approx(total / len(rows), abs=1e-5)


def test_f4_the_gate_is_on_channel_plus_spatial_attention(maps):
    module, _ = propagate(maps, "F4")
    module.eval()
    logits = module.logits(maps["teacher"], maps["task"])
    attention = module.channel(maps["teacher"], maps["task"])[:, :, None, None]
    attention = attention + module.spatial(maps["teacher"], maps["task"])
    assert torch.equal(logits[:, :, 0], attention)
    assert torch.equal(logits[:, :, 1], torch.zeros_like(attention))
    assert not any(name.startswith("to_logits") for name, _ in module.named_parameters())


def test_f5_masks_of_all_replayed_images_on_the_difference_of_the_logits(maps):
    module, loss = propagate(maps, "F5")
    logits = module.logits(maps["teacher"], maps["task"])
    share = torch.sigmoid(logits[:, :, 0] - logits[:, :, 1])[3:]
    stored = maps["stored"]
    expected = -(stored * share.log() + (1 - stored) * (1 - share).log()).mean()
    assert loss.mask_replay.item() == pytest.approx(expected.item(), rel=1e-4)


def test_f7_the_distance_is_the_squared_norm_of_the_gated_difference(maps):
    _, loss = propagate(maps, "F7")
    target = gates.margin_relu(maps["teacher"])
    expected = sum(
        float((loss.gate[i] * (maps["student"][i] - target[i])).norm() ** 2) for i in range(5)
    )
    assert loss.distance.item() == pytest.approx(expected / 5, rel=1e-4)


def test_f10_replayed_images_of_the_current_task_do_not_count_for_diversity(maps):
    _, published = propagate(maps)
    _, paper = propagate(maps, "F10")
    gate = published.gate
    stream = gates.diversity(gate[:3], torch.ones(3, dtype=torch.bool))
    current = gates.diversity(gate[[0, 1, 2, 4]], torch.ones(4, dtype=torch.bool))
    assert paper.diversity.item() == pytest.approx(stream.item(), rel=1e-5)
    assert published.diversity.item() == pytest.approx(current.item(), rel=1e-5)
