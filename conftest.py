"""The surroundings of every test and of every notebook kernel that the test run starts."""

import os
import signal

# A shell that starts the tests in the background ignores Ctrl-C, and so would all the programs that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["MINIPS_AUTOPLAY"] = "1"  # the lessons' predictions answer themselves
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # a kernel under a debugger's eye would print a warning
os.environ.pop("MPLBACKEND", None)  # a kernel draws into the notebook
