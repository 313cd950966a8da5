"""Recognises packs and the files of published data sets by their names."""

from pathlib import Path

from drivetrain.catalogue.data_sets import dataset_info
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.finding.candidate import Candidate, described_splits
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.sources.cifar import holds_cifar
from drivetrain.data.sources.isbi2012 import holds_isbi2012
from drivetrain.data.sources.mnist import holds_mnist
from drivetrain.data.sources.pack import is_pack, read_index

__all__ = ["find_cifar10", "find_cifar100", "find_isbi2012", "find_mnist", "find_pack"]


def find_pack(folder: Path) -> Candidate | None:
    """A pack that `drivetrain data pack` wrote."""
    if not is_pack(folder):
        return None
    index = read_index(folder)
    counts = {split: part.samples for split, part in index.splits.items()}
    sentence = (
        f"{folder} is a pack of {described_splits(counts)} in {len(index.class_names)} classes "
        f"({first_names([*index.class_names], most=3)})."
    )
    found = FoundData(dataset="packed", data_dir=folder, sentence=sentence)
    return Candidate(found=found, holding="a pack", num_images=sum(counts.values()))


def find_mnist(folder: Path) -> Candidate | None:
    """MNIST's four files."""
    return _published("mnist", folder) if holds_mnist(folder) else None


def find_cifar10(folder: Path) -> Candidate | None:
    """CIFAR-10's files in one of their forms."""
    return _published("cifar10", folder) if holds_cifar("cifar10", folder) else None


def find_cifar100(folder: Path) -> Candidate | None:
    """CIFAR-100's files in one of their forms."""
    return _published("cifar100", folder) if holds_cifar("cifar100", folder) else None


def find_isbi2012(folder: Path) -> Candidate | None:
    """Two volumes with the names of those of ISBI 2012, which somebody's own may have."""
    if not holds_isbi2012(folder):
        return None
    sentence = f"{folder} is laid out like ISBI 2012: a volume of images and one of their masks, 2 classes."
    found = FoundData(dataset="isbi2012", data_dir=folder, sentence=sentence)
    return Candidate(found=found, holding="volumes laid out like ISBI 2012")


def _published(name: str, folder: Path) -> Candidate:
    info = dataset_info(name)
    what = info.description.split(", ")[0]
    sentence = f"{folder} holds the files of {name}: {what}, {info.num_classes} classes."
    found = FoundData(dataset=name, data_dir=folder, sentence=sentence)
    return Candidate(found=found, holding=f"the files of {name}")
