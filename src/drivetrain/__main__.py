"""`python -m drivetrain`."""

from drivetrain.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
