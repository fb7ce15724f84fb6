"""What ``transom serve`` must not wait for while it starts."""

from __future__ import annotations

import subprocess
import sys

# Each takes a good part of a second to import, and a server on the bundled model needs none of them.
HEAVY = ("huggingface_hub", "scipy", "sympy", "torch._dynamo", "transformers", "triton")

STARTS = """
import sys
from transom.cli import make_parser
from transom.commands.engine_options import build_model_engine
from transom.server.app import create_app
from transom.server.settings import ServerSettings

engine = build_model_engine(make_parser().parse_args(["serve"]))
engine.start()
create_app(engine, ServerSettings())
engine.stop()
print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
"""


def test_a_server_on_the_bundled_model_imports_nothing_heavy_but_torch() -> None:
    found = subprocess.run(
        [sys.executable, "-c", STARTS, "torch", *HEAVY], capture_output=True, check=True, text=True
    )
    assert found.stdout.split() == ["torch"]
