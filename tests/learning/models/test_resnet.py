"""The networks against the golden numbers and ResNet-50's shapes, and their convolutions."""

import os
import subprocess
import sys

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
    shapes = [(64, 112), (256, 56), (512, 28), (1024, 14), (2048, 7)]
    assert [layer.shape[1:] for layer in layers] == [(c, side, side) for c, side in shapes]


# Where what the convolution writes past its memory belongs to something else, the process ends
ERRORS = """
import torch
from twf.learning.models.convolution import Convolution

torch.set_num_threads(1)
for channels in (2, 4, 6, 8, 16):
    layer = Convolution(channels, 16, 1, stride=2).to(memory_format=torch.channels_last)
    x = torch.randn(4, channels, 32, 32).to(memory_format=torch.channels_last)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        loss = layer.to(dtype)(x.to(dtype)).square().sum()
        gradients.append(torch.autograd.grad(loss, layer.weight)[0].double())
    print(float((gradients[0] - gradients[1]).norm() / gradients[1].norm()))
"""


def test_narrow_strided_1x1_convolutions_have_the_right_gradients_with_avx2_too():
    avx2 = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    printed = subprocess.check_output([sys.executable, "-c", ERRORS], env=avx2, timeout=300)
    errors = [float(line) for line in printed.split()]
    assert len(errors) == 5 and max(errors) < 1e-5, errors
