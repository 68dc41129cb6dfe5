"""Wrong stages: a list of classes, each with the words with which `ps.testing.check` refuses it."""

from dataclasses import dataclass

import pytest

import minips as ps


class Wrong(list):
    """The parameters of a test; ``refused`` is the decorator that adds one."""

    def refused(self, said):
        """Class decorator: the class is a stage that is refused with these words."""

        def add(cls):
            cls.name = cls.__name__.lower()
            self.append(pytest.param(dataclass(frozen=True)(cls), said, id=cls.__name__))
            return cls

        return add


def refuse(cls, said):
    """Require that the check refuses the class with these words. It is registered: use the fixture ``registry``."""
    with pytest.raises(AssertionError, match=said):
        ps.testing.check(ps.register(cls)())
