import pytest

from drivetrain.devices.cpu_half import ISA_VARIABLE, HalfSupport, Verdict
from drivetrain.devices.processor import Processor
from drivetrain.doctor import half
from drivetrain.doctor.finding import Finding
from drivetrain.doctor.half import check_half_types, check_processor


def _bfloat16(monkeypatch: pytest.MonkeyPatch, *, as_is: Verdict, held: Verdict | None = None) -> Finding:
    monkeypatch.setattr(half, "half_support", lambda kind: HalfSupport(kind=kind, as_is=as_is, held=held))
    return check_half_types()[0]


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    features = frozenset({"avx2", "avx512f", "avx512_bf16", "amx_bf16"})
    found = Processor(name="Some Processor", microcode="", features=features)
    monkeypatch.setattr(half, "read_processor", lambda: found)
    monkeypatch.delenv(ISA_VARIABLE, raising=False)


def test_what_it_advertises() -> None:
    assert check_processor().sentence == (
        "Some Processor; advertises AVX2, AVX-512, AVX-512 bfloat16, AMX bfloat16."
    )


def test_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _bfloat16(monkeypatch, as_is=Verdict.WORKS)
    assert (found.topic, found.status) == ("CPU bfloat16", "ok")
    assert "AMX) included." in found.sentence
    monkeypatch.setenv(ISA_VARIABLE, "AVX2")
    assert "limited to AVX2" in _bfloat16(monkeypatch, as_is=Verdict.WORKS).sentence


def test_a_forbidden_unit_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _bfloat16(monkeypatch, as_is=Verdict.DIES, held=Verdict.WORKS)
    assert found.status == "ok"
    assert "forbids their use" in found.sentence
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in found.sentence


@pytest.mark.parametrize(
    ("as_is", "words"),
    [
        (Verdict.DIES, "crash with every allowed instruction set"),
        (Verdict.REFUSED, "torch has no bfloat16"),
        (Verdict.UNKNOWN, "could not be tested"),
    ],
)
def test_what_does_not_run(as_is: Verdict, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _bfloat16(monkeypatch, as_is=as_is)
    assert found.status == "note"
    assert words in found.sentence
    assert "--precision 32.32" in found.sentence


def test_what_the_environment_asks_for_may_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "AVX512_CORE_AMX")
    assert "under ONEDNN_MAX_CPU_ISA=AVX512_CORE_AMX" in _bfloat16(monkeypatch, as_is=Verdict.DIES).sentence
