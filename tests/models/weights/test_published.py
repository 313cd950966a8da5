"""The weights that libraries publish, from their caches. Libraries and hub are small stand-ins."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.models.create import build_model
from drivetrain.models.weights.published import fetch_published, load_published
from tests.models.libraries.stand_ins import use_stand_ins


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty caches, and no network."""
    use_stand_ins(monkeypatch)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("drivetrain.models.weights.origins._SIZE_TIMEOUT_S", 0.01)


def build(name: str, *, task: TaskName = "classification", **shape: int) -> nn.Module:
    sizes: dict[str, Any] = {"channels": 3, "image_size": 16, "num_classes": 4, "seed": 0, **shape}
    return build_model(name, params={}, task=task, **sizes)


def load(
    model: nn.Module, name: str, *, task: TaskName = "classification", image_size: int = 16
) -> list[str]:
    return load_published(model, name=name, image_size=image_size, task=task, params={})


def fetch(name: str, params: Mapping[str, Any] | None = None) -> list[str]:
    said: list[str] = []
    fetch_published(name, params=params or {}, say=said.append)
    return said


def into_hub(tmp_path: Path, repository: str, state: dict[str, Tensor]) -> None:
    folder = tmp_path / "hub" / repository
    folder.mkdir(parents=True)
    save_file(state, folder / "model.safetensors")


def into_torch(tmp_path: Path, name: str, state: dict[str, Tensor]) -> None:
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(state, folder / name)


def equal(model: nn.Module, state: dict[str, Tensor], *, besides: str) -> bool:
    own = model.state_dict()
    return all(torch.equal(own[name], state[name]) for name in state if not name.startswith(besides))


def test_timm_by_the_hub_s_cache(tmp_path: Path) -> None:
    state = build("timm/resnet4", num_classes=1000, seed=9).state_dict()
    into_hub(tmp_path, "timm--resnet4.a1_in1k", state)
    assert fetch("timm/resnet4") == [
        "weights of timm/resnet4: timm/resnet4.a1_in1k of the Hugging Face hub, from the local cache"
    ]
    model = build("timm/resnet4")
    assert load(model, "timm/resnet4") == [
        "--pretrained (timm/resnet4) has 1000 classes, but the model has 4: fc starts from newly initialised "
        "weights."
    ]
    assert equal(model, state, besides="fc")
    assert not equal(build("timm/resnet4"), state, besides="fc")


def test_timm_resamples_for_the_images(tmp_path: Path) -> None:
    state = build("timm/vit_small", num_classes=1000).state_dict()
    state["pos_embed"] = torch.randn(state["pos_embed"].shape)
    into_torch(tmp_path, "vit_small.pth", {"state_dict": state})  # type: ignore[dict-item]
    model = build("timm/vit_small", image_size=32)
    load(model, "timm/vit_small", image_size=32)
    expected = nn.functional.interpolate(state["pos_embed"], size=(8, 8), mode="bicubic")
    assert torch.equal(model.get_parameter("pos_embed"), expected)


def test_torchvision_by_torch_s_folder_for_grey_images(tmp_path: Path) -> None:
    state = build("torchvision/resnet4", seed=9).state_dict()
    into_torch(tmp_path, "file.pth", state)
    model = build("torchvision/resnet4", channels=1)
    (note,) = load(model, "torchvision/resnet4")
    assert "summed over the channels" in note
    assert torch.equal(model.get_parameter("conv1.weight"), state["conv1.weight"].sum(1, keepdim=True))
    assert equal(model, state, besides="conv1")


def test_smp_fills_the_encoder_only(tmp_path: Path) -> None:
    state = build("smp/unet:resnet4", task="segmentation", seed=9).state_dict()
    encoder = {name.removeprefix("encoder."): state[name] for name in state if name.startswith("encoder.")}
    into_hub(tmp_path, "smp-hub--resnet4/12ab", encoder)
    model = build("smp/unet:resnet4", task="segmentation")
    assert load(model, "smp/unet:resnet4", task="segmentation") == [
        "--pretrained (smp/unet:resnet4) has no weights for the head: decoder and segmentation_head start "
        "from newly initialised weights."
    ]
    assert equal(model, {name: state[name] for name in state if name.startswith("encoder.")}, besides="none")


@pytest.mark.parametrize("holds_head", [True, False])
def test_transformers_by_a_folder(tmp_path: Path, holds_head: bool) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    config = {"model_type": "vit", "num_labels": 7, "image_size": 16}
    (folder / "config.json").write_text(json.dumps(config))
    state = build(f"hf/{folder}", num_classes=7, seed=9).state_dict()
    kept = {name: value for name, value in state.items() if holds_head or not name.startswith("classifier")}
    torch.save(kept, folder / "pytorch_model.bin")
    model = build(f"hf/{folder}")
    (note,) = load(model, f"hf/{folder}")
    assert ("has 7 classes, but the model has 4" if holds_head else "has no weights for the head") in note
    assert equal(model, state, besides="classifier")
    assert fetch(f"hf/{folder}") == [f"weights of hf/{folder}: {folder}, from the local cache"]


def test_a_download_is_said_before_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_STAND_IN", str(tmp_path / "there"))
    (tmp_path / "there" / "timm--resnet4.a1_in1k").mkdir(parents=True)
    path = tmp_path / "there" / "timm--resnet4.a1_in1k" / "model.safetensors"
    path.write_bytes(bytes(2_400_000))
    line = "downloading the weights of timm/resnet4 from timm/resnet4.a1_in1k of the Hugging Face hub (2 MB)"
    assert fetch("timm/resnet4") == [line]
    assert fetch("timm/resnet4") != [line]


def test_without_a_network() -> None:
    with pytest.raises(BadInputError) as caught:
        fetch("timm/resnet4")
    assert str(caught.value) == (
        "--pretrained: the weights of timm/resnet4 could not be fetched from timm/resnet4.a1_in1k of "
        "the Hugging Face hub (it cannot be reached from here); run `hf download timm/resnet4.a1_in1k` "
        "where there is a network, and copy that cache (HF_HOME), or give the file as --pretrained FILE."
    )
    with pytest.raises(BadInputError, match=r"could not be fetched .*\(it is not in the local cache\)"):
        load(build("timm/resnet4"), "timm/resnet4")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("timm/resnet8", "timm publishes no weights of resnet8"),
        ("smp/unet:inceptionv4", "smp publishes no weights of the encoder inceptionv4"),
        ("hf/vit", "hf/vit is a type of network, which has no weights of its own"),
        ("torchvision/googlenet", "--model-params '{transform_input: true}'; add that."),
    ],
)
def test_what_is_not_published(name: str, part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        fetch(name)
    assert part in str(caught.value)


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.catalogue.libraries.find_spec", lambda _: None)
    with pytest.raises(BadInputError, match=r"needs the package timm, which is not installed"):
        fetch("timm/resnet4")
