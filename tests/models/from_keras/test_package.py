"""Other backends and a missing Keras, with a small stand-in for the package: what is needed is said."""

import sys
from types import SimpleNamespace

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.package import import_keras, is_keras_model, require_torch_backend


class _Model:
    pass


def stand_in(*, backend: str, version: str = "3.15.1") -> SimpleNamespace:
    return SimpleNamespace(
        Model=_Model, __version__=version, backend=SimpleNamespace(backend=lambda: backend)
    )


def test_only_models_of_keras_are_taken_for_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", stand_in(backend="torch"))
    assert is_keras_model(_Model())
    assert not is_keras_model(object())
    monkeypatch.delitem(sys.modules, "keras")
    assert not is_keras_model(_Model())


def test_another_backend_is_refused_with_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", stand_in(backend="jax"))
    with pytest.raises(BadInputError, match=r"its jax backend here.* KERAS_BACKEND=torch"):
        require_torch_backend(_Model())
    with pytest.raises(BadInputError, match="KERAS_BACKEND=torch"):
        import_keras()


def test_an_old_keras_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", stand_in(backend="tensorflow", version="2.15.0"))
    with pytest.raises(BadInputError, match=r"Keras 2.15.0, which has no torch backend"):
        require_torch_backend(_Model())


def test_a_missing_keras_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(BadInputError, match=r"Keras is not installed; `pip install -e .\[keras\]`"):
        import_keras()
