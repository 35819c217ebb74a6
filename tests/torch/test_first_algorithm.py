"""The sections "Your first algorithm" and "Your own codec" of dialect/README.md, run as they stand."""

import os
import re
import subprocess

BUILD = os.environ["BAGUA_BUILD"]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FILES = {"mlir": "my.mlir", "python": "train.py"}


def blocks(begin, end):
    """(language, text) of the code blocks between two headings, in order."""
    with open(os.path.join(ROOT, "dialect", "README.md"), encoding="utf-8") as file:
        section = file.read().split(begin, 1)[1].split(end, 1)[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, re.S)


def first_algorithm():
    return blocks("## Your first algorithm", "\n### Ten mistakes")


def write(folder, language, text):
    (folder / FILES[language]).write_text(text, encoding="utf-8")


def follow(folder, steps):
    """Writes the files and runs the commands; gives what the first command with some text in it printed."""
    environment = dict(os.environ)
    environment["PATH"] = os.path.join(BUILD, "bin") + os.pathsep + environment["PATH"]
    environment["PYTHONPATH"] = os.path.join(BUILD, "lib", "bagua", "python")
    environment["BAGUA_CACHE"] = str(folder / "cache")
    outputs = {}
    for language, text in steps:
        if language in FILES:
            write(folder, language, text)
            continue
        assert language == "sh"
        for command in text.strip().split("\n"):
            run = subprocess.run(
                command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
            )
            assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
            outputs[command] = run.stdout
    return lambda part: next(text for command, text in outputs.items() if part in command)


def check_training(printed):
    losses = re.findall(r"rank \d: loss (\d+\.\d+), (\d+) bytes sent", printed)
    assert len(losses) == 4
    assert all(float(loss) < 3 for loss, _ in losses), losses  # It begins near 32, the variance of the sum.
    assert all(int(sent) > 0 for _, sent in losses)


def test_every_command_does_what_the_page_says(tmp_path):
    output = follow(tmp_path, first_algorithm())
    assert "P(x) = ceil(x/4096)*4 + ceil(x/8)" in output("--explain")
    assert "step 4" in output("bagua-interpret")
    check_training(output("train.py"))


def test_a_codec_of_ones_own_does_what_the_page_says(tmp_path):
    write(tmp_path, *next(block for block in first_algorithm() if block[0] == "python"))
    output = follow(tmp_path, blocks("## Your own codec", "\n## Glossary"))
    assert "P(x) = ceil(x/64)*8 + ceil(6*x/8)" in output("--explain")
    assert "no findings" in output("bagua-schedule")
    check_training(output("train.py"))
