# Written by `make stubs`.

from . import calibration as calibration
