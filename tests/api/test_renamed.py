"""Code that was written for 0.2.0 imports the modules that its docs named."""

import pytest


def test_a_module_is_found_by_the_name_that_earlier_docs_gave_it() -> None:
    with pytest.warns(DeprecationWarning, match=r"skillopt\.envs\.base is now skillopt\.tasks\.base"):
        from skillopt.envs.base import Item
    from skillopt.tasks.base import Item as TasksItem

    assert Item is TasksItem


def test_a_name_that_never_was_stays_unknown() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"skillopt\.tasks\.nonsense"):
        import skillopt.envs.nonsense  # noqa: F401
