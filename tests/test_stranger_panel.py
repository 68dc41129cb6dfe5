"""The panel of the lesson "Open a stranger's bytes", which damages one byte of a message."""

from typing import Any

import pytest

from minips_course.given_server import Server
from minips_course.stranger.panel import LONGEST, OUTCOMES, READERS, VALUE_BYTES, Damage, Damaged, messages, table


@pytest.mark.parametrize("reader", READERS)
def test_a_byte_of_the_values_is_loaded_and_the_byte_that_is_there_is_no_damage(reader: str) -> None:
    panel = Damage(Server, reader=reader)
    data = panel.messages[reader].data
    last = panel.find(Damaged(reader, LONGEST - 1, data[-1] ^ 1))
    assert (last.place, last.part, last.told) == (len(data) - 1, "values", ("loaded", ""))
    same = panel.find(Damaged(reader, 1, data[1]))
    assert same.part == "header"
    assert "the byte that was there before" in panel.words(same)
    assert all(did in OUTCOMES for row in same.rows.values() for did in row)


def test_the_longest_message_sets_the_slider_and_all_end_with_the_same_values() -> None:
    made = messages(Server)
    assert [*made] == [*READERS]
    assert max(len(one.data) for one in made.values()) == LONGEST
    assert len({one.data[-VALUE_BYTES:] for one in made.values()}) == 1


def test_other_errors_are_told_apart_from_a_value_error() -> None:
    class Odd:
        pack = Server.pack

        @staticmethod
        def unpack(data: bytes) -> Any:
            raise KeyError("no such name")

    outcome, words = messages(Odd)["your own"].told(0, 0)
    assert (outcome, words) == ("another error", "KeyError: 'no such name'")
    assert messages(Server)["minips"].told(3, 255)[0] == "ValueError"


def test_the_table_has_a_line_for_each_row() -> None:
    lines = table({("minips", "header"): {"ValueError": 2, "another error": 0, "loaded": 1_000}}).splitlines()
    assert lines[1].split() == ["minips", "header", "1,002", "2", "0", "1,000"]
