"""The images of the examples: MNIST from --data-dir, or small built-in digits in the same form."""

import argparse
import gzip
from pathlib import Path

import keras
import numpy as np

num_classes = 10
input_shape = (28, 28, 1)


def data_dir_argument():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", help="folder with the four files of MNIST; default: built-in digits")
    return parser.parse_args().data_dir


def load_data(data_dir):
    """((x_train, y_train), (x_test, y_test)), as keras.datasets.mnist.load_data() returns them."""
    if data_dir is None:
        return _built_in_digits()
    return tuple(
        (_read(data_dir, f"{part}-images"), _read(data_dir, f"{part}-labels")) for part in ("train", "t10k")
    )


def prepare_data(data_dir, make_divisible=lambda number: number):
    """Images between 0 and 1 with a channel, and one-hot labels; `make_divisible` says how many to keep."""
    return tuple(_prepared(*part, make_divisible(len(part[0]))) for part in load_data(data_dir))


def _prepared(x, y, length):
    x = np.expand_dims(x[:length].astype("float32") / 255, -1)
    return x, keras.utils.to_categorical(y[:length], num_classes)


def _read(data_dir, name):
    """One file of MNIST, packed or not: two bytes of zeros, the type, the number of dimensions, the sizes."""
    path = next(Path(data_dir).glob(f"{name}*"))
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _built_in_digits():
    """1,797 digits of 8x8 that come with scikit-learn, enlarged to 28x28."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    large = np.kron(digits.images, np.ones((3, 3))) * (255 / 16)
    images = np.pad(large, ((0, 0), (2, 2), (2, 2))).astype("uint8")
    return (images[:1280], digits.target[:1280]), (images[1280:], digits.target[1280:])
