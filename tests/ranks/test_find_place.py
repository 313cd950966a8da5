import subprocess
import sys

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.find_place import expand_counts, expand_hosts, find_place, place_variables
from drivetrain.ranks.rank_place import RankPlace

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "alpha",
    "MASTER_PORT": "29511",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_STEP_NODELIST": "node[07-08]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}


def _found(environ: dict[str, str]) -> RankPlace:
    place = find_place(environ)
    assert place is not None
    return place


def test_a_process_alone_has_no_place() -> None:
    assert find_place({}) is None
    assert find_place({"MASTER_ADDR": "alpha", "MASTER_PORT": "29500"}) is None


def test_torchrun() -> None:
    assert _found(TORCHRUN) == RankPlace(
        rank=3,
        world_size=4,
        local_rank=1,
        local_world_size=2,
        address="alpha",
        port=29511,
        launcher="torchrun",
    )


def test_torchrun_tells_its_restarts_and_whether_it_serves_the_meeting_place() -> None:
    place = _found({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert (place.restart, place.launcher_serves) == (2, True)
    assert not _found({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}).launcher_serves


@pytest.mark.parametrize("name", sorted(set(TORCHRUN) - {"RANK"}))
def test_every_variable_of_torchrun_is_needed(name: str) -> None:
    environ = {key: value for key, value in TORCHRUN.items() if key != name}
    with pytest.raises(BadInputError, match=f"RANK is set but {name} is not"):
        find_place(environ)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "LOCAL_RANK"])
def test_half_of_torchrun_without_a_rank_is_an_error(name: str) -> None:
    with pytest.raises(BadInputError, match=f"{name} is set but RANK is not"):
        find_place({name: "1"})
    # Scripts for SLURM often export such names themselves, which harms nobody.
    assert _found({**SLURM, name: "1"}).launcher == "slurm"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"RANK": "4"}, "rank 4 of 4"),
        ({"LOCAL_RANK": "2"}, "local rank 2 of 2"),
        ({"LOCAL_WORLD_SIZE": "8"}, "8 ranks on this host, but 4"),
        ({"MASTER_PORT": "70000"}, "port 70000"),
        ({"RANK": "-1"}, "RANK is '-1', not a whole number"),
        ({"WORLD_SIZE": "four"}, "WORLD_SIZE is 'four', not a whole number"),
    ],
)
def test_contradictions_are_one_sentence(changed: dict[str, str], words: str) -> None:
    with pytest.raises(BadInputError, match=words) as caught:
        find_place({**TORCHRUN, **changed})
    assert "\n" not in str(caught.value)


def test_slurm_step() -> None:
    place = _found(SLURM)
    assert (place.rank, place.world_size) == (2, 3)
    assert (place.local_rank, place.local_world_size) == (0, 1)
    assert (place.address, place.launcher) == ("node07", "slurm")


def test_slurm_port_follows_the_job_and_its_step() -> None:
    port = _found(SLURM).port
    assert 1024 < port < 32768
    assert _found({**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}).port == port
    assert _found({**SLURM, "SLURM_JOB_ID": "4712"}).port != port
    assert _found({**SLURM, "SLURM_STEP_ID": "1"}).port != port
    assert _found({**SLURM, "MASTER_PORT": "29500", "MASTER_ADDR": "beta"}).port == 29500
    assert _found({**SLURM, "MASTER_ADDR": "beta"}).address == "beta"


def test_slurm_tasks_of_a_node_as_asked_where_the_step_does_not_list_them() -> None:
    environ = {key: value for key, value in SLURM.items() if key != "SLURM_STEP_TASKS_PER_NODE"}
    assert _found({**environ, "SLURM_NTASKS_PER_NODE": "2"}).local_world_size == 2
    with pytest.raises(BadInputError, match="SLURM_NTASKS_PER_NODE is not set"):
        find_place(environ)


@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_STEP_ID": "4294967291"},
        {"SLURM_STEP_ID": "4294967290"},
        {"SLURM_STEP_ID": "batch"},
        {"SLURM_NTASKS": "1"},
        {"SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_slurm_batch_scripts_interactive_shells_and_single_tasks_are_no_ranks(
    changed: dict[str, str],
) -> None:
    assert find_place({**SLURM, **changed}) is None


def test_slurm_without_a_step_is_no_rank() -> None:
    assert find_place({key: value for key, value in SLURM.items() if key != "SLURM_STEP_ID"}) is None


def test_torchrun_inside_slurm_is_torchrun() -> None:
    assert _found({**SLURM, **TORCHRUN}).launcher == "torchrun"


def test_open_mpi_on_one_host() -> None:
    place = _found(OPEN_MPI)
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size) == (1, 2, 1, 2)
    assert (place.address, place.launcher) == ("127.0.0.1", "mpi")
    assert place.port == _found({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0"}).port
    assert place.port != _found({**OPEN_MPI, "PMIX_NAMESPACE": "prterun-17"}).port


def test_mpi_on_several_hosts_needs_an_address() -> None:
    with pytest.raises(BadInputError, match="export MASTER_ADDR"):
        find_place(PMI)
    place = _found({**PMI, "MASTER_ADDR": "alpha", "MASTER_PORT": "29500"})
    assert (place.address, place.port, place.local_rank, place.local_world_size) == ("alpha", 29500, 0, 1)


def test_mpi_with_one_rank_is_alone() -> None:
    assert find_place({**PMI, "PMI_RANK": "0", "PMI_SIZE": "1"}) is None


def test_mpi_that_does_not_tell_the_local_rank_is_an_error() -> None:
    with pytest.raises(BadInputError, match="MPI_LOCALRANKID is not set"):
        find_place({"PMI_RANK": "1", "PMI_SIZE": "2"})


@pytest.mark.parametrize("listen_fd", [None, 7])
def test_the_own_launcher_is_found_as_it_wrote(listen_fd: int | None) -> None:
    place = RankPlace(
        rank=1,
        world_size=2,
        local_rank=1,
        local_world_size=2,
        address="127.0.0.1",
        port=4000,
        launcher="drivetrain",
        restart=3,
        listen_fd=listen_fd,
    )
    assert find_place(place_variables(place)) == place


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("alpha", ["alpha"]),
        ("alpha,beta", ["alpha", "beta"]),
        ("node[01-03,7]", ["node01", "node02", "node03", "node7"]),
        ("a-b[9-11],c", ["a-b9", "a-b10", "a-b11", "c"]),
        ("r[1-2]n[05-06].net", ["r1n05.net", "r1n06.net", "r2n05.net", "r2n06.net"]),
    ],
)
def test_host_lists(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "node[", "node[a-b]", "node[3-1]", "node]", "a,,b"])
def test_host_lists_that_are_none(text: str) -> None:
    with pytest.raises(BadInputError, match="not a list in the format of SLURM"):
        expand_hosts(text)


def test_task_counts() -> None:
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]
    assert expand_counts("4") == [4]
    with pytest.raises(BadInputError, match="not a list in the format of SLURM"):
        expand_counts("2(y3)")


def test_finding_a_place_imports_no_torch() -> None:
    code = "import sys, drivetrain.ranks.launch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
