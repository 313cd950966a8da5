"""Runs are found below a folder and nowhere else."""

import json
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

from drivetrain.report.live.find import find_runs, has_outward_link, same_id
from tests.report.live.served import write_run


def _ids(root: Path) -> list[str]:
    return [found.id for found in find_runs(root)]


def test_runs_in_folders_and_folds_under_their_cross_validation(tmp_path: Path) -> None:
    write_run(tmp_path / "b")
    write_run(tmp_path / "team" / "a c")
    for fold in (10, 2):
        write_run(tmp_path / "cells" / f"fold-{fold}")
    write_run(tmp_path / "cells" / "fold-2-copy")
    write_run(tmp_path / "b" / "checkpoints" / "x")
    (tmp_path / "cells" / "crossval.json").write_text(json.dumps({}))
    found = {run.id: run for run in find_runs(tmp_path)}
    assert list(found) == ["b", "cells", "cells%2Ffold-10", "cells%2Ffold-2", "team%2Fa%20c"]
    assert [run.is_job for run in found.values()] == [False, True, False, False, False]
    assert found["cells%2Ffold-2"].parent == "cells"
    assert found["team%2Fa%20c"].parent is None
    assert found["team%2Fa%20c"].name == "team/a c"


def test_the_folder_itself_may_be_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "only")
    (found,) = find_runs(run)
    assert (found.id, found.path) == ("only", run)


def test_an_id_has_one_spelling_whatever_the_name(tmp_path: Path) -> None:
    names = [b"\xff\xfe", b"<script>", b"a%2Fb", "übung".encode()]
    for name in names:
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))
        write_run(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))))
    ids = _ids(tmp_path)
    assert {unquote_to_bytes(name) for name in ids} == set(names)
    assert all(map(str.isascii, ids))
    assert [same_id(run_id) for run_id in ids] == ids
    assert same_id("%75bung") == "ubung"
    assert same_id("../../etc/passwd") not in ids


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    outside = write_run(tmp_path / "outside")
    inside = write_run(root / "inside")
    (root / "out").symlink_to(outside)
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to(root)
    (root / "again").symlink_to(inside)
    (root / "dangling").symlink_to("nowhere")
    assert _ids(root) == ["again", "inside"]


def test_a_run_with_a_link_out_of_the_folder_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run, other = write_run(root / "run"), write_run(root / "other")
    (run / "same.json").symlink_to(run / "plan.json")
    (run / "neighbour.json").symlink_to(other / "plan.json")
    assert not has_outward_link(run, root)
    (run / "predictions").mkdir()
    link = run / "predictions" / "validation.png"
    link.symlink_to("/etc/passwd")
    assert has_outward_link(run, root)
    link.unlink()
    (run / "pictures").symlink_to(other)
    assert has_outward_link(run, root)
