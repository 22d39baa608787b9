"""The contract of an `AuditLog` as tests, for every log. Needs `pytest`.

::

    class TestMyLog(AuditLogContract):
        @pytest.fixture
        def open_log(self, tmp_path):
            return lambda: MyLog(tmp_path / "my.db")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Barrier

import pytest
from msgspec import structs

from cmbs.ledger import GENESIS, Head, StoredEntry
from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.spi import Append, AuditLog, Opening, SessionState, StaleHead, opening_of, stream_heads_of
from cmbs.spi.audit_log import find_hashes, find_keys
from cmbs.testing.fakes.threads import Beside, run_together
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from cmbs.testing.streams import continuing, space_stream, stream

OpenLog = Callable[[], AuditLog]
Change = Callable[[Append], Append]

STALE: dict[str, Change] = {
    "a seq that was used": lambda item: structs.replace(item, seq=item.seq - 1),
    "a seq too far": lambda item: structs.replace(item, seq=item.seq + 1),
    "the previous hash of a beginning": lambda item: structs.replace(item, prev_event_hash=GENESIS),
    "another previous hash": lambda item: structs.replace(item, prev_event_hash=bytes(range(32))),
    "an observation that was recorded": lambda item: structs.replace(item, unique_key=("source", "observation 1")),
    "a stream that is not there": lambda item: structs.replace(item, stream_id="unknown"),
}
_THREADS = 4
_EACH = 10
_MANY = 40
_ALL_KEYS = (-(2**63), 2**63 - 1)
# How long a writer that must wait is given to show that it does not. One that waits uses all of it.
_PATIENCE_SECONDS = 0.1


class AuditLogContract:
    """Subclass it as `Test…` and supply the fixture `open_log`: a function that opens the log.

    The log is empty at the start of each test. Each call of the function gives a handle of its own on the same data, as
    another process would have it; where all is in one object, that object. What was opened is closed after the test.
    """

    @pytest.fixture
    def opened(self, open_log: OpenLog) -> Iterator[OpenLog]:
        """As `open_log`, and closes what was opened."""
        with ExitStack() as stack:

            def open_and_close() -> AuditLog:
                log = open_log()
                stack.callback(log.close)
                return log

            yield open_and_close

    @pytest.fixture
    def log(self, opened: OpenLog) -> AuditLog:
        """An empty log."""
        return opened()

    # --- appending and reading ---

    def test_an_unknown_stream_has_nothing(self, log: AuditLog) -> None:
        """Absence is no error."""
        assert isinstance(log, AuditLog)
        assert log.blocking in (True, False)
        assert (log.read("unknown"), log.head("unknown"), log.sessions(None, 10)) == ([], None, [])
        assert log.hashes("unknown") == []
        assert (log.checkpoint("unknown"), log.intent("unknown"), log.open_intents(10)) == (None, None, [])

    def test_what_is_appended_comes_back_byte_for_byte_and_in_order(self, log: AuditLog) -> None:
        """Alone, and in groups of several streams."""
        first, second = stream(1), stream(2)
        log.append([first[0]])
        log.append([second[0], first[1], second[1]])
        log.append([first[2]])
        assert log.read(first[0].stream_id) == [item.entry for item in first]
        assert log.read(second[0].stream_id) == [item.entry for item in second[:2]]
        assert log.head(first[0].stream_id) == Head(2, first[2].entry.event_hash)
        assert log.head(second[0].stream_id) == Head(1, second[1].entry.event_hash)

    def test_reading_begins_beyond_a_seq_and_ends_at_a_limit(self, log: AuditLog) -> None:
        """`after` and `limit`."""
        items = stream(events=5)
        log.append(items)
        session_id, entries = items[0].stream_id, [item.entry for item in items]
        assert [log.read(session_id, after) for after in (-1, 0, 3)] == [entries, entries[1:], entries[4:]]
        assert log.read(session_id, 0, 2) == entries[1:3]
        assert log.read(session_id, 3, 9) == entries[4:]
        assert (log.read(session_id, 4), log.read(session_id, 99), log.read(session_id, limit=0)) == ([], [], [])

    def test_reading_ends_with_the_entry_that_has_the_bytes_that_are_wanted(self, log: AuditLog) -> None:
        """`max_bytes`, with `limit` and without."""
        items = stream(events=5)
        log.append(items)
        session_id, entries = items[0].stream_id, [item.entry for item in items]
        sizes = [len(entry.raw) for entry in entries]
        for count in range(1, 5):
            whole = sum(sizes[:count])
            assert log.read(session_id, max_bytes=whole) == entries[:count]
            assert log.read(session_id, max_bytes=whole - 1) == entries[:count]
            assert log.read(session_id, max_bytes=whole + 1) == entries[: count + 1]
        assert log.read(session_id, 1, 2, sum(sizes)) == entries[2:4]
        assert log.read(session_id, 1, 2, 1) == entries[2:3]
        assert (log.read(session_id, 4, max_bytes=1), log.read(session_id, limit=0, max_bytes=9)) == ([], [])

    def test_hashes_are_those_of_the_entries_that_are_read(self, log: AuditLog) -> None:
        """The same places, the hashes alone."""
        items = stream(events=5)
        log.append(items)
        session_id = items[0].stream_id
        for after, limit in ((-1, None), (1, None), (0, 2), (3, 9), (99, None), (-1, 0)):
            assert log.hashes(session_id, after, limit) == [
                entry.event_hash for entry in log.read(session_id, after, limit)
            ]

    def test_an_append_of_nothing_is_nothing(self, log: AuditLog) -> None:
        """No entries, no effect, no error."""
        items = stream()
        log.append(items)
        log.append([])
        assert log.read(items[0].stream_id) == [item.entry for item in items]
        assert len(log.sessions(None, 10)) == 1

    @pytest.mark.parametrize("case", STALE)
    def test_what_does_not_continue_its_stream_is_stale_and_its_group_is_not_written(
        self, log: AuditLog, case: str
    ) -> None:
        """`StaleHead`, alone and anywhere in a group; nothing of the group is there afterwards."""
        declaration, first, second, third = stream(events=4)
        other, stale = stream(7)[0], STALE[case](third)
        log.append([declaration, first, second])
        for group in ([stale], [other, stale], [stale, other]):
            with pytest.raises(StaleHead):
                log.append(group)
            assert log.read(declaration.stream_id) == [item.entry for item in (declaration, first, second)]
            assert (log.head(stale.stream_id) is None) == (stale.stream_id == "unknown")
            assert (log.head(other.stream_id), log.read(other.stream_id)) == (None, [])
            assert [summary.session_id for summary in log.sessions(None, 10)] == [declaration.stream_id]
        log.append([other, third])
        assert log.head(declaration.stream_id) == Head(3, third.entry.event_hash)

    def test_a_large_group_is_written_whole_or_not_at_all(self, log: AuditLog) -> None:
        """However many statements or packets it takes."""
        groups = [stream(space) for space in range(_MANY)]
        appends = [item for group in groups for item in group]
        with pytest.raises(StaleHead):
            log.append([*appends, appends[5]])
        assert log.sessions(None, _MANY) == []
        assert [log.read(group[0].stream_id) for group in groups] == [[]] * _MANY
        log.append(appends)
        assert [log.read(group[0].stream_id) for group in groups] == [[item.entry for item in each] for each in groups]

    def test_a_session_is_declared_once(self, log: AuditLog) -> None:
        """A second declaration is stale, the same one included."""
        declaration = stream()[0]
        other = stream(hypotheses="xyz")[0]
        log.append([declaration])
        for group in ([declaration], [other], [stream(3)[0], declaration]):
            with pytest.raises(StaleHead):
                log.append(group)
        assert log.read(declaration.stream_id) == [declaration.entry]
        assert len(log.sessions(None, 10)) == 1

    def test_a_fork_is_impossible_and_what_is_written_never_changes(self, log: AuditLog) -> None:
        """Whatever is offered for a place that is taken, what stands there stays."""
        items = stream(events=4)
        log.append(items)
        session_id, entries = items[0].stream_id, [item.entry for item in items]
        heads = [Head(item.seq, item.entry.event_hash) for item in items]
        for head in heads[:-1]:
            fork = continuing(head, items[1], "another observation")
            # On the true head by its hash, on a taken place by its seq; and the other way round.
            crossed = structs.replace(fork, prev_event_hash=heads[-1].event_hash)
            leaping = structs.replace(fork, seq=len(items))
            for rival in (fork, crossed, leaping):
                with pytest.raises(StaleHead):
                    log.append([rival])
        assert (log.read(session_id), log.head(session_id)) == (entries, heads[-1])

    def test_an_observation_is_recorded_once_in_a_session(self, log: AuditLog) -> None:
        """In one group or in two; another session may record the same one."""
        declaration, first, second = stream()
        again = structs.replace(second, unique_key=first.unique_key)
        with pytest.raises(StaleHead):
            log.append([declaration, first, again])
        assert log.head(declaration.stream_id) is None
        log.append([declaration, first])
        with pytest.raises(StaleHead):
            log.append([again])
        log.append([second])
        elsewhere = stream(1)
        log.append(elsewhere)
        assert [len(log.read(items[0].stream_id)) for items in ([declaration], elsewhere)] == [3, 3]

    def test_observations_are_told_apart_whatever_their_ids(self, log: AuditLog) -> None:
        """A pair of ids is a pair: not joined, cut or folded."""
        items = stream()
        log.append(items)
        head = Head(2, items[2].entry.event_hash)
        pairs = [*((each, "o") for each in HOSTILE_IDS), *(("s", each) for each in HOSTILE_IDS)]
        pairs += [("a", "b::c"), ("a::b", "c"), ("s\x00t", "o"), ("s\x00u", "o")]
        for key in pairs:
            item = structs.replace(continuing(head, items[2], key[1]), unique_key=key)
            log.append([item])
            head = Head(item.seq, item.entry.event_hash)
        with pytest.raises(StaleHead):
            log.append([structs.replace(continuing(head, items[2], "b::c"), unique_key=("a", "b::c"))])
        assert log.head(items[0].stream_id) == head

    # --- lists ---

    def test_sessions_are_listed_by_age_and_then_by_id_page_by_page(self, log: AuditLog) -> None:
        """Each once, whatever the size of a page."""
        newer, older = stream(1), stream(2)
        older = [structs.replace(item, ts="2020-01-01T00:00:00.000000Z") for item in older]
        twin = [structs.replace(item, ts=newer[0].ts) for item in stream(3)]
        for group in (twin, newer, older):
            log.append(group)
        listed = log.sessions(None, 10)
        assert [summary.session_id for summary in listed] == [each[0].stream_id for each in (older, newer, twin)]
        places = [(summary.created_ts, summary.session_id) for summary in listed]
        assert log.sessions(None, 2) == listed[:2]
        assert [log.sessions(place, 1) for place in places] == [listed[1:2], listed[2:3], []]
        assert (log.sessions(places[0], 9), log.sessions(("9", ""), 9)) == (listed[1:], [])

    def test_a_summary_is_of_the_newest_entry(self, log: AuditLog) -> None:
        """What it says follows every append."""
        items = stream()
        items[2] = structs.replace(items[2], session=SessionState(2, terminated=True))
        for item in items:
            log.append([item])
            (summary,) = log.sessions(None, 10)
            assert (summary.session_id, summary.created_ts, summary.universe_size) == (item.stream_id, items[0].ts, 4)
            assert (summary.head_seq, summary.head_event_id) == (item.seq, item.event_id)
            assert item.session is not None
            assert (summary.n_survivors, summary.terminated) == (item.session.n_survivors, item.session.terminated)

    def test_streams_of_other_kinds_are_listed_by_name_and_are_no_sessions(self, log: AuditLog) -> None:
        """Each kind by itself, page by page; a session whose name looks like one in part stays a session."""
        names = [
            "space:b",
            "space:a",
            "space:",
            "space:a\u00e9",
            "identity:keys",
            "heads:server",
            "spaces",
            "space;",
            "a space:",
        ]
        for number, name in enumerate(names):
            log.append([structs.replace(stream(number)[0], stream_id=name)])
        assert log.streams("space:", None, 10) == ["space:", "space:a", "space:a\u00e9", "space:b"]
        assert log.streams("space:", None, 2) == ["space:", "space:a"]
        assert log.streams("space:", "space:a", 2) == ["space:a\u00e9", "space:b"]
        assert log.streams("space:a", "space:", 9) == ["space:a", "space:a\u00e9"]
        assert log.streams("identity:", None, 10) == ["identity:keys"]
        assert log.streams("heads:", None, 10) == ["heads:server"]
        assert (log.streams("space:c", None, 9), log.streams("space:", "space:b", 9)) == ([], [])
        assert stream_heads_of(log, "space:", "space:a", 2) == [
            (name, log.head(name)) for name in ("space:a\u00e9", "space:b")
        ]
        assert sorted(summary.session_id for summary in log.sessions(None, 99)) == ["a space:", "space;", "spaces"]

    # --- several writers ---

    def test_entries_of_a_space_are_found_by_their_keys_and_by_their_hashes(self, log: AuditLog) -> None:
        """As a search through all entries would find them; those of other streams are not."""
        items = space_stream(events=7)
        stream_id = items[0].stream_id
        other = stream()
        log.append(other)
        assert find_keys(log, stream_id, [_ALL_KEYS]) == []
        log.append(items[:4])
        log.append(items[4:])
        expected = sorted((key, item.seq) for item in items for key in lookup_keys(item.entry.raw))
        assert [tuple(each) for each in find_keys(log, stream_id, [_ALL_KEYS])] == expected
        keys = sorted({key for key, _ in expected})
        for ranges in ([(keys[0], keys[0])], [(keys[1], keys[3])], [(keys[-2], keys[-1]), (keys[0], keys[1] - 1)]):
            found = [tuple(each) for each in find_keys(log, stream_id, ranges)]
            assert found == [row for row in expected if any(first <= row[0] <= last for first, last in ranges)]
        assert find_keys(log, stream_id, [(keys[0] + 1, keys[1] - 1)]) == []
        assert find_keys(log, other[0].stream_id, [_ALL_KEYS]) == find_keys(log, stream_id, []) == []
        hashes = sorted((item.entry.event_hash, item.seq) for item in items)
        for low, high in ((0, 6), (2, 4), (6, 6)):
            assert find_hashes(log, stream_id, hashes[low][0], hashes[high][0]) == hashes[low : high + 1]
        assert find_hashes(log, stream_id, bytes(32), bytes(32)) == []
        assert find_hashes(log, "space:none", bytes(32), b"\xff" * 32) == []

    def test_inside_exclusive_reads_see_what_the_append_will_continue(self, log: AuditLog) -> None:
        """A block for one stream, and one for a stream that is to be."""
        declaration, elimination, _ = stream()
        with log.exclusive([declaration.stream_id]):
            assert log.head(declaration.stream_id) is None
            log.append([declaration])
        with log.exclusive([declaration.stream_id]):
            assert log.head(declaration.stream_id) == Head(0, declaration.entry.event_hash)
            assert log.read(declaration.stream_id) == [declaration.entry]
            assert [summary.head_seq for summary in log.sessions(None, 1)] == [0]
            log.append([elimination])
        assert log.head(declaration.stream_id) == Head(1, elimination.entry.event_hash)

    def test_a_writer_in_an_exclusive_block_cannot_be_overtaken(self, opened: OpenLog, log: AuditLog) -> None:
        """Another writer of the stream, through another handle, waits and then finds that its head is stale."""
        declaration, mine, _ = stream()
        theirs = continuing(Head(0, declaration.entry.event_hash), mine, "theirs")
        log.append([declaration])
        other, outcomes = opened(), list[str]()

        def overtake() -> None:
            try:
                other.append([theirs])
                outcomes.append("written")
            except StaleHead:
                outcomes.append("stale")

        with log.exclusive([declaration.stream_id]):
            overtaking = Beside(overtake)
            overtaking.wait_at_most(_PATIENCE_SECONDS)
            log.append([mine])
        overtaking.join()
        assert outcomes == ["stale"]
        assert log.read(declaration.stream_id) == [declaration.entry, mine.entry]

    def test_an_exclusive_block_that_is_left_by_an_error_lets_others_in(self, opened: OpenLog, log: AuditLog) -> None:
        """No lock stays behind."""
        declaration, first, _ = stream()
        log.append([declaration])
        other = opened()
        entering = log.exclusive([declaration.stream_id])
        with pytest.raises(ZeroDivisionError), entering:
            raise ZeroDivisionError
        Beside(lambda: other.append([first])).join()
        assert other.head(declaration.stream_id) == Head(1, first.entry.event_hash)

    def test_writers_that_race_leave_one_chain_with_everything_acknowledged_in_it_once(
        self, opened: OpenLog, log: AuditLog
    ) -> None:
        """Threads, each with a handle of its own, that append to one stream and try again when they were late."""
        declaration, _, item = stream(hypotheses="a")
        session_id = declaration.stream_id
        log.append([declaration])
        handles = [opened() for _ in range(_THREADS)]
        begin, acknowledged = Barrier(_THREADS), list[Append]()

        def race(number: int) -> None:
            handle = handles[number]
            begin.wait()
            for each in range(_EACH):
                # Each time that one is late another was in time, so this is far more than enough.
                for _ in range(10 * _THREADS * _EACH):
                    head = handle.head(session_id)
                    assert head is not None
                    mine = continuing(head, item, f"{number}: {each}")
                    try:
                        handle.append([mine])
                    except StaleHead:
                        continue
                    acknowledged.append(mine)
                    break

        run_together(race, _THREADS)
        written = sorted(acknowledged, key=lambda each: each.seq)
        assert [each.seq for each in written] == list(range(1, _THREADS * _EACH + 1))
        assert log.read(session_id) == [declaration.entry, *(each.entry for each in written)]
        assert log.head(session_id) == Head(written[-1].seq, written[-1].entry.event_hash)

    def test_what_one_handle_wrote_another_reads_at_once_and_continues(self, opened: OpenLog, log: AuditLog) -> None:
        """Entries, heads, lists, checkpoints and intents."""
        declaration, first, second = stream()
        session_id, other = declaration.stream_id, opened()
        log.append([declaration])
        assert other.head(session_id) == Head(0, declaration.entry.event_hash)
        other.append([first])
        assert log.read(session_id) == [declaration.entry, first.entry]
        with pytest.raises(StaleHead):
            log.append([first])
        log.put_checkpoint(session_id, 1, b"state")
        assert other.checkpoint(session_id) == (1, b"state")
        log.put_intent(second)
        assert (other.intent(session_id), other.open_intents(9)) == (second.entry, [session_id])
        assert other.sessions(None, 9) == log.sessions(None, 9)

    def test_what_was_acknowledged_is_there_after_closing_and_opening_again(
        self, opened: OpenLog, log: AuditLog
    ) -> None:
        """Closing twice is harmless. A log that lives in one object outlives its closing."""
        declaration, first, second = stream()
        session_id = declaration.stream_id
        log.append([declaration, first])
        log.put_intent(second)
        listed = log.sessions(None, 9)
        log.close()
        log.close()
        again = opened()
        assert again.read(session_id) == [declaration.entry, first.entry]
        assert again.head(session_id) == Head(1, first.entry.event_hash)
        assert (again.sessions(None, 9), again.intent(session_id)) == (listed, second.entry)
        again.append([second])
        assert again.head(session_id) == Head(2, second.entry.event_hash)

    # --- checkpoints and intents ---

    def test_the_newest_checkpoint_is_kept_and_comes_back_byte_for_byte(self, log: AuditLog) -> None:
        """An older one does not replace it; one of the same seq does."""
        items = stream()
        session_id = items[0].stream_id
        log.append(items)
        assert log.checkpoint(session_id) is None
        for seq, data in ((1, b"first"), (2, b"\x00second\xff"), (1, b"late")):
            log.put_checkpoint(session_id, seq, data)
        assert log.checkpoint(session_id) == (2, b"\x00second\xff")
        log.put_checkpoint(session_id, 2, b"rebuilt")
        assert log.checkpoint(session_id) == (2, b"rebuilt")
        assert log.read(session_id) == [item.entry for item in items]

    def test_an_opening_is_what_is_read_one_by_one(self, log: AuditLog) -> None:
        """Without a stream, without a checkpoint, with one of every place, and with one beyond the log."""
        items = stream()
        session_id, entries = items[0].stream_id, [item.entry for item in items]
        assert opening_of(log, session_id) == Opening(None, None, [], [])
        log.append(items)
        head = Head(2, entries[2].event_hash)
        assert opening_of(log, session_id) == Opening(head, None, [], [])
        for seq in range(4):
            log.put_checkpoint(session_id, seq, b"\x00state")
            assert opening_of(log, session_id) == Opening(head, b"\x00state", entries[:1], entries[seq:])
        with log.exclusive([session_id]):
            assert opening_of(log, session_id) == Opening(head, b"\x00state", entries[:1], [])

    @pytest.mark.parametrize("length", [0, 1, 2])
    def test_an_open_intent_lets_nothing_pass_but_its_own_entry(self, log: AuditLog, length: int) -> None:
        """Also not in a group, nor another intent; other streams go on."""
        items, other = stream(), stream(5)[0]
        session_id, intended = items[0].stream_id, items[length]
        for item in items[:length]:
            log.append([item])
        log.put_intent(intended)
        assert (log.intent(session_id), log.open_intents(10)) == (intended.entry, [session_id])
        rival = structs.replace(intended, entry=StoredEntry(intended.entry.raw, bytes(32)))
        for group in ([rival], [other, rival]):
            with pytest.raises(StaleHead):
                log.append(group)
        for twice in (rival, intended):
            with pytest.raises(StaleHead):
                log.put_intent(twice)
        assert log.read(session_id) == [item.entry for item in items[:length]]
        log.append([other])
        assert log.intent(session_id) == intended.entry
        log.append([intended])
        assert (log.intent(session_id), log.open_intents(10)) == (None, [])
        assert log.head(session_id) == Head(length, intended.entry.event_hash)

    def test_an_intent_that_does_not_continue_its_stream_is_stale(self, log: AuditLog) -> None:
        """As an entry that does not."""
        declaration, first, second = stream()
        with pytest.raises(StaleHead):
            log.put_intent(first)
        log.append([declaration, first])
        for stale in (declaration, first, structs.replace(second, prev_event_hash=bytes(range(32)))):
            with pytest.raises(StaleHead):
                log.put_intent(stale)
        assert log.open_intents(10) == []

    def test_an_intent_is_dropped_by_its_hash_and_as_often_as_one_likes(self, log: AuditLog) -> None:
        """A dropped intent holds off no writer."""
        declaration, first, _ = stream()
        log.append([declaration])
        log.put_intent(first)
        log.drop_intent(first.stream_id, bytes(32))
        assert log.intent(first.stream_id) == first.entry
        for _ in range(2):
            log.drop_intent(first.stream_id, first.entry.event_hash)
        assert log.intent(first.stream_id) is None
        rival = continuing(Head(0, declaration.entry.event_hash), first, "another")
        log.append([rival])
        assert log.head(first.stream_id) == Head(1, rival.entry.event_hash)

    def test_open_intents_are_listed_up_to_a_limit(self, log: AuditLog) -> None:
        """Streams that are only intended are no sessions yet."""
        declarations = [stream(space)[0] for space in range(1, 4)]
        for declaration in declarations:
            log.put_intent(declaration)
        intended = {declaration.stream_id for declaration in declarations}
        few = log.open_intents(2)
        assert len(few) == len(set(few) & intended) == 2  # noqa: PLR2004
        assert sorted(log.open_intents(10)) == sorted(intended)
        assert (log.sessions(None, 9), log.head(declarations[0].stream_id)) == ([], None)
