# Written by `make stubs`.

from . import calibration as calibration
from . import choices as choices
from . import classification as classification
from . import counts as counts
from . import pictures as pictures
from . import questions as questions
from . import regression as regression
from . import report as report
from . import search as search
from . import several_labels as several_labels
from . import tagging as tagging
from . import translation as translation
from .calibration import Calibration as Calibration
from .choices import choice_report as choice_report
from .classification import classification_report as classification_report
from .questions import question_report as question_report
from .regression import regression_report as regression_report
from .report import Report as Report
from .report import ReportTable as ReportTable
from .search import search_report as search_report
from .several_labels import multi_label_report as multi_label_report
from .tagging import tagging_report as tagging_report
from .translation import translation_report as translation_report
