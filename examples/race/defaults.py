"""The race's first entry: minips' defaults."""

import minips as ps

config = ps.Config()
