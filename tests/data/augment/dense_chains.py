"""Chains of techniques for images with masks."""

from drivetrain.data.augment.chain import DenseAugmentation
from drivetrain.data.augment.crop_and_resize import CropAndResize
from drivetrain.data.augment.flip import DenseFlip
from drivetrain.data.augment.intensity import Brightness, Gamma, Noise
from drivetrain.data.augment.warp import Elastic, Rotate
from drivetrain.data.preprocess import DensePreprocess
from tests.data.dense_samples import dense_spec

PREPROCESS = DensePreprocess(dense_spec(40, 42), image_size=26, margin=6)
SYSTEMS = DenseAugmentation(
    3, (DenseFlip("horizontal"), DenseFlip("vertical"), CropAndResize(num_classes=2), Brightness())
)
EVERYTHING = DenseAugmentation(
    3,
    (
        DenseFlip("horizontal"),
        DenseFlip("vertical"),
        Rotate(degrees=40, num_classes=2, padding=6),
        Elastic(shift=2, num_classes=2, padding=6),
        CropAndResize(num_classes=2),
        Brightness(),
        Gamma(spread=0.3),
        Noise(deviation=0.1),
    ),
)
