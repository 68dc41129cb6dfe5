"""The race: an entry is a config, with stages of its own if it likes, that is to learn the digits first.

`judge` runs an entry on a track (`minips.racing.tracks`) in virtual time, once for each of five seeds, until 90 % of
the held-out digits are right. Two numbers count: the virtual seconds, and the bytes. Both are the same everywhere.

Who does what: this process reads the rows, simulates, counts bytes and right rows, and writes the verdict. The entry's
own code runs in sandboxes (`minips.sandbox`), one process for each worker and server. There it gets the arrays that a
stage gets, and nothing else: it cannot reach a row, a clock or the verdict, and two parties share only what they send.
`minips.racing.rules` checks an entry's syntax tree before it runs. docs/race.md says what this cannot promise.
"""

from minips.racing.tracks import TRACKS as TRACKS
from minips.racing.tracks import Track as Track
from minips.racing.verdicts import Verdict as Verdict
from minips.racing.verdicts import judge as judge
