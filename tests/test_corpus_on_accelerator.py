"""The corpus on a CUDA device: captured updates compute what updates do that run one by one."""

import pytest
import torch

from tests.corpus.modules import CASES
from tests.corpus.registry import Case
from tests.corpus.runs import different, train_case

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]
# Two updates before the recording, then two that are replayed.
_UPDATES = 4
_TRAINABLE = [case for case in CASES.values() if "all" not in case.refused and not case.may_be_refused]


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in _TRAINABLE])
def test_captured_updates_keep_the_meaning_of_a_module(case: Case) -> None:
    """Within rounding, and each from the same state: some of torch's kernels add in any order."""
    expected = train_case(case, updates=_UPDATES, device="cuda", capture="off")
    found = train_case(case, updates=_UPDATES, device="cuda", starts=expected.states)
    assert found.capture == "captured" or ": " in found.capture
    assert different(case, expected, found) == ""


def test_most_of_the_corpus_is_captured() -> None:
    names = ("Plain", "NoGradBlock", "BatchNormPlain", "DropoutLayers", "AttentionPlain", "SpectralNorm")
    found = {name: train_case(CASES[name], updates=_UPDATES, device="cuda").capture for name in names}
    assert set(found.values()) == {"captured"}, found
