"""Lesson 06: a reader that lets errors of any kind through."""

MUTANT = (
    "what cannot be read raises errors of any kind",
    "minips/stages/serializers/base.py",
    '    except Exception as error:\n        raise ValueError(f"The frames are',
    '    except AttributeError as error:\n        raise ValueError(f"The frames are',
)
