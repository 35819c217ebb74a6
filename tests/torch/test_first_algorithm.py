"""The section "Your first algorithm" of dialect/README.md, run as it stands."""

import os
import re
import subprocess

BUILD = os.environ["BAGUA_BUILD"]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def blocks():
    """(language, text) of the section's code blocks, in order."""
    with open(os.path.join(ROOT, "dialect", "README.md"), encoding="utf-8") as file:
        section = file.read().split("## Your first algorithm", 1)[1].split("\n### Ten mistakes", 1)[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, re.S)


def test_every_command_does_what_the_page_says(tmp_path):
    environment = dict(os.environ)
    environment["PATH"] = os.path.join(BUILD, "bin") + os.pathsep + environment["PATH"]
    environment["PYTHONPATH"] = os.path.join(BUILD, "lib", "bagua", "python")
    environment["BAGUA_CACHE"] = str(tmp_path / "cache")
    outputs = {}
    files = {"mlir": "my.mlir", "python": "train.py"}
    for language, text in blocks():
        if language in files:
            (tmp_path / files[language]).write_text(text, encoding="utf-8")
            continue
        assert language == "sh"
        for command in text.strip().split("\n"):
            run = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
            )
            assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
            outputs[command] = run.stdout

    def output(part):
        return next(text for command, text in outputs.items() if part in command)

    assert "P(x) = ceil(x/4096)*4 + ceil(x/8)" in output("--explain")
    assert "step 4" in output("bagua-interpret")
    losses = re.findall(r"rank \d: loss (\d+\.\d+), (\d+) bytes sent", output("train.py"))
    assert len(losses) == 4
    assert all(float(loss) < 3 for loss, _ in losses)  # It begins near 32, the variance of the sum.
    assert all(int(sent) > 0 for _, sent in losses)
