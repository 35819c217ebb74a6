# The lit suite: tests/dialect and tests/compiler, run with the tools of one build folder.
import os
import sys

import lit.formats

config.name = "bagua"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
run = "lit-roundtrip" if lit_config.params.get("roundtrip") else "lit-plain"  # Both may run at once.
config.test_exec_root = os.path.join(config.bagua_obj_root, "tests", run)
config.environment["PATH"] = os.pathsep.join(
    [config.bagua_tools_dir, config.llvm_tools_dir, config.environment["PATH"]])

# `lit -Droundtrip=1` prints and parses every input before it is used.
roundtrip = " --verify-roundtrip" if lit_config.params.get("roundtrip") else ""
opt = os.path.join(config.bagua_tools_dir, "bagua-opt")
config.substitutions.append((r"\bbagua-opt\b", opt + roundtrip))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%algorithms", config.bagua_algorithms_dir))
