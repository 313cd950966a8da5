"""Device files are read strictly: each fault is one sentence with the option, the key and what works."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.planner.costs import Link
from drivetrain.planner.devices.described_device import described_names, read_device_file

WHOLE = """
name: small
memory_bytes: 8 GB
flops: {float32: 10e12, bfloat16: 20e12}
bytes_per_s: 1e12
efficiency: 0.4
launch_s: 2e-6
host_launch_s: 3e-6
bandwidth_efficiency: 0.8
host_bytes_per_s: 5e9
devices_per_host: 4
hosts: 2
links:
  device: {bandwidth: 100e9, latency: 1e-6}
  host: {bandwidth: 10e9, latency: 0}
"""


def _file(folder: Path, text: str) -> str:
    path = folder / "device.yaml"
    path.write_text(text)
    return str(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    device = read_device_file(_file(tmp_path, WHOLE))
    assert (device.name, device.memory_bytes, device.bytes_per_s) == ("small", 8 * 10**9, 1e12)
    assert device.flops == {"float32": 10e12, "bfloat16": 20e12}
    assert (device.efficiency, device.launch_s, device.kind) == (0.4, 2e-6, "cuda")
    assert (device.host_launch_s, device.bandwidth_efficiency, device.host_bytes_per_s) == (3e-6, 0.8, 5e9)
    assert (device.devices_per_host, device.hosts) == (4, 2)
    assert device.links == {
        "device": Link(bytes_per_s=100e9, latency_s=1e-6),
        "host": Link(bytes_per_s=10e9, latency_s=0.0),
    }


def test_the_described_devices_can_be_read() -> None:
    assert {"a100-80gb", "h200"} <= set(described_names())
    for name in described_names():
        device = read_device_file(name)
        assert device.flops["bfloat16"] > device.flops["float32"]
        assert device.links["device"].bytes_per_s > device.links["host"].bytes_per_s


@pytest.mark.parametrize(
    ("line", "other", "words"),
    [
        ("name: small", "", "name is missing; name: my GPU works"),
        ("memory_bytes: 8 GB", "", "memory_bytes is missing; memory_bytes: 80 GB works"),
        ("memory_bytes: 8 GB", "memory_bytes: much", "memory_bytes: much is not a size of memory"),
        ("bytes_per_s: 1e12", "bytes_per_s: -1", "bytes_per_s: -1 is not a number above 0"),
        ("bytes_per_s: 1e12", "bytes_per_s: .inf", "is not a number above 0"),
        ("bytes_per_s: 1e12", "bytes_per_second: 1e12", "bytes_per_second is not a known key"),
        ("\nefficiency: 0.4", "\nefficiency: 1.5", "efficiency: 1.5 is more than 1"),
        ("\nefficiency: 0.4", "\nefficiency: true", "is not a number above 0"),
        ("\nlaunch_s: 2e-6", "\nlaunch_s: -1e-6", "is not a number of 0 or more"),
        ("hosts: 2", "hosts: 0", "hosts: 0 is not a whole number of 1 or more; hosts: 2 works"),
        ("hosts: 2", "kind: tpu", "is not a kind of device; kind: cuda works"),
        ("flops: {float32: 10e12, bfloat16: 20e12}", "flops: 3", "flops: 3 is not a mapping"),
        ("flops: {float32: 10e12, bfloat16: 20e12}", "flops: {bfloat16: 3}", "flops.float32 is missing"),
        ("flops: {float32: 10e12, bfloat16: 20e12}", "flops: {float32: 0}", "flops.float32: 0 is not"),
        ("latency: 0}", "}", "links.host.latency is missing; latency: 10e-6 works"),
        ("latency: 0}", "latency: 0, speed: 3}", "links.host.speed is not a known key"),
        ("bandwidth: 10e9", "bandwidth: 0", "links.host.bandwidth: 0 is not a number above 0"),
        ("  host:", "  rack:", "links.rack is not a known key; use device, host"),
    ],
)
def test_a_wrong_value_is_refused(line: str, other: str, words: str, tmp_path: Path) -> None:
    assert line in WHOLE
    name = _file(tmp_path, WHOLE.replace(line, other))
    with pytest.raises(BadInputError) as refused:
        read_device_file(name)
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"--device-file {name}")


@pytest.mark.parametrize("text", ["", "- 3", "text"])
def test_a_file_without_keys_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="holds no mapping"):
        read_device_file(_file(tmp_path, text))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInputError, match=r"--device-file h20 is neither a file nor .*a100-80gb, h200"):
        read_device_file("h20")
