"""The files of a suite, and what it prints."""

import json
from pathlib import Path

from drivetrain.bench.suite.case import SuiteSettings
from drivetrain.bench.suite.folder import SuiteFolder
from drivetrain.bench.suite.result_files import suite_lines, suite_result, write_suite
from drivetrain.bench.suite.run import run_suite
from drivetrain.bench.suite.speedups import compare_suites, read_suite
from drivetrain.console.reporter import Reporter
from tests.bench.suite.fake_cases import FakeProcesses, fake_cases


def test_what_is_written_can_be_read_and_compared(tmp_path: Path) -> None:
    settings, folder = SuiteSettings(), SuiteFolder(tmp_path / "suite")
    with Reporter(quiet=True) as reporter:
        ended = run_suite(
            fake_cases(variants=("eager", "captured")),
            settings,
            folder,
            reporter=reporter,
            most_s=1.0,
            measure=FakeProcesses(),
        )
    result, found = suite_result(ended, settings, command="drivetrain bench suite", epoch_images=1000)
    files = write_suite(result, ended, folder.path)
    assert [path.name for path in files] == ["suite.json", "suite.csv"]
    assert read_suite(str(folder.path)) == json.loads(files[0].read_text())
    (pair,) = compare_suites([str(folder.path)])
    assert pair.title == "cuda captured / cuda eager"
    assert {each.speedup for each in pair.speedups} == {1.0}
    assert "resnet18_32" in {each.label for each in pair.speedups}
    lines = suite_lines(result, found)
    assert sum("failed" in line for line in lines) == 2 * 8
    assert "train broken batch 32, cuda eager: failed: it is broken" in lines
    assert any(line.startswith("total, cuda eager: 0:39 to train 4 of 6 cases") for line in lines)
