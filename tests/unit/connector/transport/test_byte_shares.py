"""Distribution of bytes to ranges."""

from __future__ import annotations

from pyspark_rocketpy.transport.byte_shares import Measured, shares


def range_of(sizes: list[int], physical_offset: int, count_left: int = 0) -> Measured:
    return Measured(sum(sizes), len(sizes), count_left, next(iter(sizes), 0), physical_offset)


def test_k04_first_messages_are_granted_by_age_and_the_rest_by_bytes() -> None:
    ranges = [range_of([100] * 600, 0), range_of([200] * 100, 60_000), Measured()]
    assert shares(ranges, 8_300) == [100 + 8_000 * 599 // 797, 200 + 8_000 * 198 // 797, 0]


def test_k04_the_oldest_message_is_granted_though_it_does_not_fit() -> None:
    ranges = [range_of([100] * 600, 1_000), range_of([500, 500], 0)]
    assert shares(ranges, 1) == [0, 500]
    assert shares(ranges, 599) == [0, 599]
    assert shares(ranges, 600) == [100, 500]


def test_k04_ranges_without_bytes_share_nothing() -> None:
    assert shares([Measured(), Measured(0, 5)], 10) == [0, 0]


def test_k04_what_was_not_measured_is_taken_to_be_like_the_rest() -> None:
    assert range_of([100] * 4, 0, count_left=6).bytes_estimated == 1_000
    assert Measured(0, 0, 3).bytes_estimated == 0
    # Each is estimated to have half of the bytes.
    assert shares([range_of([10] * 10, 0, 90), range_of([10] * 100, 9)], 400) == [200, 200]


def test_k04_parts_of_a_range_join_to_what_was_measured_at_once() -> None:
    sizes = [0, 0, 30, 10, 50]
    whole = Measured(90, 5, 7, 30, 123)
    for place in range(len(sizes) + 1):
        front, behind = sizes[:place], sizes[place:]
        firsts = (30, 123) if sum(front) else (0, 0)
        one = Measured(sum(front), len(front), len(behind) + 7, *firsts)
        firsts = (behind[0] or 30, 123) if sum(behind) else (0, 0)
        assert one.joined(Measured(sum(behind), len(behind), 7, *firsts)) == whole
