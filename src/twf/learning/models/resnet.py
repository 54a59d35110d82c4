"""ResNets with the five layers that TwF reads.

ResNet-18 has the CIFAR stem (3x3, stride 1, no pooling), ResNet-50 the ImageNet one (7x7, stride 2,
then pooling). The layers are the maps before an activation: after the first normalisation, and the
sum before the last ReLU of each of the four stages.
"""

from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, relu, relu_

from twf.learning.models.convolution import Convolution
from twf.study.params import Network

M = TypeVar("M", bound=nn.Module)


class BatchNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d` without a count of batches, which a fixed momentum does not need.

    A step of TwF counts seventy times, and on a GPU each time is a kernel.
    """

    momentum: float

    def forward(self, x: Tensor) -> Tensor:
        """`x`: `[N, C, H, W]`. By its own statistics in training, else by the running ones."""
        statistics, affine = (self.running_mean, self.running_var), (self.weight, self.bias)
        return batch_norm(x, *statistics, *affine, self.training, self.momentum, self.eps)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut. Takes and gives maps before the activation.

    What follows a normalisation is done in place: its gradient needs its input alone.
    """

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Convolution(channels_in, channels, 3, stride, padding=1)
        self.bn1 = BatchNorm(channels)
        self.conv2 = Convolution(channels, channels, 3, padding=1)
        self.bn2 = BatchNorm(channels)
        self.shortcut = _shortcut(channels_in, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(x)
        branch = relu_(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(branch))
        result: Tensor = branch.add_(self.shortcut(x))
        return result


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the stride is in the 3x3 (ResNet v1.5)."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Convolution(channels_in, channels, 1)
        self.bn1 = BatchNorm(channels)
        self.conv2 = Convolution(channels, channels, 3, stride, padding=1)
        self.bn2 = BatchNorm(channels)
        self.conv3 = Convolution(channels, self.expansion * channels, 1)
        self.bn3 = BatchNorm(self.expansion * channels)
        self.shortcut = _shortcut(channels_in, self.expansion * channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(x)
        branch = relu_(self.bn1(self.conv1(x)))
        branch = relu_(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        result: Tensor = branch.add_(self.shortcut(x))
        return result


def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    if stride == 1 and channels_in == channels_out:
        return nn.Sequential()
    convolution = Convolution(channels_in, channels_out, 1, stride)
    return nn.Sequential(convolution, BatchNorm(channels_out))


class ResNet(nn.Module):
    """A ResNet over RGB images `[N, 3, H, W]`, with a linear classifier over `classes`.

    A block takes the map before the activation of the block below, so that a stage's output *is*
    its layer. In the first stage of ResNet-50 the activation comes before the pooling; applying it
    once more changes nothing.
    """

    def __init__(self, network: Network, classes: int) -> None:
        super().__init__()
        block: type[BasicBlock | Bottleneck]
        if network.architecture == "resnet18":
            block, depths, kernel, stride = BasicBlock, (2, 2, 2, 2), 3, 1
            self.pool: nn.Module = nn.Identity()
        else:
            block, depths, kernel, stride = Bottleneck, (3, 4, 6, 3), 7, 2
            self.pool = nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        width = network.width
        self.conv1 = Convolution(3, width, kernel, stride, padding=kernel // 2)
        self.bn1 = BatchNorm(width)
        self.layer_channels = [width, *(block.expansion * width * 2**i for i in range(4))]
        stages = []
        for i, depth in enumerate(depths):
            inputs = [self.layer_channels[i], *[self.layer_channels[i + 1]] * (depth - 1)]
            strides = [1 if i == 0 else 2, *[1] * (depth - 1)]
            blocks = (block(c, width * 2**i, s) for c, s in zip(inputs, strides, strict=True))
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.classifier = nn.Linear(self.layer_channels[-1], classes)

    def layers(self, images: Tensor) -> list[Tensor]:
        """The five maps before an activation, `[N, C_l, H_l, W_l]` each."""
        maps = [self.bn1(self.conv1(images))]
        x = self.pool(maps[0])
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            maps.append(x)
        return maps

    def classify(self, last_layer: Tensor) -> Tensor:
        """Logits `[N, classes]` of the last of `layers`."""
        logits: Tensor = self.classifier(relu(last_layer).mean(dim=(2, 3)))
        return logits

    def features(self, images: Tensor) -> Tensor:
        """What the classifier sees: `[N, C]`, globally averaged."""
        return relu(self.layers(images)[-1]).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[N, classes]`."""
        return self.classify(self.layers(images)[-1])


def fresh_classifier(network: ResNet, classes: int) -> None:
    """Replace the classifier by a new one over `classes`, from torch's global random state."""
    old = network.classifier
    network.classifier = nn.Linear(old.in_features, classes).to(old.weight)


def frozen_copy(module: M) -> M:
    """A copy in evaluation mode, none of whose parameters are trained."""
    return deepcopy(module).eval().requires_grad_(False)


def parameters_of(network: nn.Module) -> Tensor:
    """All parameters as one vector."""
    return torch.cat([p.flatten() for p in network.parameters()])


def backbone_of(network: ResNet) -> Tensor:
    """All parameters but the classifier's as one vector, in the order of `parameters_of`."""
    named = network.named_parameters()
    return torch.cat([p.flatten() for n, p in named if not n.startswith("classifier.")])
