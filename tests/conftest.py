"""Settings that must stand before torch or triton is imported."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

if not Path("/dev/nvidiactl").exists() and find_spec("triton") is not None:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton kernels run on CPU tensors
