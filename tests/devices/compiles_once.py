"""Compiles a function as a process of its own and says whether it runs compiled, and the library's path.

A library that is named is cut short after the folder has been looked through, as a process that is killed
meanwhile would leave it.
"""

import os
import sys

import torch
from torch import Tensor
from torch._inductor import config

from drivetrain.devices.code_folder import use_code_folder
from drivetrain.devices.compilation import Compilable, keep_compiled_code


def _twice_plus_one(numbers: Tensor) -> Tensor:
    return numbers * 2 + 1


def main() -> None:
    config.compile_threads = 1
    keep_compiled_code()
    before = set(use_code_folder().rglob("*.main.so"))
    for path in sys.argv[1:]:
        os.truncate(path, 0)
    part = Compilable(_twice_plus_one, what="it").switched_on()
    numbers = torch.arange(4.0)
    assert (part(numbers) == 2 * numbers + 1).all()
    print(part.problem or "compiled", *(set(use_code_folder().rglob("*.main.so")) - before), sep="\n")


if __name__ == "__main__":
    main()
