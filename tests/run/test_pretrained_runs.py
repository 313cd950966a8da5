"""Trainings that start from weights from elsewhere. Libraries and hub are small stand-ins."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drivetrain.core.errors import BadInputError
from drivetrain.models.create import build_model
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.store.checkpoint import load_checkpoint
from drivetrain.store.checkpoint_paths import checkpoint_paths
from drivetrain.store.directory import RunDirectory
from tests.models.libraries.stand_ins import use_stand_ins
from tests.run.small_training import train_small_run

pytestmark = pytest.mark.usefixtures("no_pictures")

# A rate at which no weight moves: what was trained is then what was loaded.
STILL: dict[str, Any] = {
    "model": "timm/resnet4",
    "image_size": 8,
    "learning_rate": 1e-30,
    "max_updates": 2,
    "limit_train_samples": 48,
    "gradient_accumulation_count": 1,
}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of weights in the hub's cache."""
    use_stand_ins(monkeypatch)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "timm--resnet4.a1_in1k"
    folder.mkdir(parents=True)
    model = build_model("timm/resnet4", channels=3, image_size=8, num_classes=1000, seed=4, params={})
    save_file(model.state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def scale_of(run: Path) -> torch.Tensor:
    newest = checkpoint_paths(RunDirectory(run).checkpoints)[0]
    kernel: torch.Tensor = load_checkpoint(newest).model["conv1.weight"]
    return kernel


def test_a_library_s_weights_a_file_and_a_run(published: Path, tmp_path: Path) -> None:
    expected = load_file(published)["conv1.weight"].sum(1, keepdim=True)
    train_small_run(tmp_path / "named", **STILL, pretrained=True)
    train_small_run(tmp_path / "file", **STILL, pretrained=published)
    train_small_run(tmp_path / "run", **STILL, pretrained=tmp_path / "named")
    train_small_run(tmp_path / "fresh", **STILL)
    for name in ("named", "file", "run"):
        assert torch.equal(scale_of(tmp_path / name), expected)
    assert not torch.equal(scale_of(tmp_path / "fresh"), expected)
    assert read_recipe_yaml(tmp_path / "named" / "recipe.yaml")["pretrained"] is True


def test_a_continued_run_needs_the_weights_no_more(published: Path, tmp_path: Path) -> None:
    train_small_run(tmp_path / "run", **STILL, pretrained=True)
    published.unlink()
    longer = {**STILL, "max_updates": 3}
    assert train_small_run(tmp_path / "run", **longer, pretrained=True).updates == 3
    with pytest.raises(BadInputError, match="could not be fetched"):
        train_small_run(tmp_path / "other", **longer, pretrained=True)
    assert not (tmp_path / "other").exists()
    with pytest.raises(BadInputError, match=r"--pretrained is False but the run .* was started with True"):
        train_small_run(tmp_path / "run", **longer)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"foreign": torch.zeros(3)}, "0 of the model's 8 tensors fit; conv1.weight (4x1x3x3) is missing"),
        (None, "cannot be read as safetensors"),
    ],
)
def test_bad_weights_are_refused_before_anything_is_written(
    published: Path, tmp_path: Path, content: dict[str, torch.Tensor] | None, said: str
) -> None:
    path = tmp_path / "other.safetensors"
    if content is None:
        path.write_bytes(published.read_bytes()[:100])
    else:
        save_file(content, path)
    with pytest.raises(BadInputError) as caught:
        train_small_run(tmp_path / "run", **STILL, pretrained=path)
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.ranks
def test_ranks_find_what_their_launcher_fetched(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there" / "timm--resnet4.a1_in1k"
    there.mkdir(parents=True)
    expected = load_file(published)["conv1.weight"].sum(1, keepdim=True)
    published.rename(there / "model.safetensors")
    monkeypatch.setenv("HUB_STAND_IN", str(tmp_path / "there"))
    train_small_run(tmp_path / "run", **{**STILL, "pretrained": True, "replicas": 2})
    assert torch.equal(scale_of(tmp_path / "run"), expected)
    assert published.is_file()
