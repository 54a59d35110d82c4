"""Batched augmentation against the golden numbers, and against torchvision one image at a time."""

import dataclasses

import torch
from torch import Tensor

from twf.learning.augmentation import Augment, Grid, Placement
from twf.learning.randomness import CPU, Random
from twf.learning.replay.masks import MaskPacker
from twf.study.params import Augmentation

PLAIN = Augmentation(padding=4, mean=[0.0, 0.0, 0.0], std=[1 / 255, 1 / 255, 1 / 255])


def move_masks(
    augment: Augment, masks: list[Tensor], where: Placement, sizes: list[int]
) -> list[Tensor]:
    """Gates `[N, C, h, h]` of maps of `sizes`, packed, moved with images of 32, and unpacked."""
    packer = MaskPacker([mask.shape[1:] for mask in masks])
    sides = [mask.shape[2] for mask in masks]
    grids = tuple(map(Grid, packer.depths, sides, sizes))
    return packer.unpack(augment.masks_at(packer.pack(masks), where, grids, 32))


def test_golden_paired_crop(golden, dtype, close):
    case = golden("paired_crop")
    augment = Augment(PLAIN, CPU)
    for name in ("mean", "std"):
        setattr(augment, name, getattr(augment, name).to(dtype))
    masks = [case[f"map{i}"][None] for i in range(5)]
    for number in range(5):
        where = Placement(*case[f"case{number}_top_left"].split(1), torch.tensor([False]))
        image = augment.at(case["image"].to(dtype)[None], where)
        close(image[0], case[f"case{number}_image"])
        for i, moved in enumerate(move_masks(augment, masks, where, [32, 32, 16, 8, 4])):
            close(moved[0], case[f"case{number}_map{i}"])


def test_each_image_is_cropped_and_flipped_as_torchvision_does_one_by_one(torchvision):
    functional = torchvision.transforms.functional
    augment = Augment(PLAIN, CPU)
    images = torch.randint(0, 256, (16, 3, 20, 20), dtype=torch.uint8)
    where = augment.place(16, Random(0))
    expected = []
    for i, image in enumerate(images):
        one = functional.pad(image, 4)
        one = functional.crop(one, int(where.top[i]), int(where.left[i]), 20, 20)
        expected.append(functional.hflip(one) if where.flip[i] else one)
    torch.testing.assert_close(augment.at(images, where), torch.stack(expected).float())


def test_masks_of_several_maps_move_each_in_its_own_units_and_are_flipped_with_their_image():
    augment = Augment(PLAIN, CPU)
    where = augment.place(6, Random(0))
    masks = [torch.randint(0, 2, (6, c, s, s)) for c, s in ((3, 16), (16, 8), (20, 4))]
    ours = move_masks(augment, masks, where, [32, 16, 4])
    still = dataclasses.replace(where, flip=torch.zeros_like(where.flip))
    for mask, size, moved in zip(masks, [32, 16, 4], ours, strict=True):
        (unturned,) = move_masks(augment, [mask], still, [size])
        turned = where.flip[:, None, None, None]
        assert torch.equal(moved, torch.where(turned, unturned.flip(3), unturned))


def test_every_placement_is_drawn_and_flips_can_be_off():
    where = Augment(PLAIN, CPU).place(5000, Random(0))
    assert set(where.top.tolist()) == set(where.left.tolist()) == set(range(9))
    assert 0.45 < where.flip.float().mean() < 0.55
    still = Augment(PLAIN.model_copy(update={"flip": False, "padding": 0}), CPU)
    images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(still(images, Random(0)), images.float())
