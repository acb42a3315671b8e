"""What the rooms of this package show, and those of a small package with sub-rooms."""

import sys

import pytest

import keras_transformers.serving
from keras_transformers import rooms

ROOM = (
    "from keras_transformers.rooms import open_room\n__getattr__, __dir__ = open_room(__name__)\n"
)
FILES = {
    "house/__init__.py": ROOM,
    "house/hall.py": '__all__ = ["Door"]\nDoor = "of the hall"\n',
    "house/kitchen/__init__.py": ROOM,
    "house/kitchen/stove.py": '__all__ = ["Heat", "Table"]\nHeat = "of the stove"\nTable = 1\n',
    "house/study/__init__.py": ROOM,
    "house/study/desk.py": '__all__ = ["Table", "Door"]\nTable, Door = 2, "of the study"\n',
}


@pytest.fixture
def house(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    rooms._modules.cache_clear()
    import house

    yield house
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]
    rooms._modules.cache_clear()


def test_a_room_shows_its_modules_and_their_names_and_those_of_its_sub_rooms(house):
    assert dir(house) == ["Door", "Heat", "hall", "kitchen", "study"]
    assert (house.Door, house.Heat) == ("of the hall", "of the stove")
    assert dir(house.study) == ["Door", "Table", "desk"]


def test_a_name_that_several_sub_rooms_have_is_each_ones_own(house):
    with pytest.raises(AttributeError, match="no attribute 'Table'; it has Door, Heat, hall"):
        house.Table  # noqa: B018
    assert (house.kitchen.Table, house.study.Table) == (1, 2)


def test_nothing_is_imported_to_be_shown(house):
    assert "Heat" in dir(house)
    assert not [name for name in sys.modules if name.startswith("house.kitchen.stove")]


def test_serving_shows_what_its_sub_rooms_have():
    names = "BatchingOptions Client Code Limits ModelSettings RequestError Server Tls"
    assert {*names.split(), "client", "protocol", "server"} == set(dir(keras_transformers.serving))
