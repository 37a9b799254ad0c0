"""A power cut and names: created, renamed and removed names are durable only after a sync of their directory."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.model.ports import Disk
from tests.unit.host.drive import drive


def put(disk: Disk, path: str, content: bytes, *, is_synced: bool = True) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write(0, content)
    if is_synced:
        drive(file.sync())
    file.close()


def files(disk: Disk, path: str = "") -> dict[str, bytes]:
    """Returns the content of every file by path."""
    found = {}
    for name in disk.list(path):
        below = f"{path}/{name}" if path else name
        try:
            found.update(files(disk, below))
        except NotADirectoryError:
            file = disk.open(below)
            found[below] = file.read(0, 1 << 20)
            file.close()
    return found


def lossy(*, seed: int = 1, is_torn: bool = False) -> LossyDisk:
    return LossyDisk(MemoryDisk(), Random(seed), Faults(is_torn=is_torn))


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize(("syncs_file", "syncs_dir"), list(product([False, True], repeat=2)))
def test_replacing_a_file_by_rename(is_torn: bool, syncs_file: bool, syncs_dir: bool) -> None:
    """Write a new file, sync it, rename it over the old one, sync the directory: all four steps are needed."""
    old, new = {"meta": b"old"}, {"meta": b"new"}
    unsynced_new = {"meta": b""}
    torn_new = {"meta": bytes(3)}
    outcomes = []
    for seed in range(200):
        disk = lossy(seed=seed, is_torn=is_torn)
        put(disk, "meta", b"old")
        drive(disk.sync_dir(""))
        put(disk, "meta.tmp", b"new", is_synced=syncs_file)
        disk.rename("meta.tmp", "meta")
        if syncs_dir:
            drive(disk.sync_dir(""))
        assert files(disk) == new
        found = files(disk.power_cut())
        outcomes.append({name: found[name] for name in ["meta"]})
        if found != new:
            beside = found.get("meta.tmp")
            assert beside in {None, b"", bytes(3), b"new"}
            assert beside is None or found["meta"] == b"old", "a rename happens once"
            assert not (syncs_file and beside in {b"", bytes(3)}), "synced content is there, whatever its name"
    match syncs_file, syncs_dir, is_torn:
        case True, True, _:
            allowed = [new]
        case True, False, False:
            allowed = [old]
        case True, False, True:
            allowed = [old, new]
        case False, True, False:
            allowed = [unsynced_new]
        case False, False, False:
            allowed = [old]
        case False, True, True:
            allowed = [unsynced_new, torn_new, new]
        case _:
            allowed = [old, unsynced_new, torn_new, new]
    assert all(outcome in allowed for outcome in outcomes)
    assert all(outcome in outcomes for outcome in allowed), "and chance reaches every one of them"


def test_a_new_file_is_lost_without_a_sync_of_its_directory() -> None:
    disk = lossy()
    disk.make_dir("x")
    drive(disk.sync_dir(""))
    put(disk, "x/a", b"a")
    drive(disk.sync_dir(""))
    assert files(disk.power_cut()) == {}


def test_a_new_directory_is_lost_without_a_sync_of_its_parent() -> None:
    disk = lossy()
    disk.make_dir("x/y")
    put(disk, "x/y/a", b"a")
    drive(disk.sync_dir("x/y"))
    drive(disk.sync_dir("x"))
    assert disk.inner.list("") == []
    drive(disk.sync_dir(""))
    assert files(disk.inner) == {"x/y/a": b"a"}
    assert files(disk.power_cut()) == {"x/y/a": b"a"}


def test_an_unlinked_file_comes_back_without_a_sync() -> None:
    disk = lossy()
    put(disk, "a", b"a")
    drive(disk.sync_dir(""))
    put(disk, "a", b"changed", is_synced=False)
    disk.unlink("a")
    assert files(disk.power_cut()) == {"a": b"a"}


def test_an_unlinked_open_file_stays_readable_after_the_sync() -> None:
    disk = lossy()
    put(disk, "a", b"a")
    drive(disk.sync_dir(""))
    file = disk.open("a")
    file.write(1, b"b")
    disk.unlink("a")
    drive(disk.sync_dir(""))
    assert disk.inner.list("") == []
    assert file.read(0, 9) == b"ab"
    drive(file.sync())
    assert file.read(0, 9) == b"ab"
    file.close()
    assert files(disk.power_cut()) == {}


def test_moving_a_directory_takes_its_files_along() -> None:
    disk = lossy()
    disk.make_dir("x")
    put(disk, "x/a", b"a")
    drive(disk.sync_all())
    disk.rename("x", "x.deleted")
    put(disk, "x.deleted/b", b"b")
    drive(disk.sync_dir("x.deleted"))
    assert files(disk.inner) == {"x/a": b"a", "x/b": b"b"}
    drive(disk.sync_dir(""))
    assert files(disk.inner) == files(disk) == {"x.deleted/a": b"a", "x.deleted/b": b"b"}


def test_moving_into_a_directory_without_a_durable_name_loses_the_file() -> None:
    """POSIX guarantees no more: the rename is durable, the name of its target directory is not."""
    disk = lossy()
    put(disk, "a", b"a")
    drive(disk.sync_all())
    disk.make_dir("x")
    disk.rename("a", "x/a")
    drive(disk.sync_dir("x"))
    assert files(disk.inner) == {}
    assert files(disk) == {"x/a": b"a"}
    put(disk, "x/a", b"more")
    drive(disk.sync_dir(""))
    assert files(disk.inner) == {"x/a": b"more"}


def test_a_directory_is_removed_only_after_what_was_in_it() -> None:
    for seed in range(100):
        disk = lossy(seed=seed, is_torn=True)
        disk.make_dir("x")
        put(disk, "x/a", b"a")
        drive(disk.sync_all())
        disk.unlink("x/a")
        disk.remove_dir("x")
        after = disk.power_cut()
        assert (after.list(""), files(after)) in [(["x"], {"x/a": b"a"}), (["x"], {}), ([], {})]


def test_a_synced_move_brings_along_what_it_needs() -> None:
    """The file was created in one directory and moved to another; only the target is synced."""
    disk = lossy()
    disk.make_dir("x")
    disk.make_dir("y")
    drive(disk.sync_dir(""))
    put(disk, "x/a", b"a")
    disk.rename("x/a", "y/b")
    drive(disk.sync_dir("y"))
    assert files(disk.power_cut()) == {"y/b": b"a"}


@pytest.mark.parametrize("is_torn", [True, False])
def test_removing_a_directory_never_takes_a_file_that_moved_out(is_torn: bool) -> None:
    for seed in range(100):
        disk = lossy(seed=seed, is_torn=is_torn)
        disk.make_dir("x")
        disk.make_dir("y")
        put(disk, "x/a", b"a")
        drive(disk.sync_all())
        disk.rename("x/a", "y/a")
        disk.remove_dir("x")
        if not is_torn:
            drive(disk.sync_dir(""))
            assert files(disk.inner) == {"y/a": b"a"}
        assert list(files(disk.power_cut()).values()) == [b"a"]


def test_a_file_whose_removal_was_lost_has_its_content() -> None:
    outcomes = []
    for seed in range(100):
        disk = lossy(seed=seed, is_torn=True)
        put(disk, "a", b"a")
        disk.unlink("a")
        outcomes.append(files(disk.power_cut()))
    assert all(outcome in [{}, {"a": b"a"}] for outcome in outcomes)
    assert {"a": b"a"} in outcomes


paths = st.sampled_from(["a", "b", "x/a", "x/b", "x/y/a"])
directories = st.sampled_from(["", "x", "x/y"])
steps = st.one_of(
    st.tuples(st.just("put"), paths),
    st.tuples(st.just("unlink"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("rename"), st.sampled_from(["x", "x/y", "z"]), st.sampled_from(["x", "x/y", "z", "y"])),
    st.tuples(st.just("make_dir"), st.sampled_from(["x", "x/y", "z"])),
    st.tuples(st.just("remove_dir"), st.sampled_from(["x", "x/y", "z"])),
    st.tuples(st.just("sync_dir"), directories),
    st.tuples(st.just("sync_all")),
    st.tuples(st.just("write_back")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=15), st.integers(0, 1 << 32), st.booleans())
def test_no_file_is_torn_from_its_names(story: list[tuple[str, ...]], seed: int, is_torn: bool) -> None:
    """Each file holds its own synced number, so after a power cut every name leads to a file that once had it."""
    disk = lossy(seed=seed, is_torn=is_torn)
    disk.make_dir("x/y")
    drive(disk.sync_all())
    seen: set[tuple[str, bytes]] = set()
    unsettled: set[bytes] = set()
    certain: set[bytes] = set()
    number = 0
    for name, *arguments in story:
        before = files(disk)
        try:
            match name:
                case "put":
                    if disk.exists(arguments[0]):
                        continue
                    number += 1
                    put(disk, arguments[0], b"%d" % number)
                case "sync_dir":
                    drive(disk.sync_dir(arguments[0]))
                case "sync_all":
                    drive(disk.sync_all())
                    certain = set(files(disk).values())
                    unsettled.clear()
                    assert files(disk.inner) == files(disk)
                case "write_back":
                    disk.write_back()
                case "make_dir":
                    disk.make_dir(arguments[0])
                case _:
                    getattr(disk, name)(*arguments)
        except OSError:
            assert files(disk) == before, "what fails changes nothing"
        now = files(disk)
        seen.update(now.items())
        unsettled.update(value for path, value in before.items() if now.get(path) != value)
        survivors = list(files(disk.inner).values())
        assert len(set(survivors)) == len(survivors), "no file has two names"
    after = disk.power_cut()
    found = files(after)
    numbers = list(found.values())
    assert len(set(numbers)) == len(numbers), "no file has two names"
    assert certain - unsettled <= set(numbers), "what had a durable name and was left alone is still there"
    assert {path.split("/")[-1] + value.decode() for path, value in found.items()} <= {
        path.split("/")[-1] + value.decode() for path, value in seen
    }
    assert disk.inner.exists("")
    with pytest.raises(OSError, match="Input/output error"):
        disk.list("")
