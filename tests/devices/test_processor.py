from pathlib import Path

from drivetrain.devices.processor import boot_id, read_processor

TWO_CORES = """\
processor\t: 0
model name\t: Some Processor @ 2.80GHz
microcode\t: 0x1
flags\t\t: fpu avx512f amx_tile
bugs\t\t: none

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


def test_the_first_core_speaks_for_all(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(TWO_CORES)
    found = read_processor(path)
    assert (found.name, found.microcode) == ("Some Processor @ 2.80GHz", "0x1")
    assert found.features == {"fpu", "avx512f", "amx_tile"}


def test_a_system_without_the_file_still_has_a_processor(tmp_path: Path) -> None:
    found = read_processor(tmp_path / "nothing")
    assert found.name
    assert (found.microcode, found.features) == ("", frozenset())


def test_the_boot_where_the_system_says_it(tmp_path: Path) -> None:
    path = tmp_path / "boot_id"
    assert boot_id(path) == ""
    path.write_text("abc\n")
    assert boot_id(path) == "abc"
