"""Programs whose graph is looked at, beyond the guards that torch has noted of them."""

from __future__ import annotations

from exportguard import ExportOptions

#: The graph is right where its program says that it may not be: that is proved of modules alone, and tried here.
WITHOUT_CHECKS = ExportOptions(check_sizes=False)
