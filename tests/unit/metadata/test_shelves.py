import pytest

from penstock.metadata.shelves import Resource, Shelves


def test_a_change_makes_a_new_map_and_leaves_the_old_one() -> None:
    empty: Shelves[str, int] = Shelves()
    one = empty.changed({"a": 1, "b": 2})
    two = one.changed({"a": None, "c": 3, "nobody": None})
    assert (len(empty), len(one), len(two)) == (0, 2, 2)
    assert dict(one.items()) == {"a": 1, "b": 2}
    assert dict(two.items()) == {"b": 2, "c": 3}
    assert "a" in one
    assert "a" not in two
    assert two.get("a") is None
    with pytest.raises(KeyError):
        two["a"]


def test_maps_with_the_same_content_are_equal_whatever_their_past() -> None:
    direct: Shelves[str, int] = Shelves[str, int]().changed({"a": 1})
    around = Shelves[str, int]().changed({"a": 2, "b": 1}).changed({"a": 1, "b": None})
    assert direct == around
    assert direct != around.changed({"a": 3})


def test_differences_name_every_key_once() -> None:
    old = Shelves[bytes, str]().changed({b"1": "a", b"2": "b", b"3": "c"})
    new = old.changed({b"1": None, b"2": "x", b"4": "d"})
    assert sorted(old.differences(new)) == [(b"1", "a", None), (b"2", "b", "x"), (b"4", None, "d")]
    assert not list(new.differences(new))


def test_resources_of_the_same_name_are_told_apart() -> None:
    settings = Shelves[Resource, int]().changed({Resource(2, "x"): 1, Resource(4, "x"): 2})
    assert settings[Resource(2, "x")] == 1
    assert settings[Resource(4, "x")] == 2
