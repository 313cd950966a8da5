"""Mirrors, sizes and checksums of the data sets that can be downloaded."""

from dataclasses import dataclass

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

PIXELS = "pixels-sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file with its mirrors; `checksum` is algorithm:digest.

    A volume's checksum (pixels-sha256) and bytes are those of its pixels, because mirrors may offer it as one
    TIFF file or as single pages (`page_names`).
    """

    name: str
    bytes: int
    checksum: str
    mirrors: tuple[str, ...]
    page_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDataset:
    """The files of a data set: any one group is enough, and the first that can be downloaded is used.

    `by_hand` says where a user finds the files if no mirror has them.
    """

    name: str
    groups: tuple[tuple[RemoteFile, ...], ...]
    is_archive: bool
    by_hand: str = ""


_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
_TORONTO = ("https://www.cs.toronto.edu/~kriz/", "http://www.cs.toronto.edu/~kriz/")
_PYTHON_FORMS = (*_TORONTO, "https://dataset.bj.bcebos.com/cifar/")
# The pages of the three volumes, in a public copy that agrees with others pixel for pixel.
_ISBI_COPY = "b45af4d458437d8281cc218a07fd4380818ece4a/data/membrane/"
_ISBI_MIRRORS = (
    f"https://raw.githubusercontent.com/zhixuhao/unet/{_ISBI_COPY}",
    f"https://github.com/zhixuhao/unet/raw/{_ISBI_COPY}",
    f"https://cdn.jsdelivr.net/gh/zhixuhao/unet@{_ISBI_COPY}",
)
_ISBI_PAGES, _ISBI_SIDE = 30, 512


def _mnist(name: str, size: int, sha256: str) -> RemoteFile:
    return RemoteFile(name=f"{name}.gz", bytes=size, checksum=f"sha256:{sha256}", mirrors=_MNIST_MIRRORS)


def _cifar(name: str, size: int, md5: str, *, mirrors: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return (RemoteFile(name=f"{name}.tar.gz", bytes=size, checksum=f"md5:{md5}", mirrors=mirrors),)


def _isbi(name: str, folder: str, sha256: str) -> RemoteFile:
    return RemoteFile(
        name=name,
        bytes=_ISBI_PAGES * _ISBI_SIDE**2,
        checksum=f"{PIXELS}:{sha256}",
        mirrors=_ISBI_MIRRORS,
        page_names=tuple(f"{folder}/{page}.png" for page in range(_ISBI_PAGES)),
    )


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
    "isbi2012": RemoteDataset(
        name="isbi2012",
        is_archive=False,
        by_hand="You can also use the TIFF files in https://downloads.imagej.net/ISBI-2012-challenge.zip.",
        groups=(
            (
                _isbi(
                    "train-volume.tif",
                    "train/image",
                    "200da3d452d726e6c9ca1ce04b869d4edb727320d23b516d01cce707dc8c4760",
                ),
                _isbi(
                    "train-labels.tif",
                    "train/label",
                    "a7cb64000a1a7e542682927e19c91339f58f9f178e0bcce4e207371116f0ca36",
                ),
                _isbi(
                    "test-volume.tif",
                    "test",
                    "1b58fa7ec1d0ff9d39a855622db3ff66a97863036339b0d04be51b2f5a99b0e9",
                ),
            ),
        ),
    ),
}


def remote_dataset(name: str) -> RemoteDataset:
    """Looks up the data set that `data fetch` downloads."""
    if name in REMOTE_DATASETS:
        return REMOTE_DATASETS[name]
    raise BadInputError(
        f"data fetch {name}: there is nothing to download for this data set."
        f"{did_you_mean(name, REMOTE_DATASETS)} These can be downloaded: {', '.join(REMOTE_DATASETS)}."
    )
