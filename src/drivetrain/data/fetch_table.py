"""Where the data sets that may be downloaded lie, and how their files are recognised."""

from dataclasses import dataclass

from drivetrain.errors import BadInputError
from drivetrain.suggest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file that several places offer; `checksum` is algorithm:digest."""

    name: str
    bytes: int
    checksum: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDataset:
    """What a data set needs: each group of files alone is enough, the first that can be had is taken."""

    name: str
    groups: tuple[tuple[RemoteFile, ...], ...]
    is_archive: bool


_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
_TORONTO = ("https://www.cs.toronto.edu/~kriz/", "http://www.cs.toronto.edu/~kriz/")
_PYTHON_FORMS = (*_TORONTO, "https://dataset.bj.bcebos.com/cifar/")


def _mnist(name: str, size: int, sha256: str) -> RemoteFile:
    return RemoteFile(name=f"{name}.gz", bytes=size, checksum=f"sha256:{sha256}", mirrors=_MNIST_MIRRORS)


def _cifar(name: str, size: int, md5: str, *, mirrors: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return (RemoteFile(name=f"{name}.tar.gz", bytes=size, checksum=f"md5:{md5}", mirrors=mirrors),)


REMOTE_DATASETS = {
    "mnist": RemoteDataset(
        name="mnist",
        is_archive=False,
        groups=(
            (
                _mnist(
                    "train-images-idx3-ubyte",
                    9912422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                _mnist(
                    "train-labels-idx1-ubyte",
                    28881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                _mnist(
                    "t10k-images-idx3-ubyte",
                    1648877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                _mnist(
                    "t10k-labels-idx1-ubyte",
                    4542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
        ),
    ),
    "cifar10": RemoteDataset(
        name="cifar10",
        is_archive=True,
        groups=(
            _cifar("cifar-10-binary", 170052171, "c32a1d4ab5d03f1284b67883e8d87530", mirrors=_TORONTO),
            _cifar("cifar-10-python", 170498071, "c58f30108f718f92721af3b95e74349a", mirrors=_PYTHON_FORMS),
        ),
    ),
    "cifar100": RemoteDataset(
        name="cifar100",
        is_archive=True,
        groups=(
            _cifar("cifar-100-binary", 168513733, "03b5dce01913d631647c71ecec9e9cb8", mirrors=_TORONTO),
            _cifar("cifar-100-python", 169001437, "eb9058c3a382ffc7106e4002c42a8d85", mirrors=_PYTHON_FORMS),
        ),
    ),
}


def remote_dataset(name: str) -> RemoteDataset:
    """The data set that `data fetch` is asked for."""
    if name in REMOTE_DATASETS:
        return REMOTE_DATASETS[name]
    raise BadInputError(
        f"data fetch {name} is impossible: there is nothing to download for it."
        f"{did_you_mean(name, REMOTE_DATASETS)} It works for {', '.join(REMOTE_DATASETS)}."
    )
