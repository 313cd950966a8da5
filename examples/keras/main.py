"""The steps of the other scripts behind options; without any it is plain Keras."""

import argparse
import os
from contextlib import nullcontext

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras

from data import input_shape, num_classes, prepare_data

NUM_DEVICES = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", help="folder with the four files of MNIST; default: built-in digits")
    parser.add_argument("--use-drivetrain", "--use-ipu", action="store_true", help="train on two devices")
    parser.add_argument(
        "--pipelining", action="store_true", help="two pipeline stages instead of two replicas"
    )
    parser.add_argument(
        "--gradient-accumulation-steps-per-replica",
        "--gradient-accumulation-count",
        type=int,
        default=8,
        help="micro-batches of a batch with --pipelining (default 8)",
    )
    parser.add_argument("--batch-size", type=int, default=80, help="samples per weight update (default 80)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the data (default 3)")
    args = parser.parse_args()
    if args.pipelining and not args.use_drivetrain:
        parser.error("--pipelining needs --use-drivetrain")
    if args.use_drivetrain and args.batch_size % NUM_DEVICES:
        parser.error(f"The batch size must be a multiple of the number of devices ({NUM_DEVICES}).")
    return args


def model_fn(stage):
    input_layer = keras.Input(shape=input_shape)
    with stage(0):
        x = keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(input_layer)
        x = keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
        x = keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
    with stage(1):
        x = keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
        x = keras.layers.Flatten()(x)
        x = keras.layers.Dropout(0.5)(x)
        x = keras.layers.Dense(num_classes, activation="softmax")(x)
    return input_layer, x


def _no_stage(_index):
    return nullcontext()


def choose_parallelism(args):
    """The scope, the context of each stage, and the steps per execution."""
    if not args.use_drivetrain:
        return nullcontext(), _no_stage, 1
    import drivetrain.keras

    if not args.pipelining:
        return drivetrain.keras.scope(replicas=NUM_DEVICES), _no_stage, 20
    count = args.gradient_accumulation_steps_per_replica
    scope = drivetrain.keras.scope(gradient_accumulation=count, schedule="Grouped")
    return scope, drivetrain.keras.stage, count


def main():
    args = parse_arguments()
    scope, stage, steps_per_execution = choose_parallelism(args)

    def make_divisible(number):
        kept = number - number % (args.batch_size * steps_per_execution)
        if kept != number:
            print(f"{number - kept} of {number} samples do not fill {steps_per_execution} batches: left out.")
        return kept

    (x_train, y_train), (x_test, y_test) = prepare_data(args.data_dir, make_divisible)
    with scope:
        model = keras.Model(*model_fn(stage))
        model.compile(
            "sgd",
            "categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=steps_per_execution,
        )
        model.summary()
        print("\nTraining")
        model.fit(x_train, y_train, epochs=args.epochs, batch_size=args.batch_size)
        print("\nEvaluation")
        model.evaluate(x_test, y_test, batch_size=args.batch_size)
    print("Program ran successfully")


if __name__ == "__main__":
    main()
