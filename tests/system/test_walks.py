"""No operation takes a longer way through the package than is on record, and a shorter one is put on record."""

from bench.walks import RECORD_COMMAND, WALKS, Size, load_recorded, trace, write_table


def find_faults(sizes: dict[str, Size], recorded: dict[str, Size]) -> list[str]:
    """What to do about each walk that is not as long as recorded."""
    faults = [f"`{name}` is on record and is no walk: `{RECORD_COMMAND}`" for name in recorded.keys() - sizes.keys()]
    for name, size in sizes.items():
        if name not in recorded:
            faults.append(f"`{name}` is not on record: `{RECORD_COMMAND}`")
        elif size.functions > recorded[name].functions or size.modules > recorded[name].modules:
            faults.append(
                f"`{name}` grew from {recorded[name]} to {size}; `python -m bench.walks --list {name}` prints it."
                f" Shorten it, or raise it in a commit that says why: `{RECORD_COMMAND}`"
            )
        elif size != recorded[name]:
            faults.append(f"`{name}` shrank from {recorded[name]} to {size}; lower it: `{RECORD_COMMAND}`")
    return faults


def test_every_walk_has_the_recorded_length() -> None:
    sizes = {name: trace(walk).size for name, walk in WALKS.items()}
    recorded = load_recorded()
    print("\n".join(write_table(sizes, recorded)))  # noqa: T201 - shown where it fails, and with `-s`
    assert not find_faults(sizes, recorded)


def test_a_walk_that_grew_or_shrank_or_is_not_on_record_is_a_fault() -> None:
    recorded = {"a": Size(10, 3), "b": Size(10, 3), "c": Size(10, 3), "d": Size(10, 3), "gone": Size(1, 1)}
    sizes = {"a": Size(10, 3), "b": Size(11, 2), "c": Size(9, 4), "d": Size(9, 3), "new": Size(1, 1)}
    found = " ".join(find_faults(sizes, recorded))
    assert "`a`" not in found
    assert "`b` grew from 10 / 3 to 11 / 2" in found
    assert "`c` grew from 10 / 3 to 9 / 4" in found
    assert "`d` shrank from 10 / 3 to 9 / 3; lower it" in found
    assert "`new` is not on record" in found
    assert "`gone` is on record" in found
