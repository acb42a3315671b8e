"""The reference of the site has every public name."""

from pathlib import Path

import keras_transformers as kt
from keras_transformers.models.registry import all_entries


def test_every_room_and_every_name_in_it(hooks):
    rooms = hooks._rooms()
    shown = {name for room in rooms.values() for names in room.values() for name in names}
    for room in kt._ROOMS:
        modules = {part for module in rooms.get(room, ()) for part in module.split(".")}
        missing = set(dir(getattr(kt, room))) - shown - modules
        assert not {name for name in missing if not _is_module(room, name)}, room


def test_every_model_has_its_familys_builder(hooks):
    families = hooks._rooms()["families"]
    for name, entry in all_entries().items():
        module = entry.factory.__module__
        assert module.split(".")[-2] in families[module], name


def test_the_names_at_the_top(hooks):
    page = hooks._top()
    for name in kt._NAMES:
        assert f"`kt.{name}`" in page
    assert "Beam" in hooks._rooms()["jobs"]["keras_transformers.jobs.engines"]


def _is_module(room, name):
    package = Path(kt.__file__).parent
    place = package / room
    if (package / "families" / name).is_dir() or (package / name).is_dir():  # shown here too
        return True
    return any(place.rglob(f"{name}.py")) or any(place.rglob(f"{name}/__init__.py"))
