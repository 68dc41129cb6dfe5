"""``python -m minips`` is the command ``minips``."""

from minips.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
