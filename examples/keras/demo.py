"""Plain Keras: a small network learns MNIST, on the torch backend. Drivetrain is not needed."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras

from data import data_dir_argument, input_shape, num_classes, prepare_data

batch_size = 64


def model_fn():
    input_layer = keras.Input(shape=input_shape)
    x = keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(input_layer)
    x = keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
    x = keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
    x = keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dropout(0.5)(x)
    x = keras.layers.Dense(num_classes, activation="softmax")(x)
    return input_layer, x


print("Keras MNIST example, plain Keras")
(x_train, y_train), (x_test, y_test) = prepare_data(data_dir_argument())

model = keras.Model(*model_fn())
model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"])
model.summary()

print("\nTraining")
model.fit(x_train, y_train, epochs=3, batch_size=batch_size)

print("\nEvaluation")
model.evaluate(x_test, y_test, batch_size=batch_size)
print("Program ran successfully")
