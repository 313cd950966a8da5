"""The named data sets."""

import subprocess
import sys

import pytest

from drivetrain.catalogue.data_sets import (
    dataset_info,
    dataset_names,
    held_out_count,
    is_external_dataset,
    sample_counts,
)
from drivetrain.core.errors import BadInputError


def test_names_and_sizes() -> None:
    assert dataset_names() == (
        "cifar10",
        "cifar100",
        "digits",
        "image-folder",
        "image-table",
        "imagenet",
        "isbi2012",
        "mask-folder",
        "mnist",
        "packed",
        "synthetic",
        "synthetic-em",
    )
    mnist, digits, synthetic = (dataset_info(name) for name in ("mnist", "digits", "synthetic"))
    assert (mnist.train_samples, mnist.validation_samples) == (60000, 10000)
    assert (mnist.channels, mnist.height, mnist.width, mnist.num_classes) == (1, 28, 28, 10)
    assert mnist.needs_files
    assert (digits.train_samples, digits.validation_samples, digits.height) == (1797, 0, 8)
    assert digits.default_validation_fraction == 0.2
    assert (synthetic.channels, synthetic.height, synthetic.num_classes) == (3, 32, 10)
    assert synthetic.generated


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        BadInputError, match=r"--dataset mnits .*Did you mean --dataset mnist\?.*mask-folder, mnist"
    ):
        dataset_info("mnits")


def test_imagenet_and_cifar() -> None:
    imagenet, cifar10, cifar100 = (dataset_info(name) for name in ("imagenet", "cifar10", "cifar100"))
    assert (imagenet.train_samples, imagenet.validation_samples) == (1281167, 50000)
    assert (imagenet.num_classes, imagenet.height, imagenet.width, imagenet.channels) == (1000, 224, 224, 3)
    assert sample_counts(imagenet).train == 1281167
    for info, classes in ((cifar10, 10), (cifar100, 100)):
        assert (info.train_samples, info.validation_samples, info.height) == (50000, 10000, 32)
        assert len(info.class_names) == info.num_classes == classes
    assert dataset_info("gc-imagenet") is imagenet
    assert not dataset_info("image-folder").is_sized


def test_segmentation_sets() -> None:
    names = [name for name in dataset_names() if dataset_info(name).task == "segmentation"]
    assert names == ["isbi2012", "mask-folder", "synthetic-em"]
    isbi, synthetic = dataset_info("isbi2012"), dataset_info("synthetic-em")
    assert isbi.class_names == synthetic.class_names == ("membrane", "cell")
    assert (sample_counts(isbi).train, sample_counts(isbi).validation) == (24, 6)
    assert (sample_counts(synthetic).train, sample_counts(synthetic).validation) == (48, 12)
    assert "non-commercial" in isbi.licence


@pytest.mark.parametrize(
    ("name", "external"),
    [
        ("my_data:load", True),
        ("package.module:make", True),
        ("mnist", False),
        ("mnist:", False),
        (":load", False),
        ("a b:load", False),
    ],
)
def test_external_names(name: str, external: bool) -> None:
    assert is_external_dataset(name) is external


def test_held_out_count() -> None:
    assert held_out_count(1797, fraction=0.2) == 359
    assert held_out_count(3, fraction=0.01) == 1
    assert held_out_count(3, fraction=0) == 0
    with pytest.raises(BadInputError, match="--validation-fraction 0 --remainder pad trains on it"):
        held_out_count(1, fraction=0.5)
    with pytest.raises(BadInputError, match=r"--validation-fraction 0\.2 holds 1 out, and 0 none"):
        held_out_count(2, fraction=0.9)
    assert held_out_count(2, fraction=0.2) == 1


def test_sample_counts() -> None:
    digits, mnist, synthetic = (dataset_info(name) for name in ("digits", "mnist", "synthetic"))
    assert (sample_counts(digits).train, sample_counts(digits).validation) == (1438, 359)
    limited = sample_counts(mnist, limit_train_samples=100, limit_validation_samples=20000)
    assert (limited.train, limited.validation, limited.test) == (100, 10000, 0)
    split = sample_counts(mnist, validation_fraction=0.1)
    assert (split.train, split.validation, split.test) == (54000, 6000, 10000)
    generated = sample_counts(synthetic, dataset_size=3)
    assert (generated.train, generated.validation) == (3, 1)


def test_names_sources_and_order_do_without_torch() -> None:
    modules = (
        *("catalogue.data_sets", "data.source", "data.order", "data.splits"),
        *("data.sources.mnist", "data.sources.digits", "data.sources.synthetic"),
        *("data.commands.fetch", "data.commands.check_files"),
    )
    imports = "; ".join(f"import drivetrain.{module}" for module in modules)
    code = f"import sys; {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
