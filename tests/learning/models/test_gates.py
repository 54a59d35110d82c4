"""Feature propagation against the golden numbers, and the gates' own promises."""

from __future__ import annotations

import pytest
import torch

from twf.learning.models import gates
from twf.learning.models.gates import FeaturePropagation
from twf.learning.randomness import Random


def golden_module(case: dict, dtype: torch.dtype) -> FeaturePropagation:
    """A layer's module with the golden case's parameters."""
    tasks, channels = int(case["n_tasks"]), case["student"].shape[1]
    module = FeaturePropagation(tasks, channels).to(dtype)
    with torch.no_grad():
        module.channel.maps.weight.copy_(torch.cat([case[f"channel_w{i}"] for i in (1, 2, 3)], 1))
        for affine, names in (
            (module.channel.affine, ["channel_bn1", "channel_bn2"]),
            (module.spatial.affine, [f"spatial_bn{i}" for i in (1, 2, 3, 4)]),
        ):
            pairs = [case[f"{name}_gamma_beta"].chunk(2, dim=1) for name in names]
            affine.table.copy_(torch.cat([*(p[0] for p in pairs), *(p[1] for p in pairs)], 1))
        for i, convolution in enumerate(module.spatial.convolutions, start=1):
            convolution.weight.copy_(case[f"spatial_conv{i}_w"])
            convolution.bias.copy_(case[f"spatial_conv{i}_b"])
        module.to_logits.weight.copy_(case["gate_w"])
    return module


@pytest.mark.parametrize("name", ["feature_propagation_small", "feature_propagation_halved"])
def test_golden_feature_propagation(golden, name, dtype, close, monkeypatch):
    case = golden(name)
    module = golden_module(case, dtype)
    teacher = case["teacher"].to(dtype)
    student = case["student"].to(dtype).requires_grad_()
    task = case["labels"] // int(case["classes_per_task"])
    close(module.channel(teacher, task), case["channel_attention"])
    close(module.spatial(teacher, task), case["spatial_attention"])
    logits = module.logits(teacher, task)
    close(logits, case["gate_logits"])
    close(gates.likeliest_gate(logits), case["gate"])
    close(
        gates.margin_relu(teacher),
        torch.maximum(case["teacher"], case["margin"]),
    )

    # the golden gate is the argmax, which has no gradient
    monkeypatch.setattr(gates, "sample_gate", lambda apart, _: (apart >= 0).to(apart.dtype))
    stream, current = 6, int(case["current_task"])
    stored = case["stored_maps"].to(dtype)[stream:]
    assert torch.equal((torch.arange(len(task)) >= stream) & (task != current), case["replay_old"])
    layer = module(student, teacher, task, stream, stored, Random(0))
    distance, replay, diversity = gates.terms([layer], task, stream, current, frozenset())
    replay = case["lambda_replay"] * replay
    diversity = case["lambda_diversity"] * diversity
    close(distance, case["distance"])
    close(replay, case["replay_bce"])
    close(diversity, case["diversity"])
    total = distance + replay + diversity
    close(total, case["total"])
    close(gates.to_stored_size(layer.gate), case["maps_to_store"])
    total.backward()
    close(student.grad, case["grad_student"])
    close(module.channel.maps.weight.grad[:, : student.shape[1]], case["grad_channel_w1"])
    close(module.to_logits.weight.grad, case["grad_gate_w"])


def test_gates_of_rounded_logits_open_as_rarely_as_the_softmax_says():
    """What is rounded to bfloat16 still has noise with tails."""
    closed = torch.full((1, 1, 500, 500), -7.0, dtype=torch.bfloat16)
    share = gates.sample_gate(closed, Random(0)).mean().item()
    assert share == pytest.approx(torch.sigmoid(torch.tensor(-7.0)).item(), rel=0.2)


def test_no_old_image_means_no_mask_replay():
    none = torch.zeros(4, dtype=torch.bool)
    assert gates.mask_replay(torch.rand(2, 4), none).tolist() == [0.0, 0.0]
