"""`python -m drivetrain`."""

from drivetrain.cli.main import run_process

if __name__ == "__main__":
    raise SystemExit(run_process())
