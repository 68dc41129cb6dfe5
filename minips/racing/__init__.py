"""The race: an entry, which is a config and perhaps stages of its own, trains on the digits in virtual time.

`judge` runs an entry on a track (`minips.racing.tracks`), once for each of five seeds, until 90 % of the held-out
digits are right. Two numbers count: the virtual seconds, and the bytes. Both are the same on every machine.

The judge's process reads the rows, simulates, counts bytes and right rows, and writes the verdict. The entry's own code
runs in sandboxes (`minips.sandbox`), one process for each worker and server. There a stage gets its arguments, and
nothing else: no row, no virtual time and no verdict. Two parties share only what they send.
`minips.racing.rules` checks an entry's syntax tree before it runs. docs/race.md says what this cannot promise.
"""

from minips.racing.tracks import TRACKS as TRACKS
from minips.racing.tracks import Track as Track
from minips.racing.verdicts import Verdict as Verdict
from minips.racing.verdicts import judge as judge
