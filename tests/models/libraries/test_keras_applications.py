"""Networks of keras.applications by name; skipped where Keras is not installed."""

import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import create_model
from drivetrain.models.libraries.keras_applications import KerasApplications
from tests.keras_models import real_keras


def test_a_network_has_the_weights_that_keras_counts_and_returns_logits() -> None:
    real_keras()
    model = create_model("keras/MobileNetV3Small", num_classes=10, image_size=32)
    # Of 1,540,218 in all, 12,112 are moving statistics.
    assert sum(weight.numel() for weight in model.parameters()) == 1_528_106
    assert model.eval()(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert "log_probabilities" not in dict(model.named_children())
    again = create_model("keras/MobileNetV3Small", num_classes=10, image_size=32)
    pairs = zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    real_keras()
    with pytest.raises(BadInputError, match=r"keras/ResNet51 is not a model .*Did you mean keras/ResNet50"):
        create_model("keras/ResNet51")


def test_facts_follow_the_family() -> None:
    real_keras()
    library = KerasApplications()
    assert library.facts("EfficientNetB3", params={}).image_size == 300
    assert library.facts("Xception", params={}).min_image_size == 71
    assert library.facts("MobileNetV2", params={}).mean == (0.5, 0.5, 0.5)
    assert library.facts("DenseNet121", params={}).mean == (0.485, 0.456, 0.406)
    with pytest.raises(BadInputError, match="classes does not belong in --model-params"):
        library.facts("VGG16", params={"classes": 3})
