"""Recognises Keras models, and imports Keras on the torch backend."""

import os
import sys
from types import ModuleType
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure

__all__ = ["BACKEND_VARIABLE", "import_keras", "is_keras_model", "require_torch_backend"]

BACKEND_VARIABLE = "KERAS_BACKEND"
_SET_IT = f'os.environ["{BACKEND_VARIABLE}"] = "torch"'


def is_keras_model(model: object) -> bool:
    """Whether an object is a Keras model, on any backend; imports nothing."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, getattr(keras, "Model", ()))


def require_torch_backend(model: object) -> None:
    """Refuses a Keras model whose tensors are not torch's."""
    keras = sys.modules["keras"]
    if int(keras.__version__.partition(".")[0]) < 3:
        raise BadInputError(
            f"{type(model).__name__} is a model of Keras {keras.__version__}, which has no torch backend; "
            "Keras 3 has one."
        )
    _require_torch(keras)


def import_keras() -> Any:
    """Keras on the torch backend; chooses this backend if no other was asked for."""
    if "keras" not in sys.modules:
        os.environ.setdefault(BACKEND_VARIABLE, "torch")
    try:
        import keras
    except ModuleNotFoundError as error:
        if error.name == "keras":
            raise BadInputError("Keras is not installed; `pip install -e .[keras]` installs it.") from error
        raise BadInputError(
            f"Keras cannot be imported ({describe_failure(error)}); set the environment variable "
            f"{BACKEND_VARIABLE}=torch before keras is imported."
        ) from error
    _require_torch(keras)
    return keras


def _require_torch(keras: ModuleType) -> None:
    backend = keras.backend.backend()
    if backend != "torch":
        raise BadInputError(
            f"Keras runs on its {backend} backend here, but Drivetrain trains Keras models on torch; set the "
            f"environment variable {BACKEND_VARIABLE}=torch, or write {_SET_IT} above the first import of "
            "keras."
        )
