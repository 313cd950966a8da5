"""ResNet50 of keras.applications on CIFAR-10, enlarged to 224x224: 23,608,202 parameters, batches of 2."""

import argparse
import os
import pickle
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
from torch.utils.data import DataLoader, Dataset

import drivetrain.keras

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data-dir", help="folder with cifar-10-batches-py; default: noise")
parser.add_argument("--images", type=int, default=1000, help="of each part (default 1000)")
parser.add_argument("--image-size", type=int, default=224, help="side to which images are enlarged")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

BATCH_SIZE = 2
SIZE = args.image_size


def get_model():
    input_layer = keras.layers.Input(shape=(SIZE, SIZE, 3), batch_size=BATCH_SIZE)
    x = keras.applications.ResNet50(weights=None, include_top=False)(input_layer)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(10, activation="softmax")(x)
    return keras.Model(inputs=input_layer, outputs=x)


def read(name):
    """The first images of a part as (samples, 32, 32, 3) between 0 and 1, and their classes."""
    if args.data_dir is None:
        draws = np.random.default_rng(0)
        return draws.random((args.images, 32, 32, 3), dtype="float32"), draws.integers(0, 10, args.images)
    part = pickle.loads((Path(args.data_dir) / "cifar-10-batches-py" / name).read_bytes(), encoding="bytes")
    pixels = part[b"data"][: args.images].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return pixels.astype("float32") / 255, np.array(part[b"labels"][: args.images])


class Enlarged(Dataset):
    """Images are enlarged when a batch is made, beside the training."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels.astype("int32")

    def __len__(self):
        return len(self.images) // BATCH_SIZE * BATCH_SIZE

    def __getitem__(self, index):
        image = keras.ops.image.resize(self.images[index], (SIZE, SIZE))
        return keras.ops.convert_to_numpy(image), self.labels[index]


train = DataLoader(Enlarged(*read("data_batch_1")), batch_size=BATCH_SIZE, shuffle=True)
test = DataLoader(Enlarged(*read("test_batch")), batch_size=BATCH_SIZE)

with drivetrain.keras.scope():
    model = get_model()
    model.summary()
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="sparse_categorical_crossentropy",
        steps_per_execution=len(train),
    )
    model.fit(train, epochs=args.epochs, shuffle=False)

    model.compile(metrics=["accuracy"], loss="sparse_categorical_crossentropy", steps_per_execution=len(test))
    loss, accuracy = model.evaluate(test)
    print(f"test loss: {round(loss, 4)}, test acc: {round(accuracy, 4)}")
