"""Feature propagation against the golden numbers, and the gates' own promises."""

import pytest
import torch

from twf.learning.models import gates
from twf.learning.models.gates import FeaturePropagation
from twf.learning.randomness import Random


def golden_module(case: dict, dtype: torch.dtype) -> FeaturePropagation:
    """The module of one layer with the golden case's parameters."""
    tasks, channels = int(case["n_tasks"]), case["student"].shape[1]
    module = FeaturePropagation(tasks, [channels]).to(dtype)
    attention = module.attention
    with torch.no_grad():
        maps = torch.cat([case[f"channel_w{i}"] for i in (1, 2, 3)], 1)
        attention.maps[0].weight.copy_(maps.mT)
        names = ["channel_bn1", "channel_bn2", *(f"spatial_bn{i}" for i in (1, 2, 3, 4))]
        pairs = [case[f"{name}_gamma_beta"].chunk(2, dim=1) for name in names]
        table = torch.cat([*(p[0] for p in pairs), *(p[1] for p in pairs)], 1)
        attention.affine.table.copy_(table)
        for i, convolution in enumerate(attention.spatial[0].convolutions, start=1):
            convolution.weight.copy_(case[f"spatial_conv{i}_w"])
            convolution.bias.copy_(case[f"spatial_conv{i}_b"])
        attention.to_logits[0].weight.copy_(case["gate_w"].mT)
    return module


@pytest.mark.parametrize("name", ["feature_propagation_small", "feature_propagation_halved"])
def test_golden_feature_propagation(golden, name, dtype, close, monkeypatch):
    case = golden(name)
    module = golden_module(case, dtype)
    teacher = case["teacher"].to(dtype)
    student = case["student"].to(dtype).requires_grad_()
    task = case["labels"] // int(case["classes_per_task"])
    channel, (spatial,) = module.attention([teacher], task, module.attention.of_task(task))
    close(channel, case["channel_attention"])
    close(spatial, case["spatial_attention"])
    first, second, positions = module.attention.logits([teacher], task)
    maps = [gates.by_layer(factors, positions, [teacher])[0] for factors in (first, second)]
    close(torch.stack(maps, dim=2), case["gate_logits"])
    close(module.likeliest([teacher], task)[0].to(dtype), case["gate"])
    close(
        gates.margin_relu([teacher])[0],
        torch.maximum(case["teacher"], case["margin"]),
    )

    # the golden gate is the argmax, which has no gradient
    monkeypatch.setattr(gates, "noisy_logit", lambda apart, _: apart.detach())
    stream, current = 6, int(case["current_task"])
    stored = case["stored_maps"].to(dtype)[stream:]
    assert torch.equal((torch.arange(len(task)) >= stream) & (task != current), case["replay_old"])
    losses = module([student], [teacher], task, stream, current, [stored], Random(0))
    replay = case["lambda_replay"] * losses.mask_replay
    diversity = case["lambda_diversity"] * losses.diversity
    close(losses.distance, case["distance"])
    close(replay, case["replay_bce"])
    close(diversity, case["diversity"])
    total = losses.distance + replay + diversity
    close(total, case["total"])
    close(gates.to_stored_size(losses.gates[0]).to(dtype), case["maps_to_store"])
    total.backward()
    close(student.grad, case["grad_student"])
    to_maps, to_logits = module.attention.maps[0].weight, module.attention.to_logits[0].weight
    close(to_maps.grad[:, :, : student.shape[1]].mT, case["grad_channel_w1"])
    close(to_logits.grad.mT, case["grad_gate_w"])


def test_gates_of_rounded_logits_open_as_rarely_as_the_softmax_says():
    """What is rounded to bfloat16 still has noise with tails."""
    closed = torch.full((1, 1, 500, 500), -7.0, dtype=torch.bfloat16)
    noisy = gates.noisy_logit(closed / gates.GUMBEL_TEMPERATURE, gates.logistic(closed, Random(0)))
    share = (noisy > 0).float().mean().item()
    assert share == pytest.approx(torch.sigmoid(torch.tensor(-7.0)).item(), rel=0.2)


def test_no_old_image_means_no_mask_replay():
    logits, stored = torch.rand(4, 2, 3, 3), torch.zeros(4, 2, 3, 3)
    assert gates.cross_entropy([logits], [stored], torch.zeros(4).bool()).item() == 0.0
    assert gates.cross_entropy([logits], [stored], torch.ones(4).bool()).item() > 0.0
