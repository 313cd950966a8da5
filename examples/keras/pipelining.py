"""faster.py in two pipeline stages: every batch is cut into 8 micro-batches, which follow each other."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras

import drivetrain.keras
from data import data_dir_argument, input_shape, num_classes, prepare_data

batch_size = 64
gradient_accumulation_steps_per_replica = 8


def make_divisible(number):
    return number - number % (batch_size * gradient_accumulation_steps_per_replica)


def model_fn():
    input_layer = keras.Input(shape=input_shape)
    with drivetrain.keras.PipelineStage(0):
        x = keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(input_layer)
        x = keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
        x = keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
    with drivetrain.keras.PipelineStage(1):
        x = keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
        x = keras.layers.Flatten()(x)
        x = keras.layers.Dropout(0.5)(x)
        x = keras.layers.Dense(num_classes, activation="softmax")(x)
    return input_layer, x


print("Keras MNIST example, with pipelining")
(x_train, y_train), (x_test, y_test) = prepare_data(data_dir_argument(), make_divisible)

with drivetrain.keras.scope():
    model = keras.Model(*model_fn())
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=gradient_accumulation_steps_per_replica,
        pipeline_schedule=drivetrain.keras.PipelineSchedule.Grouped,
    )
    model.compile(
        "sgd",
        "categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=len(x_train) // batch_size,
    )
    model.summary()

    print("\nTraining")
    model.fit(x_train, y_train, epochs=3, batch_size=batch_size)

    print("\nEvaluation")
    model.compile(
        "sgd",
        "categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=len(x_test) // batch_size,
    )
    model.evaluate(x_test, y_test, batch_size=batch_size)
print("Program ran successfully")
