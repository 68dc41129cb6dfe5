"""The names of `minips.lab`."""

from minips.lab import panels, plots
from minips.lab.course.best import Best, best_of
from minips.lab.course.cells import answer, quiz, say
from minips.lab.course.class_report import class_report
from minips.lab.course.courses import Course
from minips.lab.course.exercises import check, hint
from minips.lab.course.intervals import interval
from minips.lab.course.milestones import milestone
from minips.lab.course.own import keep, own, train_own
from minips.lab.course.predictions import predict
from minips.lab.course.recorded import record, recorded
from minips.lab.course.reports import progress, report
from minips.lab.panels import *  # noqa: F403
from minips.lab.panels.plug import plug
from minips.lab.plots import timeline
from minips.lab.puzzles import puzzle
from minips.lab.source import show
from minips.lab.views.playground import playground
from minips.lab.views.replay import replay
from minips.lab.workbench import Workbench

__all__ = ["Best", "Course", "Workbench", "answer", "best_of", "check", "class_report", "hint", "interval", "keep"]
__all__ += ["milestone", "own", "playground", "plots", "plug", "predict", "progress", "puzzle", "quiz", "record"]
__all__ += ["recorded", "replay", "report", "say", "show", "timeline", "train_own", *panels.__all__]
