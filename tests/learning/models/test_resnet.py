"""The networks against the golden numbers and against torchvision's ResNet-50."""

import torch

from twf.learning.models.resnet import ResNet
from twf.study.params import Network


def test_golden_resnet18(golden, dtype, close):
    case = golden("resnet18_width8")
    network = ResNet(Network(architecture="resnet18", width=8), classes=10).to(dtype)
    names = [key for key in case if key.startswith("param")]
    parameters = dict(network.named_parameters())
    assert [key.split("__")[1].replace("/", ".") for key in names] == list(parameters)
    with torch.no_grad():
        for key, parameter in zip(names, parameters.values(), strict=True):
            parameter.copy_(case[key])
    layers = network.train().layers(case["images"].to(dtype))
    close(network.classify(layers[-1]), case["logits"])
    for i, layer in enumerate(layers):
        close(layer.mean(dim=(2, 3)), case[f"pre_activation{i}_channel_means"])
        close(layer.std(dim=(2, 3)), case[f"pre_activation{i}_channel_stds"])


def test_resnet50_has_the_shapes_of_the_imagenet_network():
    network = ResNet(Network(architecture="resnet50", width=64), classes=1000)
    assert sum(p.numel() for p in network.parameters()) == 25_557_032  # torchvision's count
    with torch.no_grad():
        layers = network.eval().layers(torch.zeros(1, 3, 224, 224))
    assert [tuple(layer.shape[1:]) for layer in layers] == [
        (64, 112, 112),
        (256, 56, 56),
        (512, 28, 28),
        (1024, 14, 14),
        (2048, 7, 7),
    ]
