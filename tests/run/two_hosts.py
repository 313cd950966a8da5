"""Two hosts on one machine: network namespaces that only a cable joins."""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

ADDRESSES = ("10.77.0.1", "10.77.0.2")

_UNSHARE = ["unshare", "--user", "--map-root-user", "--net"]
_CABLE = "ip link set lo up && ip link add first type veth peer name second"
# The second end of the cable can move only once the other host has a network of its own, and with that host
# the whole cable goes, so it waits until the bytes are counted.
_HOSTS = f"""
{_CABLE}
ip address add {ADDRESSES[0]}/24 dev first
ip link set first up
unshare --net sh -ec '
    until ip link set second up 2>/dev/null; do sleep 0.05; done
    ip link set lo up
    ip address add {ADDRESSES[1]}/24 dev second
    status=0
    eval "$SECOND" >"$FOLDER/output-1" 2>&1 || status=$?
    until [ -e "$FOLDER/traffic" ]; do sleep 0.05; done
    exit $status' &
second=$!
while [ "$(readlink /proc/$second/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link set second netns $second
status=0
eval "$FIRST" >"$FOLDER/output-0" 2>&1 || status=$?
# The second host ends once the file is there, and takes the cable with it: it must be whole by then.
cat /proc/net/dev >"$FOLDER/traffic.part"
mv "$FOLDER/traffic.part" "$FOLDER/traffic"
wait $second
exit $status
"""


def why_not() -> str | None:
    """Why this machine cannot pretend to be two; none where it can."""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            return f"there is no program {tool}"
    tried = subprocess.run([*_UNSHARE, "sh", "-ec", _CABLE], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespaces: {tried.stderr.strip()}"


def run_on_two_hosts(
    first: Sequence[str], second: Sequence[str], *, folder: Path, timeout_s: float
) -> tuple[int, int]:
    """The exit status, and the bytes that came to the first host; `output-0` and -1 are what was printed."""
    commands = {"FIRST": shlex.join(first), "SECOND": shlex.join(second), "FOLDER": str(folder)}
    # Whoever has joined ranks in this process has chosen an interface for it, which does not lead there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOO_")}
    process = subprocess.Popen(
        [*_UNSHARE, "sh", "-ec", _HOSTS], env={**environment, **commands}, start_new_session=True
    )
    try:
        status = process.wait(timeout=timeout_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return status, _received_bytes(folder / "traffic")


def _received_bytes(path: Path) -> int:
    lines = [line.split() for line in path.read_text().splitlines()]
    return next(int(words[1]) for words in lines if words[0] == "first:")
